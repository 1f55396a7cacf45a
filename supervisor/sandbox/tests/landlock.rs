//! Landlock as the plugin meets it, and kernels that have none, have it switched off, or lie about it.
#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod common;

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use common::{Answered, Ended, PYTHON, Scratch, enter, probe, with_answers};
use nix::libc;
use seccompiler::SeccompCmpOp::{Eq, Ne};
use serde_json::{Value, json};

/// The ABI that this kernel reports; every expectation about newer features follows from it.
fn abi() -> i64 {
    enter(&[], &["/usr/bin/true"]).ready()["landlock_abi"].as_i64().unwrap()
}

#[test]
fn paths_are_what_the_rules_say() {
    let scratch = Scratch::new();
    let script = b"#!/bin/sh\nexit 0\n";
    for folder in ["read", "exec", "write", "none"] {
        std::fs::create_dir(format!("{}/{folder}", scratch.path())).unwrap();
        scratch.file(&format!("{folder}/file"), b"x", 0o644);
        scratch.file(&format!("{folder}/script"), script, 0o755);
    }
    let at = |name: &str| format!("{}/{name}", scratch.path());
    let (read, exec, write) = (at("read"), at("exec"), at("write"));
    let options = ["--read", read.as_str(), "--exec", exec.as_str(), "--write", write.as_str()];
    let expected = [
        ("list", "read", None),
        ("read", "read/file", None),
        ("write", "read/file", Some("EACCES")),
        ("truncate", "read/file", Some("EACCES")),
        ("create", "read/new", Some("EACCES")),
        ("mkdir", "read/folder", Some("EACCES")),
        ("remove", "read/file", Some("EACCES")),
        ("run", "read/script", Some("EACCES")),
        ("read", "exec/file", None),
        ("run", "exec/script", None),
        ("write", "exec/file", Some("EACCES")),
        ("create", "exec/new", Some("EACCES")),
        ("read", "write/file", None),
        ("write", "write/file", None),
        ("truncate", "write/file", None),
        ("create", "write/new", None),
        ("mkdir", "write/folder", None),
        ("fifo", "write/fifo", None),
        ("remove", "write/new", None),
        ("run", "write/script", Some("EACCES")),
        ("list", "none", Some("EACCES")),
        ("read", "none/file", Some("EACCES")),
        ("write", "none/file", Some("EACCES")),
        ("run", "none/script", Some("EACCES")),
    ];
    let lines: Vec<String> =
        expected.iter().map(|(action, name, _)| format!("{action}:{}", at(name))).collect();
    let mut words = vec!["files"];
    words.extend(lines.iter().map(String::as_str));
    let answers = probe(&options, &words);
    for ((.., answer), line) in expected.iter().zip(&lines) {
        let answer = answer.map_or(json!(0), Value::from);
        // Truncating by name is a right of its own only from ABI 3 on.
        if !(abi() < 3 && line.starts_with("truncate:")) {
            assert_eq!(answers[line], answer, "{line}");
        }
    }
}

#[test]
fn files_move_between_folders_that_may_be_written() {
    let scratch = Scratch::new();
    let from = scratch.file("file", b"x", 0o644);
    std::fs::create_dir(format!("{}/folder", scratch.path())).unwrap();
    let line = format!("move:{from}={}/folder/file", scratch.path());
    let answers = probe(&["--write", scratch.path()], &["files", &line]);
    assert_eq!(answers[&line], if abi() >= 2 { json!(0) } else { json!("EXDEV") });
}

#[test]
fn a_rule_may_name_a_single_file() {
    let scratch = Scratch::new();
    let mine = scratch.file("mine", b"", 0o644);
    let other = scratch.file("other", b"", 0o644);
    let lines = [format!("write:{mine}"), format!("read:{other}")];
    let answers = probe(&["--write", &mine], &["files", &lines[0], &lines[1]]);
    assert_eq!(answers[&lines[0]], 0);
    assert_eq!(answers[&lines[1]], "EACCES");
}

#[test]
fn devices_can_be_read_and_written_and_no_more() {
    let lines = ["write:/dev/null", "read:/dev/urandom", "read:/dev/zero", "tty:/dev/null"];
    let mut words = vec!["files"];
    words.extend(lines);
    let answers = probe(&[], &words);
    assert_eq!(answers["write:/dev/null"], 0);
    assert_eq!(answers["read:/dev/urandom"], 0);
    assert_eq!(answers["read:/dev/zero"], "EACCES");
    assert_eq!(answers["tty:/dev/null"], if abi() >= 5 { "EACCES" } else { "ENOTTY" });
    // A shell opens its target with O_TRUNC.
    let ended = enter(&[], &["/bin/sh", "-c", "echo x >/dev/null && echo done"]);
    assert_eq!(ended.stdout, "done\n");
    let failed = enter(&["--device", "/etc/passwd"], &["/usr/bin/true"]);
    assert_eq!(failed.failed("landlock")["message"], "/etc/passwd is not a character device");
}

#[test]
fn no_tcp_without_network() {
    let answers = probe(&[], &["sockets"]);
    if abi() >= 4 {
        assert_eq!(answers["tcp_bind"], "EACCES");
        assert_eq!(answers["tcp_connect"], "EACCES");
    }
    assert_eq!(answers["pair"], "x");
}

