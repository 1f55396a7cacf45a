//! Permissions: without a grant nothing, with one exactly that, and nothing after it was revoked.
#![cfg(feature = "stage")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::PathBuf;

use nix::errno::Errno;
use plugind_integration::ctl::run_through;
use plugind_integration::installed::Process;
use plugind_integration::{Bundle, Installed, Outcome, Report, Root, ctl, scopes, user};
use plugind_protocol::Kind;
use serde_json::{Value, json};

fn list(path: &str) -> Value {
    json!({"what": "list-dir", "path": path})
}

/// A secret of the installed plugind, removed when dropped.
struct Secret(PathBuf);

impl Secret {
    fn new(name: &str, mode: u32) -> Secret {
        let user = user::tester();
        let folder = user.dir.join(".local/state/plugind/secrets");
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(name);
        fs::write(&path, format!("the secret {name}")).unwrap();
        for path in [&folder, &path] {
            chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        Secret(path)
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn without_a_grant_a_plugin_has_nothing_of_what_it_asks_for() {
    let root = Root::new("ungranted", "write");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let bundle = Bundle::hostile()
        .asking(json!({"network": {"mode": "host"}, "mounts": [{"root": "docs", "access": "write"}],
               "secrets": ["token"], "env": ["LOGNAME"]}));
    let probe =
        |arguments: &Value, grants: &[&str]| Report::of(&root.run(&bundle, "probe", arguments, grants));
    let connect = json!({"what": "connect-tcp", "host": "127.0.0.1", "port": port});
    let environ = json!({"what": "environ"});

    assert_eq!(probe(&list("/workspace"), &[]).allowed(), &json!([]));
    assert_eq!(probe(&list("/run"), &[]).allowed(), &json!(["plugind"]));
    probe(&connect, &[]).denied(&[Errno::EACCES, Errno::ECONNREFUSED]);
    assert!(probe(&environ, &[]).allowed()["LOGNAME"].is_null());

    let grants = ["mount:docs:write", "network:host", "env:LOGNAME"];
    assert_eq!(probe(&list("/workspace"), &grants).allowed(), &json!(["docs"]));
    probe(&connect, &grants).allowed();
    assert_eq!(probe(&environ, &grants).allowed()["LOGNAME"], user::NAME);
    // Each grant alone is no other.
    assert_eq!(probe(&list("/workspace"), &["network:host"]).allowed(), &json!([]));
    probe(&connect, &["mount:docs:write"]).denied(&[Errno::EACCES, Errno::ECONNREFUSED]);
}

#[test]
fn installing_grants_and_enables_nothing() {
    let bundle = Bundle::hostile().asking(json!({"network": {"mode": "host"}, "env": ["LOGNAME"]}));
    ctl(&["install", bundle.path()]).success();
    let refused = ctl(&["call", &bundle.command("echo")]);
    let listed = ctl(&["permissions", bundle.name()]).json();
    ctl(&["enable", bundle.name()]).success();
    let answered = ctl(&["call", &bundle.command("echo"), "--args", "[1]"]);
    ctl(&["remove", bundle.name()]).success();
    refused.fails(Kind::Disabled);
    let listed = listed.as_array().unwrap();
    assert_eq!(listed.len(), 2);
    assert!(listed.iter().all(|one| one["requested"] == true && one["granted"] == false), "{listed:?}");
    assert_eq!(answered.json(), json!([1]));
}

#[test]
fn a_variable_is_passed_only_if_it_was_granted_and_exists() {
    let bundle = Bundle::hostile().asking(json!({"env": ["GRANTED", "REFUSED", "ABSENT"]}));
    let outer = ["env", "GRANTED=yes", "REFUSED=no", "UNASKED=no"];
    let grants = ["env:GRANTED", "env:ABSENT"];
    let report = Report::of(&run_through(&outer, &bundle, "probe", &json!({"what": "environ"}), &grants));
    let environ = report.allowed().as_object().unwrap();
    assert_eq!(environ["GRANTED"], "yes");
    assert!(["REFUSED", "ABSENT", "UNASKED"].iter().all(|name| !environ.contains_key(*name)), "{environ:?}");
}

#[test]
fn a_secret_is_a_file_of_the_plugin_it_was_granted_to() {
    let (token, other) = (format!("token-{}", std::process::id()), format!("other-{}", std::process::id()));
    let _secrets = [Secret::new(&token, 0o600), Secret::new(&other, 0o600)];
    let plugin = Installed::new(Bundle::python().asking(json!({"secrets": [token, other]})));
    plugin.python("open('/run/credentials')").denied(&[Errno::ENOENT]);
    let grant = format!("secret:{token}");
    plugin.permit("grant", &[&grant]).success();
    let secret = format!("open('/run/credentials/{token}')");
    assert_eq!(
        plugin.python(&format!("result = {secret}.read()")).allowed(),
        &json!(format!("the secret {token}"))
    );
    let names = plugin.python("import os; result = os.listdir('/run/credentials')");
    assert_eq!(names.allowed(), &json!([token]), "and no other");
    plugin.python(&secret.replace("')", "', 'a')")).denied(&[Errno::EROFS, Errno::EACCES]);
    plugin.python(&format!("import os; os.unlink('/run/credentials/{token}')")).denied(&[
        Errno::EROFS,
        Errno::EACCES,
        Errno::EBUSY,
    ]);
    // Nowhere else.
    let told =
        plugin.python("result = open('/proc/self/environ').read() + open('/proc/self/cmdline').read()");
    assert!(!told.allowed().as_str().unwrap().contains("the secret"));
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&line).contains("the secret"), "{}", process.path().display());
    }
    plugin.permit("revoke", &[&grant]).success();
    plugin.python(&secret).denied(&[Errno::ENOENT]);
}

