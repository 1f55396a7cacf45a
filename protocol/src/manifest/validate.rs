//! The manifest's rules beyond its shape; the first that is broken is reported.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::RangeInclusive;

use super::{
    COMMANDS_MAX, Command, Lifecycle, MOUNTS_MAX, Manifest, ManifestError, Network, Permissions, Protocol,
    Resources, Risk, Runtime, TIMEOUT_MAX_MS, command_schema, format_size,
};
use crate::digest::check_path;
use crate::name::Name;
use crate::permission::Access;
use crate::text::unfit;

/// The most kinds of contribution.
pub(super) const KINDS_MAX: usize = 64;
const CONTRIBUTIONS_MAX: usize = 256;
pub(super) const LIST_MAX: usize = 64;
pub(super) const ARGUMENTS_MAX: usize = 64;
pub(super) const ARGUMENT_LENGTH_MAX: usize = 4096;
pub(super) const VERSION_LENGTH_MAX: usize = 64;
pub(super) const DESCRIPTION_MAX: usize = 1024;
pub(super) const COMMAND_DESCRIPTION_MAX: usize = 4096;

/// The regular expression that semver.org suggests.
pub(super) const SEMVER: &str = r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?$";

type Checked = Result<(), ManifestError>;

pub(super) fn check(manifest: &Manifest) -> Checked {
    check_identity(manifest)?;
    check_program(manifest)?;
    check_permissions(&manifest.permissions)?;
    check_commands(manifest)?;
    check_contributions(manifest)?;
    check_resources(&manifest.resources)?;
    check_lifecycle(&manifest.lifecycle)
}

fn check_identity(manifest: &Manifest) -> Checked {
    named("name", Name::Plugin, &manifest.name)?;
    if manifest.version.len() > VERSION_LENGTH_MAX || !is_semver(&manifest.version) {
        return refuse("version", "is not a SemVer version of up to 64 bytes", "write e.g. \"1.0.0\"");
    }
    described("description", &manifest.description, DESCRIPTION_MAX, unfit)
}

fn check_program(manifest: &Manifest) -> Checked {
    if manifest.is_declarative() {
        return check_declarative(manifest);
    }
    at_most("exec", "arguments", manifest.exec.len(), ARGUMENTS_MAX)?;
    for (index, argument) in manifest.exec.iter().enumerate() {
        if argument.len() > ARGUMENT_LENGTH_MAX || argument.contains('\0') {
            return refuse(
                format!("exec[{index}]"),
                "is longer than 4096 bytes or contains a NUL",
                "put long texts into a file of the bundle",
            );
        }
    }
    let Some(interpreter) = manifest.interpreter() else {
        return bundle_file("exec[0]", &manifest.exec[0]);
    };
    if !interpreter.starts_with("/usr/") || check_path(&interpreter[1..]).is_err() {
        return refuse(
            "exec[0]",
            "is absolute and not a plain path below /usr",
            "name a file of the bundle, or an interpreter as it lies below /usr",
        );
    }
    if manifest.runtime == Runtime::Static {
        return refuse(
            "exec[0]",
            "is an interpreter, and the runtime \"static\" has no /usr",
            "write `\"runtime\": \"system\"`",
        );
    }
    match manifest.exec.get(1) {
        Some(script) => bundle_file("exec[1]", script),
        None => refuse(
            "exec",
            "names an interpreter and no script",
            "name a script of the bundle as the second element",
        ),
    }
}

fn check_declarative(manifest: &Manifest) -> Checked {
    let hint = "name the plugin's program in `exec`";
    if !manifest.commands.is_empty() {
        return refuse("commands", "needs a program, and there is no `exec`", hint);
    }
    if !manifest.requested().is_empty() {
        return refuse("permissions", "needs a program, and there is no `exec`", hint);
    }
    if manifest.protocol == Protocol::Mcp {
        return refuse("protocol", "is \"mcp\", and there is no `exec`", hint);
    }
    Ok(())
}

