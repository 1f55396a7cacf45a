//! What is kept: a plugin's data and the operator's grants; and what is removed with a plugin.
#![cfg(feature = "stage")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use plugind_integration::{Bundle, Installed, Outcome, Plugind, Report, ctl, run, scopes, user};
use plugind_protocol::Kind;
use serde_json::{Value, json};

fn write() -> Value {
    json!({"what": "write-path", "path": "/data/file"})
}

fn read() -> Value {
    json!({"what": "read-path", "path": "/data/file"})
}

#[track_caller]
fn lines(outcome: &Outcome) -> usize {
    Report::of(outcome).allowed().as_str().map_or(0, |text| text.lines().count())
}

/// A plugin's data on this machine.
fn data(name: &str) -> PathBuf {
    user::tester().dir.join(".local/state/plugind/data").join(name)
}

/// Leaves in `/data` a folder that its owner may not enter, a tree deeper than any path, a way out, and no way in.
fn spoil(target: &Path) -> String {
    format!(
        "import os\n\
         os.makedirs('/data/locked/inner')\n\
         open('/data/locked/inner/file', 'w')\n\
         os.symlink('{}', '/data/link')\n\
         os.symlink('/', '/data/locked/root')\n\
         os.mkfifo('/data/pipe')\n\
         for _ in range(3000):\n    \
             os.mkdir('/data/next')\n    \
             if os.path.exists('/data/deep'): os.rename('/data/deep', '/data/next/d')\n    \
             os.rename('/data/next', '/data/deep')\n\
         os.chmod('/data/locked/inner', 0)\n\
         os.chmod('/data/locked', 0)\n\
         os.chmod('/data', 0)",
        target.display()
    )
}

#[test]
fn data_survives_stops_and_crashes_and_temporary_files_do_not() {
    let plugin = Installed::new(Bundle::hostile());
    plugin.probe(&write()).allowed();
    plugin.probe(&json!({"what": "write-path", "path": "/tmp/file"})).allowed();
    ctl(&["stop", plugin.name()]).success();
    plugin.probe(&write()).allowed();
    plugin.call("exit", &json!({"code": 1})).fails(Kind::Crashed);
    plugin.probe(&write()).allowed();
    assert_eq!(lines(&plugin.call("probe", &read())), 3);
    assert_eq!(plugin.probe(&json!({"what": "list-dir", "path": "/tmp"})).allowed(), &json!([]));
}

#[test]
fn data_is_removed_with_the_plugin_unless_it_is_kept() {
    let bundle = Bundle::hostile();
    let install = || ctl(&["install", "--enable", bundle.path()]).success();
    let call = |arguments: &Value| ctl(&["call", &bundle.command("probe"), "--args", &arguments.to_string()]);
    install();
    Report::of(&call(&write())).allowed();
    ctl(&["remove", "--keep-data", bundle.name()]).success();
    assert!(data(bundle.name()).join("file").exists());
    install();
    assert_eq!(lines(&call(&read())), 1, "the kept data is there again");
    ctl(&["remove", bundle.name()]).success();
    assert!(!data(bundle.name()).exists());
    install();
    Report::of(&call(&read())).denied(&[nix::errno::Errno::ENOENT]);
    ctl(&["remove", bundle.name()]).success();
}

#[test]
fn data_is_removed_whatever_the_plugin_did_there() {
    let untouched = user::tester().dir.join(format!("untouched-{}", std::process::id()));
    fs::write(&untouched, "untouched").unwrap();
    let plugin = Installed::new(Bundle::python());
    plugin.python(&spoil(&untouched)).allowed();
    ctl(&["stop", plugin.name()]).success();
    let again = plugin.python("import os; os.chmod('/data', 0o500)");
    let removed = ctl(&["remove", plugin.name()]);
    let kept = fs::read_to_string(&untouched);
    fs::remove_file(untouched).unwrap();
    again.allowed();
    removed.success();
    assert!(!data(plugin.name()).exists());
    ctl(&["status", plugin.name()]).fails(Kind::NoSuchPlugin);
    assert_eq!(kept.unwrap(), "untouched");
}

