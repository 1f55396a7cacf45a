use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// The example of the design, whose commands may be read-only because its mount is.
fn example() -> Value {
    json!({
        "manifest": 1, "name": "textstats", "version": "1.0.0", "description": "Counts",
        "protocol": "plugind/1", "exec": ["bin/textstats"], "runtime": "static",
        "commands": [{
            "name": "count", "description": "Counts a text", "input_schema": {}, "output_schema": {},
            "risk": "read-only", "idempotent": true, "timeout_ms": 30000, "dry_run": false,
        }],
        "contributes": { "panel": [{}] },
        "permissions": {
            "network": { "hosts": ["api.example.org"] }, "mounts": [{ "root": "docs", "access": "read" }],
            "host": ["kv", "notify"], "secrets": ["token"], "env": ["TZ"],
        },
        "resources": {
            "memory_max": "256M", "cpu_quota": "50%", "tasks_max": 32, "tmp_size": "64M", "frame_max": "1M",
            "in_flight": 32,
        },
        "lifecycle": { "activation": "on-demand", "idle_timeout_s": 300, "restart": "on-failure", "instances": 1 },
    })
}

fn smallest() -> Value {
    json!({ "manifest": 1, "name": "a", "version": "0.1.0", "description": "A", "protocol": "plugind/1" })
}

fn parse(document: &Value) -> Result<Manifest, ManifestError> {
    Manifest::parse(document.to_string().as_bytes())
}

/// The example with one value replaced, or added, at a JSON pointer.
fn with(pointer: &str, value: Value) -> Value {
    let mut document = example();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    match document.pointer_mut(parent).unwrap() {
        Value::Object(map) => drop(map.insert(key.to_owned(), value)),
        Value::Array(items) => match key.parse::<usize>() {
            Ok(index) if index < items.len() => items[index] = value,
            _ => items.push(value),
        },
        other => panic!("{other}"),
    }
    document
}

fn refusal(document: &Value) -> ManifestError {
    parse(document).expect_err(&document.to_string())
}

#[test]
fn the_example_is_read() {
    let manifest = parse(&example()).unwrap();
    assert_eq!(manifest.resources.memory_max, 256 << 20);
    assert_eq!(manifest.resources.cpu_quota, 50);
    assert_eq!(manifest.command("count").unwrap().risk, Risk::ReadOnly);
    assert_eq!(manifest.command("Count"), None);
    assert_eq!(manifest.entry(), Some("bin/textstats"));
    assert_eq!(manifest.commands_digest, crate::digest::commands(example().to_string().as_bytes()).unwrap());
    let requested: Vec<String> = manifest.requested().iter().map(ToString::to_string).collect();
    assert_eq!(
        requested,
        ["network:api.example.org", "mount:docs:read", "host:kv", "host:notify", "secret:token", "env:TZ"]
    );
}

