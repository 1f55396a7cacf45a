//! The plugin `sample`, and what a supervisor sends it.

use plugind_sdk::Plugin;
use serde_json::{Value, json};

/// The manifest of the plugin `sample` with these commands.
pub(crate) fn manifest(commands: &[&str]) -> Vec<u8> {
    let commands: Vec<Value> = commands
        .iter()
        .map(|name| json!({"name": name, "description": "For the test", "risk": "read-only"}))
        .collect();
    let manifest = json!({
        "manifest": 1, "name": "sample", "version": "1.2.3", "description": "For the test",
        "protocol": "plugind/1", "exec": ["bin/sample"], "runtime": "static", "commands": commands,
    });
    manifest.to_string().into_bytes()
}

/// The plugin `sample` with these commands declared, and none given.
pub(crate) fn plugin(commands: &[&str]) -> Plugin {
    Plugin::from_manifest(&manifest(commands)).unwrap()
}

/// The request that begins everything, with id 0.
pub(crate) fn initialize(commands: &[&str]) -> Value {
    let digest = plugind_protocol::digest::commands(&manifest(commands)).unwrap();
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocol": "plugind/1", "name": "sample", "version": "1.2.3", "bundle_digest": "sha256:0",
        "commands_digest": digest, "limits": {"frame_max": 1 << 20, "in_flight": 32}, "features": [],
    }})
}

/// The call of a command, as invocation `call-<id>`.
pub(crate) fn invoke(id: u64, command: &str, arguments: Value) -> Value {
    let mut request = json!({"jsonrpc": "2.0", "id": id, "method": "command/invoke", "params": {
        "command": command,
        "meta": {"invocation": format!("call-{id}"), "deadline_ms": 30_000, "caller": "tester", "dry_run": false,
                 "context": {"project": "x"}},
    }});
    request["params"]["arguments"] = arguments;
    request
}