/// A first dash would make an interpreter take the file's name for an option.
fn bundle_file(path: &str, file: &str) -> Checked {
    if file.starts_with('-') {
        return refuse(path, "begins with `-`", "name a file of the bundle there");
    }
    check_path(file).map_err(|error| {
        let cause = format!("is not a file of the bundle: {error}");
        ManifestError::new(path, cause, "write its path relative to plugin.json, e.g. \"bin/x\"")
    })
}

fn check_permissions(permissions: &Permissions) -> Checked {
    if let Some(Network::Hosts(hosts)) = &permissions.network {
        if hosts.is_empty() {
            return refuse("permissions.network.hosts", "is empty", "leave `network` out for no network");
        }
        names("permissions.network.hosts", Name::Host, hosts)?;
    }
    at_most("permissions.mounts", "mounts", permissions.mounts.len(), MOUNTS_MAX)?;
    let mut roots = BTreeSet::new();
    for (index, mount) in permissions.mounts.iter().enumerate() {
        let path = format!("permissions.mounts[{index}].root");
        named(&path, Name::Root, &mount.root)?;
        once(&path, &mut roots, &mount.root)?;
    }
    names("permissions.host", Name::Service, &permissions.host)?;
    names("permissions.secrets", Name::Secret, &permissions.secrets)?;
    names("permissions.env", Name::Env, &permissions.env)
}

fn check_commands(manifest: &Manifest) -> Checked {
    at_most("commands", "commands", manifest.commands.len(), COMMANDS_MAX)?;
    let writable = manifest.permissions.mounts.iter().any(|mount| mount.access == Access::Write);
    let mut seen = BTreeSet::new();
    for (index, command) in manifest.commands.iter().enumerate() {
        let path = format!("commands[{index}]");
        check_command(&path, command)?;
        once(&format!("{path}.name"), &mut seen, &command.name)?;
        if writable && command.risk == Risk::ReadOnly {
            return refuse(
                format!("{path}.risk"),
                "is \"read-only\", and the plugin asks for a writable mount",
                "write \"mutating\" or \"destructive\", or ask for the mount with `\"access\": \"read\"`",
            );
        }
    }
    Ok(())
}

fn check_command(path: &str, command: &Command) -> Checked {
    named(&format!("{path}.name"), Name::Command, &command.name)?;
    described(&format!("{path}.description"), &command.description, COMMAND_DESCRIPTION_MAX, |character| {
        unfit(character) && character != '\n'
    })?;
    within(&format!("{path}.timeout_ms"), command.timeout_ms, &(1..=TIMEOUT_MAX_MS), |limit| {
        limit.to_string()
    })?;
    for (field, schema) in
        [("input_schema", &command.input_schema), ("output_schema", &command.output_schema)]
    {
        command_schema::check(schema).map_err(|fault| {
            ManifestError::new(format!("{path}.{field}{}", fault.pointer), fault.cause, fault.hint)
        })?;
    }
    Ok(())
}

fn check_contributions(manifest: &Manifest) -> Checked {
    at_most("contributes", "kinds", manifest.contributes.len(), KINDS_MAX)?;
    let count = manifest.contributes.values().map(Vec::len).sum();
    at_most("contributes", "descriptors", count, CONTRIBUTIONS_MAX)?;
    for (kind, descriptors) in &manifest.contributes {
        named("contributes", Name::Contribution, kind)?;
        if let Some(index) = descriptors.iter().position(|descriptor| !descriptor.is_object()) {
            let path = format!("contributes.{kind}[{index}]");
            return refuse(path, "is not a JSON object", "describe each contribution by an object");
        }
    }
    Ok(())
}

fn check_resources(resources: &Resources) -> Checked {
    let plain = |limit: u32| limit.to_string();
    let Resources { memory_max, cpu_quota, tasks_max, tmp_size, frame_max, in_flight } = *resources;
    within("resources.memory_max", memory_max, &Resources::MEMORY, format_size)?;
    within("resources.cpu_quota", cpu_quota, &Resources::CPU, |percent| format!("{percent}%"))?;
    within("resources.tasks_max", tasks_max, &Resources::TASKS, plain)?;
    within("resources.tmp_size", tmp_size, &Resources::TMP, format_size)?;
    within("resources.frame_max", frame_max, &Resources::FRAME, format_size)?;
    within("resources.in_flight", in_flight, &Resources::IN_FLIGHT, plain)
}

