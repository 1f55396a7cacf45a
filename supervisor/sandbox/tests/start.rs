//! How a start succeeds and how it fails: the report, the entry, and what the plugin's process is like.
#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod common;

use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use common::{PYTHON, SANDBOX, Scratch, enter, probe, with_answers};
use nix::libc;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, setsockopt, socketpair, sockopt};
use nix::sys::time::TimeVal;
use serde_json::{Value, json};

/// Lets any program of this machine be run; for tests of something else than paths.
const ANYWHERE: [&str; 2] = ["--exec", "/"];

fn sha256(path: &str) -> String {
    let output = Command::new("/usr/bin/sha256sum").arg(path).output().unwrap();
    String::from_utf8(output.stdout).unwrap()[..64].to_owned()
}

#[test]
fn the_report_ends_when_the_plugin_runs() {
    let (ours, theirs) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
    setsockopt(&ours, sockopt::ReceiveTimeout, &TimeVal::new(60, 0)).unwrap();
    let mut child = Command::new("/bin/sh")
        .args(["-c", "exec \"$@\" 3<&0 0</dev/null", "sh", SANDBOX, "enter", "--report", "3"])
        .args(ANYWHERE)
        .args(["--", "/usr/bin/sleep", "60"])
        .stdin(theirs)
        .spawn()
        .unwrap();
    let packet = || {
        let mut buffer = [0; 4096];
        let length = recv(ours.as_raw_fd(), &mut buffer, MsgFlags::empty()).unwrap();
        buffer[..length].to_vec()
    };
    assert!(serde_json::from_slice::<Value>(&packet()).unwrap()["ready"].is_object());
    assert!(packet().is_empty());
    assert!(child.try_wait().unwrap().is_none(), "the report ended while the plugin runs");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn without_a_report_failures_go_to_standard_error() {
    let output =
        Command::new(SANDBOX).args(["enter", "--read", "/nowhere", "--", "/bin/true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("plugind-sandbox enter: landlock: /nowhere is not in the sandbox"), "{said}");
}

#[test]
fn a_launcher_that_is_gone_is_a_failure() {
    let (ours, theirs) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
    drop(ours);
    let output = Command::new("/bin/sh")
        .args(["-c", "exec \"$@\" 3<&0 0</dev/null", "sh", SANDBOX, "enter", "--report", "3"])
        .args(ANYWHERE)
        .args(["--", "/bin/echo", "ran"])
        .stdin(theirs)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(output.stdout.is_empty());
    let closed = Command::new(SANDBOX)
        .args(["enter", "--report", "77", "--", "/bin/echo", "ran"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(closed.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&closed.stderr).contains("report descriptor 77"));
}

#[test]
fn the_verified_entry_runs_by_its_descriptor() {
    let scratch = Scratch::new();
    let program = scratch.copy("echo", "/bin/echo");
    let hex = sha256(&program);
    let ended = enter(&["--exec", scratch.path(), "--entry-sha256", &hex], &[&program, "ran", "--", "so"]);
    ended.ready();
    assert_eq!(ended.stdout, "ran -- so\n");
    // As the program itself sees it, by name and not by descriptor.
    let link = scratch.copy("readlink", "/usr/bin/readlink");
    let hex = sha256(&link);
    let ended = enter(&["--exec", scratch.path(), "--entry-sha256", &hex], &[&link, "/proc/self/exe"]);
    assert_eq!(ended.stdout.trim(), link);
}

#[test]
fn another_entry_is_refused_before_anything_runs() {
    let scratch = Scratch::new();
    let program = scratch.copy("echo", "/bin/echo");
    let ended = enter(&["--exec", scratch.path(), "--entry-sha256", &"0".repeat(64)], &[&program, "ran"]);
    let message = ended.failed("entry")["message"].as_str().unwrap();
    assert!(message.contains("is not what was verified") && message.contains(&sha256(&program)), "{message}");
    assert_eq!(ended.stdout, "");
}

#[test]
fn an_entry_that_is_exchanged_all_the_time_runs_as_verified_or_not_at_all() {
    let scratch = Scratch::new();
    let (verified, other) = ("/bin/echo", "/usr/bin/printf");
    let program = scratch.copy("program", verified);
    let hex = sha256(&program);
    let exchanging = AtomicBool::new(true);
    let (ran, refused) = std::thread::scope(|scope| {
        scope.spawn(|| {
            while exchanging.load(Ordering::Relaxed) {
                // Another program that would say so, and the verified one again, each put in place at once.
                for source in [other, verified] {
                    let new = scratch.copy("new", source);
                    std::fs::rename(new, &program).unwrap();
                }
            }
        });
        let (mut ran, mut refused) = (0, 0);
        for _ in 0..100 {
            let ended = enter(&["--exec", scratch.path(), "--entry-sha256", &hex], &[&program, "%s-"]);
            // `printf` would leave out the `%s`.
            match ended.stdout.as_str() {
                "%s-\n" => ran += 1,
                "" => {
                    ended.failed("entry");
                    refused += 1;
                }
                _ => panic!("another program ran: {ended:#?}"),
            }
        }
        exchanging.store(false, Ordering::Relaxed);
        (ran, refused)
    });
    println!("{ran} ran as verified, {refused} were refused");
    assert!(ran > 0 && refused > 0, "the exchange was never caught in the act");
}

#[test]
fn an_entry_that_is_no_program_of_this_machine_is_named_for_what_it_is() {
    let scratch = Scratch::new();
    let mut other = std::fs::read("/bin/true").unwrap();
    // The machine's field, little-endian: AArch64 on x86-64 and the reverse.
    let (machine, its_name) = if cfg!(target_arch = "aarch64") { (62, "x86-64") } else { (183, "AArch64") };
    other[18..20].copy_from_slice(&u16::to_le_bytes(machine));
    let cases = [
        (scratch.file("other", &other, 0o755), format!("is built for {its_name}, and this machine is")),
        (scratch.file("script", b"#!/bin/sh\n", 0o755), "it is a script".to_owned()),
        (scratch.file("empty", b"", 0o755), "it is empty".to_owned()),
        (scratch.file("text", b"hello", 0o755), "it does not begin like one".to_owned()),
    ];
    for (program, said) in cases {
        let ended = enter(&["--exec", scratch.path(), "--entry-sha256", &sha256(&program)], &[&program]);
        let failed = ended.failed("entry");
        assert_eq!(failed["errno"], libc::ENOEXEC);
        assert!(failed["message"].as_str().unwrap().contains(&said), "{failed}");
    }
    let folder = enter(&["--entry-sha256", &"0".repeat(64)], &["/usr/bin"]);
    assert!(folder.failed("entry")["message"].as_str().unwrap().contains("is not a regular file"));
    let missing = enter(&["--entry-sha256", &"0".repeat(64)], &["/usr/bin/nothing-here"]);
    assert_eq!(missing.failed("entry")["errno"], libc::ENOENT);
}

#[test]
fn a_named_pipe_in_the_entrys_place_is_not_waited_for() {
    let scratch = Scratch::new();
    let pipe = format!("{}/pipe", scratch.path());
    assert!(Command::new("/usr/bin/mkfifo").arg(&pipe).status().unwrap().success());
    let ended = enter(&["--entry-sha256", &"0".repeat(64)], &[&pipe]);
    assert!(ended.failed("entry")["message"].as_str().unwrap().contains("is not a regular file"));
}

#[test]
fn a_failed_exec_says_what_is_missing() {
    let scratch = Scratch::new();
    let mut other_loader = std::fs::read("/bin/true").unwrap();
    let loader = b"/lib64/ld-linux-x86-64.so.2";
    if let Some(at) = other_loader.windows(loader.len()).position(|window| window == loader) {
        other_loader[at + 1..at + 4].copy_from_slice(b"odd");
    } else {
        println!("not tried: another loader, because /bin/true has none of x86-64");
        return;
    }
    let cases = [
        (
            scratch.file("loader", &other_loader, 0o755),
            libc::ENOENT,
            "needs the loader /odd64/ld-linux-x86-64.so.2, which is not in the sandbox",
        ),
        (
            scratch.file("script", b"#! /odd/interpreter -x\n", 0o755),
            libc::ENOENT,
            "needs the interpreter /odd/interpreter, which is not in the sandbox",
        ),
        (scratch.file("text", b"hello", 0o755), libc::ENOEXEC, "is neither an ELF program nor a script"),
        (scratch.file("data", b"#!/bin/sh\n", 0o644), libc::EACCES, "may not be executed"),
        (format!("{}/none", scratch.path()), libc::ENOENT, "does not exist in the sandbox"),
    ];
    for (program, errno, said) in cases {
        let ended = enter(&["--exec", scratch.path()], &[&program]);
        // `ready` came first: the sandbox stood when the program could not be run.
        assert!(ended.report[0]["ready"].is_object());
        let failed = ended.failed("exec");
        assert_eq!(failed["errno"], errno, "{failed}");
        assert!(failed["message"].as_str().unwrap().contains(said), "{failed}");
    }
}

#[test]
fn the_bundle_must_be_the_one_that_was_verified() {
    // Outside of bubblewrap there is no /plugin at all; inside is for the tests with bubblewrap.
    let ended = enter(&["--bundle-id", "1:2"], &["/usr/bin/true"]);
    assert!(ended.failed("bundle")["message"].as_str().unwrap().contains("/plugin"));
}

#[test]
fn the_plugin_has_three_descriptors_and_clean_signals() {
    let script = common::fixture("probe.py");
    let script = script.to_str().unwrap();
    // A parent that leaks descriptors, ignores signals and blocks others.
    let parent = "import os, signal, sys\n\
                  for _ in range(40): os.set_inheritable(os.open('/dev/null', os.O_RDWR), True)\n\
                  signal.signal(signal.SIGTERM, signal.SIG_IGN)\n\
                  signal.signal(signal.SIGPIPE, signal.SIG_IGN)\n\
                  signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1, 64})\n\
                  os.execv(sys.argv[1], sys.argv[1:])\n";
    // grep changes none of this by itself; Python does.
    let observe = ["/bin/grep", "-E", "^(SigBlk|SigIgn|NoNewPrivs|Seccomp):", "/proc/self/status"];
    let ended = common::enter_through(&[PYTHON, "-c", parent, SANDBOX], &[], &observe);
    ended.ready();
    let none = "0000000000000000";
    let clean = format!("SigBlk:\t{none}\nSigIgn:\t{none}\nNoNewPrivs:\t1\nSeccomp:\t2\n");
    assert_eq!(ended.stdout, clean);
    let program = [PYTHON, "-I", "-S", script, "process"];
    let ended = common::enter_through(&[PYTHON, "-c", parent, SANDBOX], &["--read", script], &program);
    assert_eq!(ended.json()["fds"], json!([0, 1, 2]));
}

#[test]
fn descriptors_are_closed_where_close_range_is_missing() {
    for errno in [libc::ENOSYS, libc::EPERM] {
        let seen = with_answers(&[(libc::SYS_close_range, &[])], errno, || probe(&[], &["process"]));
        assert_eq!(seen["fds"], json!([0, 1, 2]));
    }
}

#[test]
fn limits_are_lowered_and_never_raised() {
    let seen = probe(&["--nofile", "256"], &["process"]);
    assert_eq!(seen["nofile"], json!([256, 256]));
    assert_eq!(seen["core"], json!([0, 0]));
    assert_eq!(seen["no_new_privs"], "1");
    assert_eq!(seen["seccomp"], "2");
    let script = common::fixture("probe.py");
    let script = script.to_str().unwrap();
    let ended = common::enter_through(
        &["/usr/bin/prlimit", "--nofile=64:64", SANDBOX],
        &["--nofile", "256", "--read", script],
        &[PYTHON, "-I", "-S", script, "process"],
    );
    assert_eq!(ended.json()["nofile"], json!([64, 64]));
}

#[test]
fn a_kernel_without_seccomp_filters_is_refused() {
    let ended = with_answers(&[(libc::SYS_seccomp, &[])], libc::EINVAL, || enter(&[], &["/bin/echo", "ran"]));
    let failed = ended.failed("seccomp");
    assert!(failed["message"].as_str().unwrap().contains("CONFIG_SECCOMP_FILTER is off"), "{failed}");
    assert_eq!(ended.stdout, "");
}

#[test]
fn wrong_use_is_told_from_a_refusal() {
    let output = Command::new(SANDBOX).args(["enter", "--nonsense", "--", "/bin/true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let help = Command::new(SANDBOX).arg("--help").output().unwrap();
    assert!(help.status.success());
    assert!(String::from_utf8_lossy(&help.stdout).contains("plugind-sandbox enter [OPTION…] -- PROGRAM"));
}