#[test]
fn an_ephemeral_run_keeps_nothing() {
    let bundle = Bundle::hostile();
    Report::of(&run(&bundle, "probe", &write())).allowed();
    Report::of(&run(&bundle, "probe", &read())).denied(&[nix::errno::Errno::ENOENT]);
    assert!(!data(bundle.name()).exists());
    let runtime = user::runtime_dir();
    let python = Bundle::python();
    let spoil = json!({"code": spoil(Path::new("/data/elsewhere"))});
    Report::of(&run(&python, "probe", &spoil)).allowed();
    let mine: Vec<String> = fs::read_dir(runtime)
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| [&bundle, &python].iter().any(|bundle| path.join("data").join(bundle.name()).exists()))
        .map(|path| path.display().to_string())
        .collect();
    assert!(mine.is_empty(), "{mine:?}");
    assert_eq!(ctl(&["list"]).json().to_string().matches(bundle.name()).count(), 0, "nothing is installed");
}

#[test]
fn grants_and_data_outlive_the_supervisor() {
    let mut plugind = Plugind::new();
    let bundle = Bundle::hostile().asking(json!({"env": ["LOGNAME", "USER"], "secrets": ["token"]}));
    plugind.ctl(&["install", "--enable", "--grant", "env:LOGNAME", bundle.path()]).success();
    let granted = |plugind: &Plugind| plugind.status(bundle.name())["granted_permissions"].clone();
    let environ = |plugind: &Plugind| {
        Report::of(&plugind.call(&bundle, "probe", &json!({"what": "environ"}))).allowed().clone()
    };
    Report::of(&plugind.call(&bundle, "probe", &write())).allowed();
    let before = environ(&plugind);
    plugind.restart(|_| ());
    assert_eq!(granted(&plugind), json!(["env:LOGNAME"]));
    let after = environ(&plugind);
    assert_eq!((&before["LOGNAME"], &after["LOGNAME"]), (&json!(user::NAME), &json!(user::NAME)));
    assert!(after["USER"].is_null(), "and nothing more");
    assert_ne!(before["PLUGIND_INSTANCE"], after["PLUGIND_INSTANCE"]);
    assert_eq!(lines(&plugind.call(&bundle, "probe", &read())), 1);

    plugind.ctl(&["revoke", bundle.name(), "env:LOGNAME"]).success();
    plugind.ctl(&["disable", bundle.name()]).success();
    plugind.restart(|_| ());
    assert_eq!(granted(&plugind), json!([]));
    plugind.call(&bundle, "echo", &json!(1)).fails(Kind::Disabled);
    plugind.ctl(&["remove", bundle.name()]).success();
    scopes::none_left(bundle.name());
}

/// Grants are keyed by digest in the record itself: a record that names another bundle has none.
#[test]
fn a_record_that_points_to_another_bundle_has_no_grants() {
    let mut plugind = Plugind::new();
    let bundle = Bundle::hostile().asking(json!({"env": ["LOGNAME"]}));
    let other = Bundle::hostile().asking(json!({"env": ["LOGNAME"]}));
    for bundle in [&bundle, &other] {
        plugind.ctl(&["install", "--enable", bundle.path()]).success();
    }
    plugind.ctl(&["grant", bundle.name(), "env:LOGNAME"]).success();
    let digest = |name: &str| plugind.status(name)["digest"].as_str().unwrap().to_owned();
    let (granted, exchanged) = (digest(bundle.name()), digest(other.name()));
    plugind.restart(|state| {
        let path = state.join("registry").join(format!("{}.json", bundle.name()));
        let mut record: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(record["digest"], json!(granted));
        record["digest"] = json!(exchanged);
        let others = state.join("registry").join(format!("{}.json", other.name()));
        let others: Value = serde_json::from_slice(&fs::read(others).unwrap()).unwrap();
        record["manifest_sha256"] = others["manifest_sha256"].clone();
        fs::write(&path, record.to_string()).unwrap();
    });
    // That bundle is another plugin's, too: nothing of it runs under this name.
    let error = plugind.call(&bundle, "echo", &json!(1)).fails(Kind::DigestMismatch);
    assert!(error.message.contains(other.name()), "{error}");
    assert_eq!(plugind.status(bundle.name())["granted_permissions"], json!([]));
    assert_eq!(plugind.call(&other, "echo", &json!(1)).json(), 1);
}
