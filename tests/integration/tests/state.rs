//! A supervisor that finds its own files torn or changed: it says so, starts nothing of them, and writes nothing over
//! them.
#![cfg(feature = "stage")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use plugind_integration::{Bundle, Plugind};
use plugind_protocol::Kind;
use serde_json::json;

const RAW_CALL: &str = env!("CARGO_BIN_EXE_raw-call");

/// A record cut off in the middle, emptied, replaced by something else.
#[test]
fn a_torn_record_shows_as_broken_and_is_never_read_as_empty() {
    let mut plugind = Plugind::new();
    let bundle = Bundle::hostile();
    plugind.ctl(&["install", "--enable", bundle.path()]).success();
    let file = format!("registry/{}.json", bundle.name());
    let whole = fs::read_to_string(plugind.state().join(&file)).unwrap();
    let other = Bundle::hostile().manifest(|manifest| manifest["name"] = bundle.name().into());
    let other = other.file("more", b"more", 0o644);
    let foreign = whole.replace(bundle.name(), "another-name");
    let newer = whole.replace("\"version\": 1", "\"version\": 99");
    assert_ne!(newer, whole);
    for torn in [&whole[..whole.len() / 2], "", "{}", "null", "\0\0\0\0", &foreign, &newer] {
        plugind.restart(|state| fs::write(state.join(&file), torn).unwrap());
        let list = plugind.ctl(&["list"]).json();
        let listed = list.as_array().unwrap().iter().find(|plugin| plugin["name"] == bundle.name()).unwrap();
        assert_eq!(listed["state"], "broken", "{torn:?}: {listed}");
        assert_eq!(plugind.ctl(&["status", bundle.name()]).code, Some(3));
        for outcome in [
            plugind.call(&bundle, "echo", &json!(1)),
            plugind.ctl(&["enable", bundle.name()]),
            plugind.ctl(&["start", bundle.name()]),
        ] {
            let error = outcome.error();
            assert!(error.message.contains(&file), "{torn:?}: {error:?}");
            assert!(error.hint.contains("never read as an empty one"), "{error:?}");
        }
        plugind.ctl(&["install", other.path()]).fails(Kind::Conflict);
        assert_eq!(fs::read_to_string(plugind.state().join(&file)).unwrap(), torn, "nobody wrote to it");
        plugind.answers();
    }
    // Mended, it is what it was.
    plugind.restart(|state| fs::write(state.join(&file), &whole).unwrap());
    assert_eq!(plugind.call(&bundle, "echo", &json!(1)).json(), 1);
    // A broken one can be removed.
    plugind.restart(|state| fs::write(state.join(&file), "{").unwrap());
    plugind.ctl(&["remove", bundle.name()]).success();
    plugind.ctl(&["call", &bundle.command("echo")]).fails(Kind::NoSuchPlugin);
    plugind.answers();
    assert!(!plugind.state().join(&file).exists());
}

#[test]
fn an_install_that_a_torn_record_refuses_leaves_its_bundle_in_the_store() {
    let mut plugind = Plugind::new();
    let bundle = Bundle::hostile();
    plugind.ctl(&["install", "--enable", bundle.path()]).success();
    let file = plugind.state().join(format!("registry/{}.json", bundle.name()));
    let whole = fs::read_to_string(&file).unwrap();
    plugind.restart(|_| fs::write(&file, "{").unwrap());
    plugind.ctl(&["install", bundle.path()]).fails(Kind::Conflict);
    assert_eq!(fs::read_to_string(&file).unwrap(), "{", "nobody wrote to it");
    // Mended, it is what it was.
    plugind.restart(|_| fs::write(&file, &whole).unwrap());
    assert_eq!(plugind.call(&bundle, "echo", &json!(1)).json(), 1);
    plugind.ctl(&["remove", bundle.name()]).success();
    plugind.unharmed();
}

