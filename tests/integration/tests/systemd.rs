//! The real user manager: what a start asks of it, and what becomes of a start where it, its bus or the stub is not
//! as it should be. Managers that refuse properties, lose jobs or lie are in `supervisor/launcher/src/scope/tests.rs`.
#![cfg(feature = "stage")]

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::process::Command;

use plugind_integration::bundle::repository;
use plugind_integration::user::{as_tester, as_tester_through};
use plugind_integration::{Bundle, Outcome, Plugind, scopes, trial_with, until};
use plugind_protocol::Kind;
use serde_json::json;

/// How a supervisor names its instances that finds zeroes in the place of `/dev/urandom`.
const INSTANCE: &str = "00000000";

fn properties(unit: &str) -> HashMap<String, String> {
    let outcome = Outcome::of(as_tester("systemctl").args(["--user", "show", unit]));
    let pairs = outcome.stdout.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn a_started_plugin_is_in_a_scope_with_its_limits_and_a_stopped_one_leaves_no_unit() {
    let plugind = Plugind::new();
    let bundle = Bundle::hostile().manifest(|manifest| {
        manifest["resources"] = json!({"memory_max": "100M", "cpu_quota": "50%", "tasks_max": 20});
    });
    plugind.ctl(&["install", "--enable", bundle.path()]).success();
    plugind.ctl(&["start", bundle.name()]).success();
    let status = plugind.status(bundle.name());
    let unit = status["unit"].as_str().unwrap();
    assert_eq!(scopes::of(bundle.name()), [unit]);
    let found = properties(unit);
    for (name, value) in [
        ("ActiveState", "active"),
        ("Slice", "plugind.slice"),
        ("MemoryMax", "104857600"),
        ("MemorySwapMax", "0"),
        ("CPUQuotaPerSecUSec", "500ms"),
        ("TasksMax", "20"),
        ("OOMPolicy", "kill"),
        ("CollectMode", "inactive-or-failed"),
        ("TimeoutStopUSec", "5s"),
    ] {
        assert_eq!(found.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert!(status["control_group"].as_str().unwrap().ends_with(&found["ControlGroup"]), "{status}");
    assert!(found["Description"].contains(bundle.name()), "{found:?}");
    plugind.ctl(&["stop", bundle.name()]).success();
    scopes::none_left(bundle.name());
    // Neither does one that fails.
    plugind.call(&bundle, "exit", &json!({"code": 3})).fails(Kind::Crashed);
    scopes::none_left(bundle.name());
    plugind.call(&bundle, "abort", &json!({})).fails(Kind::Crashed);
    scopes::none_left(bundle.name());
    plugind.ctl(&["remove", bundle.name()]).success();
    plugind.unharmed();
}

/// Runs a bundle whose scope's name is known before.
fn run_as_known_instance(bundle: &Bundle) -> Outcome {
    let line = "mount -t tmpfs none /mnt; mknod -m 666 /mnt/random c 1 5; mount --bind /mnt/random /dev/urandom; \
                exec \"$@\"";
    trial_keeping(&["unshare", "--mount", "sh", "-ec", line, "sh"], bundle)
}

/// `trial` wants no unit of the plugin's name afterwards; here there may be one that is not its own.
fn trial_keeping(outer: &[&str], bundle: &Bundle) -> Outcome {
    let mut pluginctl = as_tester_through(outer, "pluginctl");
    pluginctl.args(["-o", "json", "run", bundle.path(), &bundle.command("echo"), "--args", "1"]);
    Outcome::of(&mut pluginctl)
}

#[test]
fn a_failed_unit_that_an_earlier_start_left_is_cleared_away() {
    let bundle = Bundle::hostile();
    let unit = format!("plugind-{}-{INSTANCE}.scope", bundle.name());
    // A scope fails when its time is over.
    let time = "--property=RuntimeMaxSec=100ms";
    let scope = ["--user", "--quiet", "--scope", "--unit", &unit, time, "sleep", "60"];
    let _ = Outcome::of(as_tester("systemd-run").args(scope));
    until("the scope has failed", || (properties(&unit)["ActiveState"] == "failed").then_some(()));
    assert_eq!(run_as_known_instance(&bundle).json(), 1);
    scopes::none_left(bundle.name());
}

#[test]
fn a_running_unit_of_the_same_name_is_left_alone() {
    let bundle = Bundle::hostile();
    let unit = format!("plugind-{}-{INSTANCE}.scope", bundle.name());
    let scope = ["--user", "--quiet", "--scope", "--unit", &unit, "sleep", "60"];
    let mut other = as_tester("systemd-run").args(scope).spawn().unwrap();
    until("the scope runs", || (properties(&unit)["ActiveState"] == "active").then_some(()));
    let error = run_as_known_instance(&bundle).fails(Kind::Conflict);
    assert!(error.message.contains(&format!("systemd already has a unit {unit}")), "{error:?}");
    assert_eq!(properties(&unit)["ActiveState"], "active");
    other.kill().and_then(|()| other.wait()).unwrap();
    scopes::none_left(bundle.name());
}

/// The installed programs, with another helper.
struct Programs(PathBuf);

impl Programs {
    fn with_helper(name: &str, helper: &[u8], mode: u32) -> Programs {
        let folder = PathBuf::from(format!("/tmp/programs-{name}-{}", std::process::id()));
        fs::create_dir(&folder).expect("a new folder in /tmp");
        for program in ["plugind", "plugind-launcher"] {
            symlink(format!("/usr/libexec/plugind/{program}"), folder.join(program)).expect("a link");
        }
        let place = folder.join("plugind-sandbox");
        fs::write(&place, helper).expect("a helper");
        fs::set_permissions(place, fs::Permissions::from_mode(mode)).expect("its mode");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("its mode");
        Programs(folder)
    }

    fn run(&self, bundle: &Bundle) -> Outcome {
        trial_with(&[], bundle, "echo", &json!(1), |pluginctl| {
            pluginctl.env("PLUGIND_LIBEXEC", &self.0);
        })
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_stub_that_is_dead_before_its_scope_is_refused() {
    let programs = Programs::with_helper("dead", &fs::read("/bin/true").unwrap(), 0o755);
    for _ in 0..5 {
        // Where exactly its death is noticed is a matter of time; what comes of it is not.
        let error = programs.run(&Bundle::hostile()).fails(Kind::SandboxDenied);
        let noticed =
            ["systemd refused to start", "ended with \"failed\"", "is gone before", "ended at its gate"];
        assert!(noticed.iter().any(|said| error.message.contains(said)), "{error:?}");
    }
}

#[test]
fn a_stub_that_dies_at_its_open_gate_is_refused() {
    // It reads the gate's byte and ends.
    let helper = b"#!/bin/bash\nread -r -n 1 -u \"$3\"\nexit 3\n";
    let programs = Programs::with_helper("gate", helper, 0o755);
    let error = programs.run(&Bundle::hostile()).fails(Kind::SandboxDenied);
    assert!(error.message.contains("before the plugin's program was reached"), "{error:?}");
    assert!(error.hint.contains("pluginctl doctor"), "{error:?}");
}

#[test]
fn a_helper_that_is_no_program_is_refused() {
    let programs = Programs::with_helper("text", b"no program", 0o644);
    let error = programs.run(&Bundle::hostile()).fails(Kind::SandboxDenied);
    assert!(error.message.contains("cannot start") && error.hint.contains("reinstall plugind"), "{error:?}");
}

#[test]
fn without_a_runtime_directory_the_missing_session_is_named() {
    let bundle = Bundle::hostile();
    let outcome = trial_with(&[], &bundle, "echo", &json!(1), |pluginctl| {
        pluginctl.env_remove("XDG_RUNTIME_DIR");
    });
    let error = outcome.fails(Kind::Unavailable);
    assert!(error.message.contains("XDG_RUNTIME_DIR is not set"), "{error:?}");
    assert!(error.hint.contains("loginctl enable-linger"), "{error:?}");
    let outcome = Outcome::of(
        as_tester("pluginctl")
            .args(["-o", "json", "list"])
            .env_remove("XDG_RUNTIME_DIR")
            .env("DBUS_SESSION_BUS_ADDRESS", ""),
    );
    let error = outcome.fails(Kind::Unavailable);
    assert!(error.message.contains("there is no session bus: XDG_RUNTIME_DIR is not set"), "{error:?}");
    // The daemons themselves say so, and end.
    for program in ["plugind", "plugind-launcher"] {
        let mut daemon = as_tester(&format!("/usr/libexec/plugind/{program}"));
        let outcome =
            Outcome::of(daemon.env_remove("XDG_RUNTIME_DIR").env("XDG_STATE_HOME", "/tmp/no-state"));
        assert_eq!(outcome.code, Some(1), "{program}: {}", outcome.stderr);
        assert!(outcome.stderr.contains("XDG_RUNTIME_DIR is not set"), "{program}: {}", outcome.stderr);
    }
}

#[test]
fn without_a_bus_or_a_user_manager_on_it_the_missing_one_is_named() {
    let bundle = Bundle::hostile();
    let outcome = trial_with(&[], &bundle, "echo", &json!(1), |pluginctl| {
        pluginctl.env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/no/such/bus");
    });
    let error = outcome.fails(Kind::Unavailable);
    let whole = format!("{error:?}");
    assert!(whole.contains("cannot reach the systemd user manager"), "{error:?}");

    let list = ["-o", "json", "list"];
    let mut pluginctl = as_tester("pluginctl");
    let outcome = Outcome::of(pluginctl.args(list).env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/no/such/bus"));
    let error = outcome.fails(Kind::Unavailable);
    assert!(error.message.contains("cannot reach the session bus"), "{error:?}");
    assert!(error.hint.contains("dbus.socket"), "{error:?}");

    // A bus that nobody but plugind is on.
    let plugind = Plugind::new();
    let address = format!("unix:path={}", plugind.bus().display());
    let outcome = trial_with(&[], &bundle, "echo", &json!(1), |pluginctl| {
        pluginctl.env("DBUS_SESSION_BUS_ADDRESS", &address);
    });
    let error = outcome.fails(Kind::Unavailable);
    assert!(format!("{error:?}").contains("cannot reach the systemd user manager"), "{error:?}");
}

#[test]
fn nothing_runs_as_root() {
    let mut pluginctl = Command::new("pluginctl");
    pluginctl
        .args(["-o", "json", "run"])
        .arg(repository().join("target/bundles/hostile"))
        .arg("hostile.echo");
    let error = Outcome::of(&mut pluginctl).fails(Kind::PermissionDenied);
    assert!(error.message.contains("does not run as root"), "{error:?}");
    for program in ["plugind", "plugind-launcher"] {
        let outcome = Outcome::of(&mut Command::new(format!("/usr/libexec/plugind/{program}")));
        assert_eq!(outcome.code, Some(1));
        assert!(outcome.stderr.contains("does not run as root"), "{program}: {}", outcome.stderr);
    }
}
