//! Installs that are refused for what the bundle is or says.
#![cfg(feature = "stage")]

use std::fs;

use plugind_integration::archive::Archive;
use plugind_integration::{Bundle, Plugind};
use plugind_protocol::Kind;
use serde_json::{Value, json};

const RAW_CALL: &str = env!("CARGO_BIN_EXE_raw-call");

/// What a test does to a good manifest.
type Change = fn(&mut Value);

/// Refused by `pluginctl`, and by the supervisor where the bundle comes past it.
fn refused(plugind: &Plugind, bundle: &Bundle, kind: Kind, said: &str) {
    for outcome in [
        plugind.ctl(&["install", bundle.path()]),
        plugind.install_stream(RAW_CALL, &Archive::of(bundle).bytes()),
    ] {
        let error = outcome.fails(kind);
        assert!(error.message.contains(said), "{said}: {error:?}");
        assert!(error.outcome_known, "{error:?}");
    }
    plugind.unharmed();
}

#[test]
fn another_digest_than_the_expected_one_is_refused() {
    let plugind = Plugind::new();
    let bundle = Bundle::hostile();
    let digest = plugind.ctl(&["verify", bundle.path()]).json()["digest"].as_str().unwrap().to_owned();
    let other = format!("sha256:{}", "0".repeat(64));
    let error = plugind.ctl(&["install", bundle.path(), "--digest", &other]).fails(Kind::DigestMismatch);
    assert!(error.message.contains(&digest) && error.message.contains(&other), "{error:?}");
    // Past pluginctl.
    let stream = Archive::of(&bundle).bytes();
    let error = plugind.install_stream_of(RAW_CALL, &stream, &other).fails(Kind::DigestMismatch);
    assert!(error.message.contains(&digest) && error.message.contains(&other), "{error:?}");
    for wrong in ["", "sha256:", "sha256:xyz", "md5:00"] {
        plugind.ctl(&["install", bundle.path(), "--digest", wrong]).fails(Kind::InvalidArguments);
        plugind.install_stream_of(RAW_CALL, &stream, wrong).fails(Kind::InvalidArguments);
    }
    plugind.unharmed();
    plugind.ctl(&["install", bundle.path(), "--digest", &digest]).success();
    plugind.ctl(&["remove", bundle.name()]).success();
    plugind.unharmed();
}

#[test]
fn a_manifest_with_an_unknown_field_is_refused_wherever_the_field_stands() {
    let plugind = Plugind::new();
    let fields: [Change; 6] = [
        |manifest| manifest["colour"] = "red".into(),
        |manifest| manifest["commands"][0]["colour"] = "red".into(),
        |manifest| manifest["resources"] = json!({"colour": "red"}),
        |manifest| manifest["lifecycle"]["colour"] = "red".into(),
        |manifest| manifest["permissions"] = json!({"colour": "red"}),
        |manifest| {
            manifest["permissions"] = json!({"mounts": [{"root": "a", "access": "read", "colour": 1}]});
        },
    ];
    for change in fields {
        refused(&plugind, &Bundle::hostile().manifest(change), Kind::InvalidManifest, "colour");
    }
}

#[test]
fn a_manifest_that_says_something_twice_or_wrongly_is_refused() {
    let plugind = Plugind::new();
    let changes: [(&str, Change); 9] = [
        ("echo", |manifest| {
            let command = manifest["commands"][1].clone();
            manifest["commands"].as_array_mut().unwrap().push(command);
        }),
        ("name", |manifest| manifest["name"] = "../x".into()),
        ("version", |manifest| manifest["version"] = "one".into()),
        ("manifest", |manifest| manifest["manifest"] = 2.into()),
        ("protocol", |manifest| manifest["protocol"] = "plugind/2".into()),
        ("exec", |manifest| manifest["exec"] = json!(["../bin/hostile-plugin"])),
        ("exec", |manifest| manifest["exec"] = json!(["/bin/sh", "x"])),
        ("timeout_ms", |manifest| manifest["commands"][0]["timeout_ms"] = 0.into()),
        ("input_schema", |manifest| manifest["commands"][0]["input_schema"] = json!({"type": "thing"})),
    ];
    for (said, change) in changes {
        refused(&plugind, &Bundle::hostile().manifest(change), Kind::InvalidManifest, said);
    }
    let twice = br#"{"manifest":1,"name":"twice","name":"twice"}"#;
    refused(&plugind, &Bundle::hostile().file("plugin.json", twice, 0o644), Kind::InvalidManifest, "name");
    refused(&plugind, &Bundle::hostile().file("plugin.json", b"{", 0o644), Kind::InvalidManifest, "");
    let large = vec![b' '; 300 << 10];
    refused(&plugind, &Bundle::hostile().file("plugin.json", &large, 0o644), Kind::InvalidManifest, "");
}

