//! The D-Bus face: signals, objects, typed errors, and who may call.
#![cfg(feature = "stage")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use plugind_integration::{Bundle, Outcome, ctl, user};
use serde_json::{Value, json};

/// Signals of `org.plugind1`, as `busctl` reports them, one JSON object a line.
struct Monitor {
    busctl: Child,
    lines: Receiver<Value>,
}

impl Monitor {
    fn start() -> Monitor {
        let mut busctl = user::as_tester("busctl")
            .args(["--user", "--json=short", "--match=type='signal',sender='org.plugind1'", "monitor"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(busctl.stderr.take().unwrap());
        let mut line = String::new();
        // "Monitoring bus message stream."
        stderr.read_line(&mut line).unwrap();
        let stdout = BufReader::new(busctl.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if let Ok(message) = serde_json::from_str(&line)
                    && sender.send(message).is_err()
                {
                    return;
                }
            }
        });
        Monitor { busctl, lines }
    }

    /// The next signal that fits; others are passed over.
    fn next(&self, member: &str, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            let message = self
                .lines
                .recv_timeout(Duration::from_secs(30))
                .unwrap_or_else(|_| panic!("no {member} came"));
            if message["member"] == member && fits(&message) {
                return message;
            }
        }
    }

    fn changed(&self, name: &str) -> String {
        let message = self.next("PluginChanged", |message| message["payload"]["data"][0] == name);
        message["payload"]["data"][1].as_str().unwrap().to_owned()
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _ = self.busctl.kill();
        let _ = self.busctl.wait();
    }
}

fn object(name: &str) -> String {
    format!("/org/plugind1/plugin/{}", plugind_protocol::name::dbus_label(name))
}

fn busctl(arguments: &[&str]) -> Outcome {
    Outcome::of(user::as_tester("busctl").args(["--user", "--json=short"]).args(arguments))
}

#[test]
fn each_change_of_a_plugin_is_announced_once_and_in_order() {
    // The daemon must be up to own the name that is watched.
    ctl(&["list"]).success();
    let bundle = Bundle::hostile();
    let (name, path) = (bundle.name().to_owned(), object(bundle.name()));
    let monitor = Monitor::start();

    ctl(&["install", bundle.path()]).success();
    let added = monitor.next("InterfacesAdded", |message| message["payload"]["data"][0] == path.as_str());
    assert!(added.to_string().contains("org.plugind1.Plugin"), "{added}");
    assert_eq!(monitor.changed(&name), "installed");

    ctl(&["enable", &name]).success();
    assert_eq!(monitor.changed(&name), "inactive");
    ctl(&["call", &bundle.command("echo"), "--args", "{}"]).success();
    assert_eq!(monitor.changed(&name), "activating");
    let active = monitor.next("PropertiesChanged", |message| {
        message["path"] == path.as_str() && message.to_string().contains("\"active\"")
    });
    let text = active.to_string();
    for property in ["State", "SubState", "Unit", "Instance", "MainPID", "ControlGroup", "Limits", "Sandbox"]
    {
        assert!(text.contains(&format!("\"{property}\"")), "{property} is missing: {text}");
    }
    assert_eq!(monitor.changed(&name), "active");

    ctl(&["stop", &name]).success();
    assert_eq!(monitor.changed(&name), "deactivating");
    assert_eq!(monitor.changed(&name), "inactive");
    ctl(&["remove", &name]).success();
    monitor.next("InterfacesRemoved", |message| message["payload"]["data"][0] == path.as_str());
    assert_eq!(monitor.changed(&name), "removed");
}

#[test]
fn an_error_has_its_own_name_and_the_whole_of_it_as_json() {
    let call = ["call", "org.plugind1", "/org/plugind1", "org.plugind1.Manager"];
    let refused = Outcome::of(user::as_tester("dbus-send").args([
        "--session",
        "--print-reply",
        "--dest=org.plugind1",
        "/org/plugind1",
        "org.plugind1.Manager.Start",
        "string:no-such-plugin",
    ]));
    assert_ne!(refused.code, Some(0));
    assert!(refused.stderr.contains("org.plugind1.Error.NoSuchPlugin"), "{}", refused.stderr);
    let unknown =
        busctl(&[&call[..], &["Remove", "sa{sv}", "x", "1", "keep_everything", "b", "true"]].concat());
    assert_ne!(unknown.code, Some(0));
    assert!(unknown.stderr.contains("keep_everything"), "an unknown option is refused: {}", unknown.stderr);
}

#[test]
fn the_callers_identity_is_what_the_bus_says() {
    let bundle = Bundle::hostile();
    ctl(&["install", "--enable", bundle.path()]).success();
    let meta = ctl(&["call", &bundle.command("meta")]).json();
    let caller = meta["caller"].as_str().unwrap();
    assert!(caller.starts_with(&format!("uid:{} pid:", user::tester().uid)), "{caller}");
    assert!(meta["invocation"].is_string() && meta["deadline_ms"].is_u64(), "{meta}");
    ctl(&["remove", bundle.name()]).success();
}

#[test]
fn another_user_cannot_call() {
    ctl(&["list"]).success();
    let address = format!("--address=unix:path={}/bus", user::runtime_dir());
    let call = [address.as_str(), "call", "org.plugind1", "/org/plugind1", "org.plugind1.Manager", "List"];
    let own = Outcome::of(user::as_tester("busctl").args(call));
    own.success();
    // Even root: the session bus takes nobody else in, and the Manager would refuse whom it let in.
    let other = Outcome::of(std::process::Command::new("busctl").args(call));
    assert_ne!(other.code, Some(0), "{}", other.stdout);
}

#[test]
fn the_object_manager_lists_every_plugin_with_its_properties() {
    let bundle = Bundle::hostile();
    ctl(&["install", bundle.path()]).success();
    let objects = busctl(&[
        "call",
        "org.plugind1",
        "/org/plugind1",
        "org.freedesktop.DBus.ObjectManager",
        "GetManagedObjects",
    ])
    .json();
    let plugin = &objects["data"][0][object(bundle.name())]["org.plugind1.Plugin"];
    assert_eq!(plugin["Name"]["data"], json!(bundle.name()));
    assert_eq!(plugin["State"]["data"], json!("disabled"));
    assert_eq!(plugin["MemoryCurrent"]["data"], json!(u64::MAX), "not running: not known");
    ctl(&["remove", bundle.name()]).success();
}
