//! The bounds of a manifest, as they are documented.

use std::collections::BTreeSet;

use plugind_protocol::digest::check_path;
use plugind_protocol::manifest::{
    COMMANDS_MAX, Command, Lifecycle, MOUNTS_MAX, Manifest, Network, Permissions, Resources, TIMEOUT_MAX_MS,
    command_schema,
};
use plugind_protocol::name::Name;

/// What a manifest that was read may hold.
pub(crate) fn hold(manifest: &Manifest) {
    assert_eq!(manifest.manifest, 1);
    Name::Plugin.check(&manifest.name).expect("a plugin's name");
    assert!(manifest.version.is_ascii() && manifest.version.len() <= 64);
    assert!(described(&manifest.description, 1024));
    assert!(manifest.commands_digest.len() == 64);
    program_holds(manifest);
    commands_hold(&manifest.commands);
    contributions_hold(manifest);
    permissions_hold(&manifest.permissions);
    resources_hold(&manifest.resources);
    assert!(Lifecycle::IDLE_TIMEOUT.contains(&manifest.lifecycle.idle_timeout_s));
    assert!(Lifecycle::INSTANCES.contains(&manifest.lifecycle.instances));
}

/// Nothing outside of the bundle is run, but for an interpreter below `/usr`.
fn program_holds(manifest: &Manifest) {
    assert!(manifest.exec.len() <= 64);
    assert!(manifest.exec.iter().all(|argument| argument.len() <= 4096 && !argument.contains('\0')));
    if let Some(interpreter) = manifest.interpreter() {
        assert!(interpreter.starts_with("/usr/") && !interpreter.contains("/../"), "{interpreter}");
    }
    match manifest.entry() {
        Some(entry) => {
            check_path(entry).expect("a file of the bundle");
            assert!(!entry.starts_with('-'));
        }
        None => assert!(manifest.is_declarative()),
    }
    assert!(!manifest.is_declarative() || manifest.commands.is_empty() && manifest.requested().is_empty());
}

fn commands_hold(commands: &[Command]) {
    assert!(commands.len() <= COMMANDS_MAX);
    each_once(commands.iter().map(|command| command.name.as_str()), Name::Command);
    for command in commands {
        assert!(described(&command.description.replace('\n', " "), 4096));
        assert!((1..=TIMEOUT_MAX_MS).contains(&command.timeout_ms));
        command_schema::check(&command.input_schema).expect("a bounded schema");
        command_schema::check(&command.output_schema).expect("a bounded schema");
    }
}

fn contributions_hold(manifest: &Manifest) {
    assert!(manifest.contributes.len() <= 64);
    assert!(manifest.contributes.values().map(Vec::len).sum::<usize>() <= 256);
    each_once(manifest.contributes.keys().map(String::as_str), Name::Contribution);
    assert!(manifest.contributes.values().flatten().all(serde_json::Value::is_object));
}

fn permissions_hold(permissions: &Permissions) {
    let Permissions { network, mounts, host, secrets, env } = permissions;
    if let Some(Network::Hosts(hosts)) = network {
        assert!(!hosts.is_empty() && hosts.len() <= 64);
        each_once(hosts.iter().map(String::as_str), Name::Host);
    }
    assert!(mounts.len() <= MOUNTS_MAX);
    each_once(mounts.iter().map(|mount| mount.root.as_str()), Name::Root);
    for (list, kind) in [(host, Name::Service), (secrets, Name::Secret), (env, Name::Env)] {
        assert!(list.len() <= 64);
        each_once(list.iter().map(String::as_str), kind);
    }
    for permission in permissions.requested() {
        assert_eq!(permission.to_string().parse(), Ok(permission));
    }
}

fn resources_hold(resources: &Resources) {
    let Resources { memory_max, cpu_quota, tasks_max, tmp_size, frame_max, in_flight } = resources;
    assert!(Resources::MEMORY.contains(memory_max));
    assert!(Resources::CPU.contains(cpu_quota));
    assert!(Resources::TASKS.contains(tasks_max));
    assert!(Resources::TMP.contains(tmp_size));
    assert!(Resources::FRAME.contains(frame_max));
    assert!(Resources::IN_FLIGHT.contains(in_flight));
}

fn each_once<'a>(names: impl Iterator<Item = &'a str>, kind: Name) {
    let mut seen = BTreeSet::new();
    for name in names {
        kind.check(name).expect("a name of its kind");
        assert!(seen.insert(name), "{name} stands there twice");
    }
}

/// Text for people: there is some, not too much, and nothing in it that a terminal would obey.
fn described(text: &str, most: usize) -> bool {
    !text.trim().is_empty() && text.chars().count() <= most && !text.chars().any(char::is_control)
}
