//! The gate: nothing runs before the byte, and the program gets what the gate had.
#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod common;

use std::io::Write;
use std::process::{Command, Output, Stdio};

use common::SANDBOX;

/// A gate on descriptor 3 that is sent `byte`, before a program that prints the state it was started with.
fn gate(bytes: &[u8], program: &[&str]) -> Output {
    let mut child = Command::new("/bin/sh")
        .args(["-c", "exec \"$@\" 3<&0 0</dev/null", "sh", SANDBOX, "gate", "--gate", "3", "--"])
        .args(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn the_byte_opens_it() {
    let output = gate(b"1", &["/bin/echo", "ran", "--gate"]);
    assert!(output.status.success());
    assert_eq!(output.stdout, b"ran --gate\n");
}

#[test]
fn anything_else_keeps_it_shut() {
    for bytes in [&b""[..], b"0", b"01", b"\n"] {
        let output = gate(bytes, &["/bin/echo", "ran"]);
        assert_eq!(output.status.code(), Some(125));
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn its_own_descriptor_is_gone_and_others_stay() {
    let list = "exec 4</dev/null; exec \"$@\" 3<&0 0</dev/null";
    let mut child = Command::new("/bin/sh")
        .args(["-c", list, "sh", SANDBOX, "gate", "--gate", "3", "--"])
        .args([
            "/bin/sh",
            "-c",
            "for fd in 0 1 2 3 4 5; do test -e /proc/$$/fd/$fd && echo $fd; done; exit 0",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"1").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "0\n1\n2\n4\n");
}

#[test]
fn broken_pipes_end_the_program_as_usual() {
    let output = gate(b"1", &["/bin/grep", "SigIgn", "/proc/self/status"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let ignored = u64::from_str_radix(text.trim_start_matches("SigIgn:").trim(), 16).unwrap();
    // SIGPIPE is 13. Others are as whoever runs the tests left them.
    assert_eq!(ignored & (1 << 12), 0, "{text}");
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let output = gate(b"1", &["/nowhere/bwrap"]);
    assert_eq!(output.status.code(), Some(127));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said, "plugind-sandbox gate: cannot run /nowhere/bwrap: No such file or directory\n");
    assert_eq!(gate(b"1", &["/etc/passwd"]).status.code(), Some(126));
    let closed = Command::new(SANDBOX).args(["gate", "--gate", "77", "--", "/bin/true"]).output().unwrap();
    assert_eq!(closed.status.code(), Some(125));
}
