//! What this kernel offers, found out by forked children that really restrict themselves.

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::sys::wait::WaitStatus;
use serde_json::{Value, json};

use crate::{landlock, seccomp, sys};

pub(crate) fn run() -> Value {
    json!({
        "landlock": landlock(),
        "seccomp": works(|| seccomp::install().is_ok() && refuses()),
        "no_new_privs": works(|| prctl::set_no_new_privs().is_ok() && prctl::get_no_new_privs() == Ok(true)),
    })
}

fn landlock() -> Value {
    match landlock::probe(false) {
        Ok(support) => json!({"abi": support.abi, "not_handled": support.not_handled(false)}),
        Err(failure) => json!({"error": failure.message(), "errno": failure.errno()}),
    }
}

fn works(check: impl FnOnce() -> bool) -> bool {
    matches!(sys::in_child(|| u8::from(!check())), Ok(WaitStatus::Exited(_, 0)))
}

/// Asks for something that the kernel itself would answer otherwise, whoever asks.
fn refuses() -> bool {
    let asked = socketpair(AddressFamily::Inet, SockType::Stream, None, SockFlag::empty());
    asked.err() == Some(Errno::EPERM)
}