#[test]
fn a_stored_bundle_that_was_changed_is_not_started() {
    let plugind = Plugind::new();
    let bundle = Bundle::hostile();
    plugind.ctl(&["install", "--enable", bundle.path()]).success();
    let digest = plugind.status(bundle.name())["digest"].as_str().unwrap().replace(':', "-");
    let folder = plugind.state().join("store").join(digest);
    let kept = fs::read(folder.join("plugin.json")).unwrap();
    let changes: [fn(&Path); 4] = [
        |folder| fs::write(folder.join("plugin.json"), b"{}").unwrap(),
        |folder| fs::write(folder.join("more"), b"more").unwrap(),
        |folder| std::os::unix::fs::symlink("/etc/passwd", folder.join("more")).unwrap(),
        |folder| fs::remove_file(folder.join("plugin.json")).unwrap(),
    ];
    for change in changes {
        change(&folder);
        let error =
            plugind.raw_call(RAW_CALL, &["call", bundle.name(), "echo", "1"]).fails(Kind::DigestMismatch);
        assert!(error.message.contains("is not what was installed"), "{error:?}");
        plugind.ctl(&["verify", bundle.name()]).fails(Kind::DigestMismatch);
        let _ = fs::remove_file(folder.join("more"));
        fs::write(folder.join("plugin.json"), &kept).unwrap();
        assert_eq!(plugind.call(&bundle, "echo", &json!(1)).json(), 1, "it is as it was");
        plugind.ctl(&["stop", bundle.name()]).success();
    }
    plugind.ctl(&["remove", bundle.name()]).success();
    plugind.unharmed();
}

/// What a reviewer is shown, and what `call` looks at first, is what was verified.
#[test]
fn a_stored_manifest_that_was_changed_is_not_shown() {
    let plugind = Plugind::new();
    let bundle = Bundle::hostile();
    plugind.ctl(&["install", "--enable", bundle.path()]).success();
    let digest = plugind.status(bundle.name())["digest"].as_str().unwrap().replace(':', "-");
    let file = plugind.state().join("store").join(digest).join("plugin.json");
    let good = fs::read_to_string(&file).unwrap();
    let shown = plugind.ctl(&["describe", bundle.name()]).json();
    for changed in [&good.replace("Returns its arguments", "Deletes your files"), "{}", ""] {
        fs::write(&file, changed).unwrap();
        let outcome = plugind.ctl(&["describe", bundle.name()]);
        if outcome.code == Some(0) {
            assert_eq!(outcome.json(), shown);
        } else {
            outcome.fails(Kind::DigestMismatch);
        }
        plugind.call(&bundle, "echo", &json!(1)).fails(Kind::DigestMismatch);
    }
    fs::write(&file, good).unwrap();
    plugind.ctl(&["remove", bundle.name()]).success();
    plugind.unharmed();
}

/// A full disk, which may be the plugin's own doing, must not keep what the operator takes away.
#[test]
fn what_is_taken_away_is_gone_even_where_that_cannot_be_saved() {
    let plugind = Plugind::new();
    let bundle = Bundle::hostile().manifest(|manifest| manifest["permissions"] = json!({"env": ["TZ"]}));
    plugind.ctl(&["install", "--enable", "--grant", "env:TZ", bundle.path()]).success();
    assert_eq!(plugind.call(&bundle, "echo", &json!(1)).json(), 1);
    let registry = plugind.state().join("registry");
    let mode = |mode| fs::set_permissions(&registry, Permissions::from_mode(mode)).unwrap();
    mode(0o500);
    let revoked = plugind.ctl(&["revoke", bundle.name(), "env:TZ"]).fails(Kind::Unavailable);
    assert!(revoked.message.contains("taken away until plugind ends"), "{revoked}");
    assert_eq!(plugind.status(bundle.name())["granted_permissions"], json!([]));
    plugind.ctl(&["disable", bundle.name()]).fails(Kind::Unavailable);
    let status = plugind.status(bundle.name());
    assert_eq!((&status["enabled"], &status["state"]), (&json!(false), &json!("disabled")), "{status}");
    plugind.call(&bundle, "echo", &json!(1)).fails(Kind::Disabled);
    mode(0o700);
    plugind.ctl(&["remove", bundle.name()]).success();
    plugind.unharmed();
}