#[test]
fn the_examples_of_the_project_are_read() {
    let folders = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples")).unwrap();
    let mut read = 0;
    for folder in folders {
        let path = folder.unwrap().path().join("plugin.json");
        if let Ok(bytes) = std::fs::read(&path) {
            Manifest::parse(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            read += 1;
        }
    }
    assert!(read > 0);
}

#[test]
fn what_is_left_out_has_defaults() {
    let manifest = parse(&smallest()).unwrap();
    assert!(manifest.is_declarative() && manifest.requested().is_empty());
    assert_eq!(manifest.resources, Resources::default());
    assert_eq!(manifest.lifecycle, Lifecycle::default());
    let mut document = smallest();
    document["exec"] = json!(["x"]);
    document["commands"] = json!([{ "name": "a", "description": "A", "risk": "mutating" }]);
    document["permissions"] = json!({ "network": { "mode": "host" } });
    document["resources"] = json!({ "memory_max": "1G" });
    let manifest = parse(&document).unwrap();
    let command = &manifest.commands[0];
    assert_eq!((command.timeout_ms, command.idempotent, command.dry_run), (30_000, false, false));
    assert_eq!((&command.input_schema, &command.output_schema), (&json!({}), &json!({})));
    assert_eq!(manifest.requested(), [Permission::NetworkHost].into());
    assert_eq!(manifest.resources, Resources { memory_max: 1 << 30, ..Resources::default() });
    assert_eq!(manifest.runtime, Runtime::Static);
}

#[test]
fn a_manifest_survives_its_own_json() {
    for document in [example(), with("/permissions/network", json!({ "mode": "host" })), smallest()] {
        let manifest = parse(&document).unwrap();
        let again = Manifest::parse(&serde_json::to_vec(&manifest).unwrap()).unwrap();
        let digest = again.commands_digest.clone();
        assert_eq!(again, Manifest { commands_digest: digest, ..manifest });
    }
}

#[test]
fn unknown_fields_are_named_with_those_that_are_allowed() {
    for (pointer, path, allowed) in [
        ("/entry", "entry", "`exec`"),
        ("/commands_digest", "commands_digest", "`commands`"),
        ("/commands/0/timeout", "commands[0].timeout", "`timeout_ms`"),
        ("/permissions/net", "permissions.net", "`network`"),
        ("/permissions/network/host", "permissions.network.host", "`hosts` or `mode`"),
        ("/permissions/mounts/0/mode", "permissions.mounts[0].mode", "`root` or `access`"),
        ("/resources/memory", "resources.memory", "`memory_max`"),
        ("/lifecycle/idle", "lifecycle.idle", "`idle_timeout_s`"),
    ] {
        let error = refusal(&with(pointer, json!(1)));
        assert_eq!(error.path, path);
        assert!(error.cause.contains("unknown field"), "{error}");
        assert!(error.hint.starts_with("allowed here: `") && error.hint.contains(allowed), "{error:?}");
        assert!(!error.hint.contains("line"), "{error:?}");
    }
}

#[test]
fn unknown_words_are_named_with_those_that_are_allowed() {
    for (pointer, allowed) in [
        ("/protocol", "`plugind/1`"),
        ("/runtime", "`static`"),
        ("/commands/0/risk", "`read-only`"),
        ("/lifecycle/activation", "`on-demand`"),
        ("/lifecycle/restart", "`on-failure`"),
        ("/permissions/mounts/0/access", "`read`"),
    ] {
        let error = refusal(&with(pointer, json!("nonsense")));
        assert!(error.cause.contains("nonsense") && error.hint.contains(allowed), "{error:?}");
        assert!(!error.path.is_empty());
    }
}

#[test]
fn a_key_that_stands_twice_is_refused_wherever_it_is() {
    let twice = |text: &str, key: &str, doubled: &str| {
        let text = text.replacen(&format!("\"{key}\":"), &format!("{doubled},\"{key}\":"), 1);
        let error = Manifest::parse(text.as_bytes()).unwrap_err();
        assert!(error.cause.contains("stands twice"), "{text}: {error}");
    };
    let text = with("/commands/0/input_schema", json!({ "properties": { "deep": {} } })).to_string();
    twice(&text, "name", r#""name":"b""#);
    twice(&text, "risk", r#""risk":"mutating""#);
    twice(&text, "deep", r#""d\u0065ep":{}"#);
    twice(&text, "panel", r#""panel":[]"#);
    twice(&text, "memory_max", r#""memory_max":"1G""#);
}

#[test]
fn another_version_is_named_before_its_unknown_fields() {
    let mut document = with("/manifest", json!(2));
    document["new"] = json!(1);
    let error = refusal(&document);
    assert_eq!(error.path, "manifest");
    assert!(error.cause.contains("reads version 1"));
    refusal(&with("/manifest", json!("1")));
}

/// Documents that break one rule each: where, how, and the field that the error has to name.
fn broken_rules() -> Vec<(&'static str, Value, &'static str)> {
    let long_list = |count: usize| (0..count).map(|number| json!(format!("a{number}"))).collect::<Value>();
    let command = example()["commands"][0].clone();
    let commands: Value = (0..65)
        .map(|number| {
            let mut command = command.clone();
            command["name"] = json!(format!("c{number}"));
            command
        })
        .collect();
    let mounts: Value =
        (0..17).map(|number| json!({ "root": format!("r{number}"), "access": "read" })).collect();
    vec![
        ("/name", json!("Text"), "name"),
        ("/name", json!("a-"), "name"),
        ("/version", json!("1.0"), "version"),
        ("/description", json!(" "), "description"),
        ("/description", json!("a\nb"), "description"),
        ("/description", json!("a\u{202e}b"), "description"),
        ("/description", json!("a".repeat(1025)), "description"),
        ("/commands", commands, "commands"),
        ("/commands/1", command.clone(), "commands[1].name"),
        ("/commands/0/name", json!("Count"), "commands[0].name"),
        ("/commands/0/description", json!("\u{1b}[2J"), "commands[0].description"),
        ("/commands/0/timeout_ms", json!(0), "commands[0].timeout_ms"),
        ("/commands/0/timeout_ms", json!(300_001), "commands[0].timeout_ms"),
        ("/commands/0/timeout_ms", json!(-1), "commands[0].timeout_ms"),
        ("/commands/0/input_schema", json!({ "$ref": "http://a" }), "commands[0].input_schema/$ref"),
        ("/commands/0/output_schema", json!({ "not": { "$id": "a" } }), "commands[0].output_schema/not"),
        ("/commands/0/output_schema", json!(null), "commands[0].output_schema"),
        ("/contributes/Panel", json!([]), "contributes"),
        ("/contributes/panel", json!([{}, 1]), "contributes.panel[1]"),
        ("/contributes/panel", json!(vec![json!({}); 257]), "contributes"),
        ("/permissions/network", json!(null), "permissions.network"),
        ("/permissions/network", json!({}), "permissions.network"),
        ("/permissions/network", json!({ "hosts": [] }), "permissions.network.hosts"),
        ("/permissions/network", json!({ "hosts": ["a.b"], "mode": "host" }), "permissions.network"),
        ("/permissions/network", json!({ "hosts": ["host"] }), "permissions.network.hosts[0]"),
        ("/permissions/network", json!({ "hosts": ["a.b", "a.b"] }), "permissions.network.hosts[1]"),
        ("/permissions/mounts", mounts, "permissions.mounts"),
        ("/permissions/mounts/0/root", json!("../x"), "permissions.mounts[0].root"),
        ("/permissions/mounts/1", json!({ "root": "docs", "access": "write" }), "permissions.mounts[1].root"),
        ("/permissions/mounts/1", json!({ "root": "out", "access": "write" }), "commands[0].risk"),
        ("/permissions/host", json!(["KV"]), "permissions.host[0]"),
        ("/permissions/host", long_list(65), "permissions.host"),
        ("/permissions/secrets", json!(["token", "token"]), "permissions.secrets[1]"),
        ("/permissions/env", json!(["TZ", "PATH"]), "permissions.env[1]"),
        ("/resources/memory_max", json!("1M"), "resources.memory_max"),
        ("/resources/memory_max", json!(1024), "resources.memory_max"),
        ("/resources/memory_max", json!("1X"), "resources.memory_max"),
        ("/resources/cpu_quota", json!("0%"), "resources.cpu_quota"),
        ("/resources/cpu_quota", json!("50"), "resources.cpu_quota"),
        ("/resources/tasks_max", json!(7), "resources.tasks_max"),
        ("/resources/tmp_size", json!("0"), "resources.tmp_size"),
        ("/resources/frame_max", json!("63K"), "resources.frame_max"),
        ("/resources/frame_max", json!("17M"), "resources.frame_max"),
        ("/resources/in_flight", json!(0), "resources.in_flight"),
        ("/resources/in_flight", json!(1025), "resources.in_flight"),
        ("/lifecycle/idle_timeout_s", json!(86_401), "lifecycle.idle_timeout_s"),
        ("/lifecycle/instances", json!(17), "lifecycle.instances"),
    ]
}

/// The same for the test of the schema.
pub(crate) fn broken() -> Vec<(&'static str, Value)> {
    broken_rules().into_iter().map(|(pointer, value, _)| (pointer, with(pointer, value))).collect()
}

/// Documents that are read.
pub(crate) fn accepted() -> Vec<Value> {
    vec![
        example(),
        smallest(),
        with("/permissions/network", json!({ "mode": "host" })),
        with("/version", json!("1.0.0-rc.1+build.5")),
        with("/commands/0/description", json!("Counts.\nAll of it.")),
        with("/commands/0/input_schema", json!(true)),
        with("/resources", json!({ "memory_max": "1073741824", "cpu_quota": "400%", "tasks_max": 8 })),
        with("/lifecycle", json!({ "activation": "always", "idle_timeout_s": 0, "restart": "no" })),
    ]
}

#[test]
fn each_rule_names_the_field_that_breaks_it() {
    for (pointer, value, path) in broken_rules() {
        let error = refusal(&with(pointer, value.clone()));
        assert_eq!(error.path, path, "{pointer} = {value}: {error}");
        assert!(!error.hint.is_empty() && !error.cause.is_empty());
    }
    for document in accepted() {
        parse(&document).unwrap();
    }
}

#[test]
fn required_fields_are_required() {
    for field in ["manifest", "name", "version", "description", "protocol"] {
        let mut document = smallest();
        document.as_object_mut().unwrap().remove(field);
        assert!(refusal(&document).cause.contains(&format!("missing field `{field}`")));
    }
    for field in ["name", "description", "risk"] {
        let mut document = example();
        document["commands"][0].as_object_mut().unwrap().remove(field);
        let error = refusal(&document);
        assert_eq!(error.path, "commands[0]");
        assert!(error.cause.contains(&format!("missing field `{field}`")), "{error}");
    }
}

#[test]
fn the_program_lies_in_the_bundle_or_is_an_interpreter_of_usr() {
    let of = |runtime: &str, exec: Value| {
        let mut document = with("/exec", exec);
        document["runtime"] = json!(runtime);
        parse(&document).map_err(|error| error.path)
    };
    for exec in [json!(["x"]), json!(["bin/x", "--flag", "", "-c"])] {
        assert!(of("static", exec).is_ok());
    }
    let script = of("system", json!(["/usr/bin/python3", "main.py", "-v"])).unwrap();
    assert_eq!((script.interpreter(), script.entry()), (Some("/usr/bin/python3"), Some("main.py")));
    for (runtime, exec, path) in [
        ("system", json!([""]), "exec[0]"),
        ("system", json!(["../x"]), "exec[0]"),
        ("system", json!(["./x"]), "exec[0]"),
        ("system", json!(["bin//x"]), "exec[0]"),
        ("system", json!(["-x"]), "exec[0]"),
        ("system", json!(["/bin/sh", "a"]), "exec[0]"),
        ("system", json!(["/usr", "a"]), "exec[0]"),
        ("system", json!(["/usr/../bin/sh", "a"]), "exec[0]"),
        ("system", json!(["/usr/bin/python3"]), "exec"),
        ("system", json!(["/usr/bin/python3", "-c", "1"]), "exec[1]"),
        ("system", json!(["/usr/bin/python3", "-cimport os"]), "exec[1]"),
        ("system", json!(["/usr/bin/python3", "/plugin/main.py"]), "exec[1]"),
        ("static", json!(["/usr/bin/python3", "main.py"]), "exec[0]"),
        ("static", json!(["x", "a\0b"]), "exec[1]"),
        ("static", json!(["x", "a".repeat(4097)]), "exec[1]"),
        ("static", json!(vec!["x"; 65]), "exec"),
    ] {
        assert_eq!(of(runtime, exec.clone()).unwrap_err(), path, "{exec}");
    }
}

#[test]
fn without_a_program_there_is_nothing_to_call_or_to_grant() {
    let declarative = |field: &str, value: Value| {
        let mut document = smallest();
        document[field] = value;
        parse(&document).map_err(|error| error.path)
    };
    assert!(declarative("contributes", json!({ "theme": [{ "id": "dark" }] })).is_ok());
    assert_eq!(declarative("commands", example()["commands"].clone()).unwrap_err(), "commands");
    assert_eq!(declarative("permissions", json!({ "env": ["TZ"] })).unwrap_err(), "permissions");
    assert_eq!(declarative("protocol", json!("mcp")).unwrap_err(), "protocol");
}

#[test]
fn bytes_that_are_no_document_are_named() {
    let large = format!("{{\"name\":\"{}\"}}", "a".repeat(MANIFEST_MAX));
    for (bytes, cause) in [
        (b"".as_slice(), "EOF"),
        (b"[]", "not a JSON object"),
        (b"7", "not a JSON object"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b"{\"name\":\"\xff\"}", "not UTF-8: byte 9"),
        (b"{\"name\":\"a\",}", "trailing comma"),
        (b"{} {}", "trailing characters"),
        (b"{\"name\":\"a\0\"}", "control character"),
        (large.as_bytes(), "larger than"),
        ("[".repeat(200_000).as_bytes(), "recursion limit"),
        (b"{\"name\":12345678901234567890}", "beyond"),
    ] {
        let error = Manifest::parse(bytes).unwrap_err();
        assert!(error.cause.contains(cause), "{error}");
    }
}

#[test]
fn errors_become_ours_with_path_and_hint() {
    let error = Error::from(refusal(&with("/resources/memory_max", json!("1M"))));
    assert_eq!(error.kind, Kind::InvalidManifest);
    assert_eq!(error.message, "plugin.json: resources.memory_max is 1M");
    assert_eq!(error.hint, "it may be 16M to 1T");
    assert_eq!(error.details, json!({ "path": "resources.memory_max" }));
}

#[test]
fn foreign_text_in_errors_is_bounded() {
    let error = refusal(&with(&format!("/{}", "\u{1b}x".repeat(50_000)), json!(1)));
    assert!(error.to_string().len() < 8_000 && !error.to_string().contains('\u{1b}'), "{error}");
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Manifest::parse(&bytes);
    }

    #[test]
    fn any_byte_changed_is_read_or_refused(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = example().to_string().into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(manifest) = Manifest::parse(&bytes) {
            prop_assert_eq!(manifest.commands_digest, crate::digest::commands(&bytes).unwrap());
        }
    }
}
