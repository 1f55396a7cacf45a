//! The command `probe` knocks at one thing and reports `{"ok": …, "errno": …, "value": …}`.
//!
//! `ok` says whether it worked. `errno` is the number of the error, or null where there was none, or none that the
//! kernel gave (a time-out). `value` is what was found, or the error's text. [`NAMES`] lists what can be probed.

use std::io;

use serde_json::{Value, json};

use crate::commands::text;
use crate::{probe_files, probe_kernel, probe_net};

/// The words that the argument `what` can be, with the further arguments of each.
pub const NAMES: &[(&str, &str)] = &[
    ("read-path", "path"),
    ("write-path", "path: appends a line, makes the file"),
    ("create-dir", "path"),
    ("remove-path", "path"),
    ("list-dir", "path"),
    ("fill", "path, bytes: writes zeroes; value is how many got there"),
    ("exec-path", "path, copy=true: copies this program there, executes it"),
    ("proc-pids", "value: pid to comm"),
    ("environ", "value: name to value"),
    ("fds", "value: number to target, of each open descriptor"),
    ("status", "value: the fields of /proc/self/status that tell of privilege"),
    ("limits", "value: the text of /proc/self/limits"),
    ("connect-tcp", "host, port"),
    ("bind-tcp", "host, port=0"),
    ("send-udp", "host, port"),
    ("connect-unix", "path"),
    ("connect-abstract", "name"),
    ("own-abstract", "name: listens there itself and connects"),
    ("socketpair", ""),
    ("socket-inet", ""),
    ("socket-netlink", ""),
    ("socket-packet", ""),
    ("socket-vsock", ""),
    ("socket-alg", ""),
    ("signals", "value: the signals blocked and ignored when the program was executed"),
    ("signal", "pid, signal=0"),
    ("ptrace", "value: errno of traceme and of attach"),
    ("threads", ""),
    ("jit", ""),
    ("clone3", ""),
    ("keyctl", ""),
    ("io-uring-setup", ""),
    ("userfaultfd", ""),
    ("bpf", ""),
    ("unshare-userns", ""),
    ("clone-userns", ""),
    ("mount", "path: mounts a tmpfs there for a moment"),
    ("fsopen", ""),
    ("x32", ""),
    ("tiocsti", ""),
    ("syscall", "name: one of the table, called with six arguments of -1"),
];

/// Probes what the arguments name. An error is one of the arguments.
pub fn run(arguments: &Value) -> Result<Value, String> {
    let what = text(arguments, "what")?;
    let found = match probe_files::run(what, arguments)? {
        Some(found) => Some(found),
        None => match probe_net::run(what, arguments)? {
            Some(found) => Some(found),
            None => probe_kernel::run(what, arguments)?,
        },
    };
    found.map(report).ok_or_else(|| format!("no probe `{what}`"))
}

/// Whether this process was made by the probe `exec-path`, which only wants to see that it runs.
#[must_use]
pub fn asked_to_say_ok() -> bool {
    std::env::args_os().nth(1).is_some_and(|argument| argument == probe_files::SAY_OK)
}

/// What a probe found.
pub(crate) type Found = Result<Value, io::Error>;

fn report(found: Found) -> Value {
    match found {
        Ok(value) => json!({"ok": true, "errno": null, "value": value}),
        Err(cause) => json!({"ok": false, "errno": cause.raw_os_error(), "value": cause.to_string()}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every name is taken by one of the three, with or without its arguments.
    #[test]
    fn every_name_is_known() {
        for (what, _) in NAMES {
            let arguments = json!({"what": what, "path": "/no/such/path", "host": "127.0.0.1", "port": 1, "bytes": 1,
                                   "copy": false, "name": "personality", "pid": std::process::id()});
            let report = run(&arguments).unwrap_or_else(|cause| panic!("{what}: {cause}"));
            assert!(report["ok"].is_boolean(), "{what}: {report}");
        }
        assert!(run(&json!({"what": "no-such-probe"})).is_err());
        assert!(run(&json!({"what": "read-path"})).is_err());
    }
}