#[test]
fn abstract_sockets_and_signals_stay_inside() {
    let name = format!("plugind-sandbox-test-{}", std::process::id());
    let _listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    // Even with the host's network, where the host's abstract sockets are in the same namespace.
    let answers = probe(&["--network"], &["abstract", &name]);
    assert_eq!(answers["own"], 0);
    let signals = probe(&[], &["signalled", &std::process::id().to_string()]);
    assert_eq!(signals["own"], 0);
    if abi() >= 6 {
        assert_eq!(answers["host"], "EPERM");
        assert_eq!(signals["host"], "EPERM");
    }
}

#[test]
fn a_missing_path_is_refused_unless_it_may_be_missing() {
    let failed = enter(&["--read", "/nowhere"], &["/usr/bin/true"]);
    let failed = failed.failed("landlock");
    assert_eq!(failed["errno"], libc::ENOENT);
    let message = failed["message"].as_str().unwrap();
    assert!(message.contains("/nowhere is not in the sandbox") && message.contains("-/nowhere"), "{message}");
    let ended = enter(&["--read", "-/nowhere", "--write", "-/etc/passwd/beneath"], &["/usr/bin/true"]);
    ended.ready();
    assert!(ended.status.success());
}

#[test]
fn the_report_names_what_this_kernel_leaves_open() {
    let ended = enter(&[], &["/usr/bin/true"]);
    let ready = ended.ready();
    let open = ready["landlock_not_handled"].as_array().unwrap();
    let abi = ready["landlock_abi"].as_i64().unwrap();
    for (closed_by, what) in
        [(4, "tcp (ABI 4)"), (5, "ioctl on devices (ABI 5)"), (6, "abstract sockets and signals (ABI 6)")]
    {
        assert_eq!(open.contains(&what.into()), abi < closed_by, "{what} with ABI {abi}");
    }
    assert_eq!(ready["seccomp"], true);
    assert_eq!(ready["no_new_privs"], true);
}

/// `enter` on a kernel that answers one Landlock call with an error.
fn answered(call: Answered<'_>, errno: i32) -> Ended {
    with_answers(&[call], errno, || enter(&[], &[PYTHON, "-c", "print('ran')"]))
}

fn message(ended: &Ended, errno: i32) -> String {
    let failed = ended.failed("landlock");
    assert_eq!(failed["errno"], errno, "{ended:#?}");
    assert_eq!(ended.stdout, "");
    failed["message"].as_str().unwrap().to_owned()
}

#[test]
fn absent_switched_off_and_lying_are_three_messages() {
    let absent = message(&answered((libc::SYS_landlock_create_ruleset, &[]), libc::ENOSYS), libc::ENOSYS);
    assert!(absent.contains("this kernel has no Landlock: CONFIG_SECURITY_LANDLOCK is off"), "{absent}");

    let off =
        message(&answered((libc::SYS_landlock_create_ruleset, &[]), libc::EOPNOTSUPP), libc::EOPNOTSUPP);
    assert!(off.contains("Landlock is built in but switched off at boot: add landlock to lsm="), "{off}");

    let lying = message(&answered((libc::SYS_landlock_restrict_self, &[]), libc::EINVAL), libc::EINVAL);
    let reported = format!("this kernel reports Landlock ABI {} but refuses to enforce it", abi());
    assert!(lying.contains(&reported) && lying.contains("EINVAL"), "{lying}");

    // Lying one call earlier: the version is told, a ruleset is refused.
    let creating: Answered<'_> = (libc::SYS_landlock_create_ruleset, &[(2, Eq, 0)]);
    let lying = message(&answered(creating, libc::E2BIG), libc::E2BIG);
    assert!(lying.contains(&reported) && lying.contains("E2BIG"), "{lying}");
}

#[test]
fn an_abi_that_is_reported_and_rejected_is_passed_over() {
    if abi() < 7 {
        println!("not tried: this kernel has no ABI 7 to reject");
        return;
    }
    // ABI 7 is the first one with flags for landlock_restrict_self.
    let ended = answered((libc::SYS_landlock_restrict_self, &[(1, Ne, 0)]), libc::EINVAL);
    let ready = ended.ready();
    assert_eq!(ready["landlock_abi"], 6);
    let open = ready["landlock_not_handled"].to_string();
    assert!(open.contains("ABI 7, reported and rejected") && open.contains("EINVAL"), "{open}");
    assert_eq!(ended.stdout, "ran\n");
}

#[test]
fn a_kernel_that_accepts_and_does_not_enforce_is_refused() {
    // Errno 0 is success: the call is answered and nothing happens.
    let ended = answered((libc::SYS_landlock_restrict_self, &[]), 0);
    let failed = ended.failed("landlock");
    assert!(failed["message"].as_str().unwrap().contains("does not apply them"), "{ended:#?}");
}

#[test]
fn probe_tells_the_same_without_a_plugin() {
    let run = || std::process::Command::new(common::SANDBOX).arg("probe").output().unwrap().stdout;
    let offered: Value = serde_json::from_slice(&run()).unwrap();
    assert_eq!(offered["landlock"]["abi"], abi());
    assert_eq!(offered["seccomp"], true);
    assert_eq!(offered["no_new_privs"], true);

    let absent = with_answers(&[(libc::SYS_landlock_create_ruleset, &[])], libc::ENOSYS, run);
    let offered: Value = serde_json::from_slice(&absent).unwrap();
    assert_eq!(offered["landlock"]["errno"], libc::ENOSYS);
    assert!(offered["landlock"]["error"].as_str().unwrap().contains("has no Landlock"));

    let no_seccomp = with_answers(&[(libc::SYS_seccomp, &[])], libc::EINVAL, run);
    let offered: Value = serde_json::from_slice(&no_seccomp).unwrap();
    assert_eq!(offered["seccomp"], false);
}