fn check_lifecycle(lifecycle: &Lifecycle) -> Checked {
    let plain = |limit: u32| limit.to_string();
    within("lifecycle.idle_timeout_s", lifecycle.idle_timeout_s, &Lifecycle::IDLE_TIMEOUT, plain)?;
    within("lifecycle.instances", lifecycle.instances, &Lifecycle::INSTANCES, plain)
}

fn named(path: &str, kind: Name, text: &str) -> Checked {
    kind.check(text).map_err(|error| ManifestError::new(path, format!("is wrong: {error}"), kind.rule()))
}

fn names(path: &str, kind: Name, list: &[String]) -> Checked {
    at_most(path, "names", list.len(), LIST_MAX)?;
    let mut seen = BTreeSet::new();
    for (index, text) in list.iter().enumerate() {
        let path = format!("{path}[{index}]");
        named(&path, kind, text)?;
        once(&path, &mut seen, text)?;
    }
    Ok(())
}

fn once<'a>(path: &str, seen: &mut BTreeSet<&'a str>, text: &'a str) -> Checked {
    if seen.insert(text) {
        Ok(())
    } else {
        refuse(path, format!("is `{text}`, which stands there already"), "name each of them once")
    }
}

fn at_most(path: &str, what: &str, count: usize, most: usize) -> Checked {
    if count > most {
        refuse(path, format!("holds {count} {what}"), format!("at most {most} are allowed"))
    } else {
        Ok(())
    }
}

fn within<T: PartialOrd + Copy + Display>(
    path: &str,
    value: T,
    range: &RangeInclusive<T>,
    show: impl Fn(T) -> String,
) -> Checked {
    if range.contains(&value) {
        return Ok(());
    }
    let (least, most) = (show(*range.start()), show(*range.end()));
    refuse(path, format!("is {}", show(value)), format!("it may be {least} to {most}"))
}

fn described(path: &str, text: &str, most: usize, refused: impl Fn(char) -> bool) -> Checked {
    if text.trim().is_empty() || text.chars().count() > most || text.chars().any(refused) {
        return refuse(
            path,
            format!("is empty, longer than {most} characters, or contains control or direction characters"),
            "describe it in a plain sentence",
        );
    }
    Ok(())
}

fn refuse(path: impl Into<String>, cause: impl Into<String>, hint: impl Into<String>) -> Checked {
    Err(ManifestError::new(path, cause, hint))
}

fn is_semver(text: &str) -> bool {
    let (text, build) = text.split_once('+').map_or((text, None), |(text, build)| (text, Some(build)));
    let (core, pre) = text.split_once('-').map_or((text, None), |(core, pre)| (core, Some(pre)));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let number = |part: &str| digits(part) && (part == "0" || !part.starts_with('0'));
    let word = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    core.split('.').count() == 3
        && core.split('.').all(number)
        && pre.is_none_or(|pre| pre.split('.').all(|part| word(part) && (!digits(part) || number(part))))
        && build.is_none_or(|build| build.split('.').all(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_semver() {
        for text in ["0.0.0", "1.2.3", "1.0.0-alpha.1", "1.0.0-0a.x-y+build.007", "1.0.0+a", "10.20.30-rc-1"]
        {
            assert!(is_semver(text), "{text}");
        }
        for text in [
            "",
            "1",
            "1.2",
            "1.2.3.4",
            "01.2.3",
            "v1.2.3",
            "1.2.3-",
            "1.2.3-01",
            "1.2.3+",
            "1.2.3-a..b",
            "1.2.x",
            " 1.2.3",
        ] {
            assert!(!is_semver(text), "{text}");
        }
    }
}
