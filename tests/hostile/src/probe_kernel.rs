//! Probes of system calls.

use std::ffi::CString;
use std::io;
use std::thread;

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::commands::{number, text};
use crate::probe::Found;
use crate::sys::{self, Outcome};
use crate::syscalls;

/// Runs the probe if it is one of this file's.
pub(crate) fn run(what: &str, arguments: &Value) -> Result<Option<Found>, String> {
    Ok(Some(match what {
        "signals" => Ok(signals()),
        "signal" => signal(arguments)?,
        "ptrace" => ptrace(),
        "threads" => threads(),
        "jit" => worked(sys::map_writable_code()),
        "clone3" => worked(sys::clone3()),
        "keyctl" => worked(sys::keyctl()),
        "io-uring-setup" => worked(sys::io_uring_setup()),
        "userfaultfd" => worked(sys::userfaultfd()),
        "bpf" => worked(sys::bpf()),
        "unshare-userns" => worked(sys::unshare_new_user()),
        "clone-userns" => worked(sys::clone_new_user()),
        "mount" => worked(sys::mount_tmpfs(&path(arguments)?)),
        "fsopen" => worked(sys::fsopen()),
        "x32" => worked(sys::x32_getpid()),
        "tiocsti" => worked(sys::tiocsti()),
        "syscall" => {
            let name = text(arguments, "name")?;
            let number = syscalls::number(name).ok_or_else(|| format!("`{name}` is not in the table"))?;
            worked(sys::knock(number))
        }
        _ => return Ok(None),
    }))
}

/// The outcome of a call whose value tells nothing.
pub(crate) fn worked(outcome: Outcome) -> Found {
    outcome.map(|_| Value::Null).map_err(io::Error::from_raw_os_error)
}

fn path(arguments: &Value) -> Result<CString, String> {
    CString::new(text(arguments, "path")?).map_err(|cause| cause.to_string())
}

fn signals() -> Value {
    let (blocked, ignored) = sys::inherited_signals();
    json!({"blocked": blocked, "ignored": ignored})
}

fn signal(arguments: &Value) -> Result<Found, String> {
    let pid = i32::try_from(number(arguments, "pid")?).map_err(|cause| cause.to_string())?;
    let signal = match arguments["signal"].as_i64().unwrap_or(0) {
        0 => None,
        number => {
            let number = i32::try_from(number).map_err(|cause| cause.to_string())?;
            Some(Signal::try_from(number).map_err(|cause| cause.to_string())?)
        }
    };
    Ok(signal::kill(Pid::from_raw(pid), signal).map(|()| Value::Null).map_err(io::Error::from))
}

/// Works where either way of tracing does.
fn ptrace() -> Found {
    let (traceme, attach) = (sys::ptrace_traceme(), sys::ptrace_attach());
    match (traceme, attach) {
        (Err(errno), Err(_)) => Err(io::Error::from_raw_os_error(errno)),
        _ => Ok(json!({"traceme": traceme.err(), "attach": attach.err()})),
    }
}

fn threads() -> Found {
    let answer = thread::Builder::new().spawn(|| 6 * 7)?.join();
    answer.map(|value| json!(value)).map_err(|_| io::Error::other("the thread panicked"))
}