#[test]
fn a_script_whose_interpreter_the_operator_does_not_allow_is_refused() {
    let plugind = Plugind::new();
    let bundle = Bundle::hostile().file("main.pl", b"exit 0;\n", 0o644).manifest(|manifest| {
        manifest["exec"] = json!(["/usr/bin/perl", "main.pl"]);
        manifest["runtime"] = "system".into();
    });
    refused(
        &plugind,
        &bundle,
        Kind::PermissionDenied,
        "runs /usr/bin/perl, which the operator does not allow",
    );
}

#[test]
fn a_script_in_the_place_of_a_program_is_refused() {
    let plugind = Plugind::new();
    let bundle = Bundle::hostile().file("bin/hostile-plugin", b"#!/bin/sh\nexit 0\n", 0o755);
    refused(
        &plugind,
        &bundle,
        Kind::InvalidManifest,
        "is a script, and a bundle's program must be an ELF file",
    );
}

#[test]
fn a_program_for_another_architecture_is_refused() {
    let plugind = Plugind::new();
    let program = format!("{}/bin/hostile-plugin", Bundle::hostile().path());
    let bundle = Bundle::hostile();
    let mut elf =
        fs::read(format!("{}/bin/hostile-plugin", bundle.path())).unwrap_or_else(|_| panic!("{program}"));
    // e_machine: AArch64, or x86-64 there.
    elf[18] = if cfg!(target_arch = "x86_64") { 183 } else { 62 };
    let bundle = bundle.file("bin/hostile-plugin", &elf, 0o755);
    refused(&plugind, &bundle, Kind::InvalidManifest, "is built for another architecture");
    let bundle = Bundle::hostile().file("bin/hostile-plugin", b"MZ\x90\0", 0o755);
    refused(&plugind, &bundle, Kind::InvalidManifest, "is not an ELF file");
    let bundle = Bundle::hostile().file("bin/hostile-plugin", b"", 0o755);
    refused(&plugind, &bundle, Kind::InvalidManifest, "is not an ELF file");
}

#[test]
fn a_bundle_without_its_program_or_manifest_is_refused() {
    let plugind = Plugind::new();
    let bundle = Bundle::hostile();
    fs::remove_file(format!("{}/bin/hostile-plugin", bundle.path())).unwrap();
    refused(&plugind, &bundle, Kind::InvalidManifest, "bin/hostile-plugin");
    let bundle = Bundle::hostile();
    fs::remove_file(format!("{}/plugin.json", bundle.path())).unwrap();
    refused(&plugind, &bundle, Kind::InvalidManifest, "plugin.json");
    let shell = fs::read("/bin/sh").unwrap();
    let bundle = Bundle::hostile().file("bin/hostile-plugin", &shell, 0o755);
    refused(&plugind, &bundle, Kind::InvalidManifest, "is linked dynamically");
    plugind.ctl(&["install", "/no/such/folder"]).fails(Kind::InvalidArguments);
}

#[test]
fn another_bundle_of_an_installed_name_leaves_the_first_as_it_is() {
    let plugind = Plugind::new();
    let bundle = Bundle::hostile();
    plugind.ctl(&["install", "--enable", bundle.path()]).success();
    let digest = plugind.status(bundle.name())["digest"].clone();
    let bundle = bundle.file("more", b"more", 0o644);
    let error = plugind.ctl(&["install", bundle.path()]).fails(Kind::Conflict);
    assert!(error.message.contains("is installed already"), "{error:?}");
    assert_eq!(plugind.status(bundle.name())["digest"], digest);
    assert_eq!(plugind.call(&bundle, "echo", &json!(1)).json(), 1);
    plugind.ctl(&["remove", bundle.name()]).success();
    plugind.unharmed();
}