#[test]
fn a_secret_that_others_can_read_is_refused() {
    let name = format!("loose-{}", std::process::id());
    let secret = Secret::new(&name, 0o644);
    let plugin = Installed::new(Bundle::hostile().asking(json!({"secrets": [name]})));
    plugin.permit("grant", &[&format!("secret:{name}")]).success();
    let error = plugin.call("echo", &json!(1)).fails(Kind::PermissionDenied);
    assert!(error.message.contains("0600"), "{error}");
    fs::set_permissions(&secret.0, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(plugin.call("echo", &json!(1)).json(), 1);
    drop(secret);
    plugin.permit("revoke", &[&format!("secret:{name}")]).success();
    plugin.permit("grant", &[&format!("secret:{name}")]).success();
    plugin.call("echo", &json!(1)).fails(Kind::PermissionDenied);
}

#[test]
fn the_hosts_network_is_granted_in_capitals() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connect =
        json!({"what": "connect-tcp", "host": "127.0.0.1", "port": listener.local_addr().unwrap().port()});
    let plugin = Installed::new(Bundle::hostile().asking(json!({"network": {"mode": "host"}})));
    plugin.probe(&connect).denied(&[Errno::EACCES, Errno::ECONNREFUSED]);
    let status = || Outcome::of(user::as_tester("pluginctl").args(["status", plugin.name()])).stdout;
    assert!(status().contains("network: none"), "{}", status());
    plugin.permit("grant", &["network:host"]).success();
    plugin.probe(&connect).allowed();
    assert!(status().contains("network: the HOST'S NETWORK, unfiltered"), "{}", status());
    assert!(status().contains("network:host, granted: use the HOST'S NETWORK"), "{}", status());
    let names = plugin.probe(&list("/etc")).allowed().to_string();
    assert!(names.contains("hosts") && !names.contains("shadow"), "{names}");
}

#[test]
fn revoking_stops_a_running_plugin_and_it_starts_again_with_less() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connect =
        json!({"what": "connect-tcp", "host": "127.0.0.1", "port": listener.local_addr().unwrap().port()});
    let plugin =
        Installed::new(Bundle::hostile().asking(json!({"network": {"mode": "host"}, "env": ["LOGNAME"]})));
    plugin.permit("grant", &["network:host", "env:LOGNAME"]).success();
    plugin.probe(&connect).allowed();
    let before = plugin.processes();
    plugin.permit("revoke", &["network:host"]).success();
    assert!(!before.is_empty() && !before.iter().any(Process::is_alive), "{before:?}");
    plugin.probe(&connect).denied(&[Errno::EACCES, Errno::ECONNREFUSED]);
    let environ = json!({"what": "environ"});
    assert_eq!(plugin.probe(&environ).allowed()["LOGNAME"], user::NAME, "the other grant stays");
    assert_eq!(plugin.status()["granted_permissions"], json!(["env:LOGNAME"]));
    // Revoking what is not granted disturbs nobody.
    let running = plugin.processes();
    plugin.permit("revoke", &["network:host"]).success();
    assert!(running.iter().all(Process::is_alive));
}

#[test]
fn only_what_was_asked_for_can_be_granted() {
    let plugin = Installed::new(Bundle::hostile().asking(json!({"env": ["LOGNAME"]})));
    for permission in ["network:host", "env:USER", "secret:token", "mount:docs:read"] {
        plugin.permit("grant", &[permission]).fails(Kind::InvalidArguments);
    }
    assert_eq!(plugin.status()["granted_permissions"], json!([]));
    plugin.permit("grant", &["env:LOGNAME"]).success();
    assert_eq!(plugin.status()["granted_permissions"], json!(["env:LOGNAME"]));
}

#[test]
fn the_brokered_network_cannot_be_granted() {
    let plugin = Installed::new(Bundle::hostile().asking(json!({"network": {"hosts": ["api.example.org"]}})));
    plugin.permit("grant", &["network:api.example.org"]).fails(Kind::Unavailable);
    assert_eq!(plugin.call("echo", &json!(1)).json(), 1, "it runs without it");
    assert_eq!(plugin.status()["granted_permissions"], json!([]));
}

#[test]
fn grants_belong_to_the_bundle_that_was_reviewed() {
    let bundle = Bundle::hostile().asking(json!({"env": ["LOGNAME"]}));
    let environ = json!({"what": "environ"}).to_string();
    let granted = || {
        let report = ctl(&["call", &bundle.command("probe"), "--args", &environ]).json();
        !report["value"]["LOGNAME"].is_null()
    };
    ctl(&["install", "--enable", "--grant", "env:LOGNAME", bundle.path()]).success();
    assert!(granted());
    // Another bundle of the same name has to be reviewed anew.
    let changed = Bundle::hostile()
        .asking(json!({"env": ["LOGNAME"]}))
        .manifest(|manifest| manifest["name"] = bundle.name().into())
        .file("changed", b"by a byte", 0o644);
    ctl(&["install", changed.path()]).fails(Kind::Conflict);
    assert!(granted(), "the refused one changed nothing");
    ctl(&["remove", "--keep-data", bundle.name()]).success();
    ctl(&["install", "--enable", changed.path()]).success();
    assert!(!granted());
    ctl(&["remove", bundle.name()]).success();
    scopes::none_left(bundle.name());
}
