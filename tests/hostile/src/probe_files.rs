//! Probes of files, and of what `/proc` shows.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::commands::{flag, number, text};
use crate::probe::Found;

/// The argument with which this program says `ok` and leaves, for `exec-path`.
pub(crate) const SAY_OK: &str = "--say-ok";

/// Runs the probe if it is one of this file's.
pub(crate) fn run(what: &str, arguments: &Value) -> Result<Option<Found>, String> {
    Ok(Some(match what {
        "read-path" => read_path(text(arguments, "path")?),
        "write-path" => write_path(text(arguments, "path")?),
        "create-dir" => fs::create_dir(text(arguments, "path")?).map(|()| Value::Null),
        "remove-path" => remove_path(text(arguments, "path")?),
        "list-dir" => list_dir(text(arguments, "path")?),
        "fill" => fill(text(arguments, "path")?, number(arguments, "bytes")?),
        "exec-path" => exec_path(text(arguments, "path")?, flag(arguments, "copy", true)),
        "proc-pids" => proc_pids(),
        "environ" => Ok(environ()),
        "fds" => fds(),
        "status" => status(),
        "limits" => fs::read_to_string("/proc/self/limits").map(Value::from),
        _ => return Ok(None),
    }))
}

fn read_path(path: &str) -> Found {
    let mut bytes = Vec::new();
    File::open(path)?.take(4096).read_to_end(&mut bytes)?;
    Ok(json!(String::from_utf8_lossy(&bytes)))
}

fn write_path(path: &str) -> Found {
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    file.write_all(b"hostile was here\n")?;
    Ok(Value::Null)
}

fn remove_path(path: &str) -> Found {
    let is_folder = fs::symlink_metadata(path)?.is_dir();
    let removed = if is_folder { fs::remove_dir(path) } else { fs::remove_file(path) };
    removed.map(|()| Value::Null)
}

fn list_dir(path: &str) -> Found {
    let names = fs::read_dir(path)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<std::collections::BTreeSet<_>>>()?;
    Ok(json!(names))
}

fn fill(path: &str, bytes: u64) -> Found {
    let mut file = File::create(path)?;
    let block = vec![0_u8; 64 * 1024];
    let mut written = 0;
    while written < bytes {
        let wanted = usize::try_from(bytes - written).unwrap_or(usize::MAX).min(block.len());
        written += file.write(&block[..wanted])? as u64;
    }
    Ok(json!(written))
}

fn exec_path(path: &str, copy: bool) -> Found {
    if copy {
        fs::copy("/proc/self/exe", path)?;
        fs::set_permissions(path, Permissions::from_mode(0o755))?;
    }
    // A bare name would be looked for in PATH.
    let output = Command::new(Path::new(".").join(path)).arg(SAY_OK).output()?;
    Ok(json!({"code": output.status.code(), "stdout": String::from_utf8_lossy(&output.stdout)}))
}

fn proc_pids() -> Found {
    let mut pids = BTreeMap::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.parse::<u32>().is_ok() {
            // It may have ended since.
            let comm = fs::read_to_string(format!("/proc/{name}/comm")).unwrap_or_default();
            pids.insert(name, comm.trim_end().to_owned());
        }
    }
    Ok(json!(pids))
}

fn environ() -> Value {
    let variables: BTreeMap<String, String> = std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .collect();
    json!(variables)
}

fn fds() -> Found {
    let mut open = BTreeMap::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        let target = fs::read_link(entry.path())?.to_string_lossy().into_owned();
        // The descriptor that lists the folder is this probe's own.
        if !(target.starts_with("/proc/") && target.ends_with("/fd")) {
            open.insert(entry.file_name().to_string_lossy().into_owned(), target);
        }
    }
    Ok(json!(open))
}

fn status() -> Found {
    const FIELDS: [&str; 13] = [
        "Uid",
        "Gid",
        "Groups",
        "NSpid",
        "CapInh",
        "CapPrm",
        "CapEff",
        "CapBnd",
        "CapAmb",
        "NoNewPrivs",
        "Seccomp",
        "Seccomp_filters",
        "Threads",
    ];
    let text = fs::read_to_string("/proc/self/status")?;
    let fields: BTreeMap<&str, &str> = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name, value.trim()))
        .filter(|(name, _)| FIELDS.contains(name))
        .collect();
    Ok(json!(fields))
}
