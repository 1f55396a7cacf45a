//! System calls: what of the kernel a plugin reaches.
#![cfg(feature = "stage")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Stdio};

use nix::errno::Errno;
use plugind_integration::ctl::run_through;
use plugind_integration::{Bundle, Installed, Outcome, Outside, Report, run, until, user};
use serde_json::{Value, json};

fn what(probe: &str) -> Value {
    json!({"what": probe})
}

fn syscall(name: &str) -> Value {
    json!({"what": "syscall", "name": name})
}

#[test]
fn keyrings_io_uring_userfaultfd_and_bpf_are_refused() {
    let plugin = Installed::new(Bundle::hostile());
    let outside = Outside::root();
    for probe in ["keyctl", "io-uring-setup", "userfaultfd", "bpf"] {
        outside.probe(&what(probe)).allowed();
        plugin.probe(&what(probe)).denied(&[Errno::EPERM]);
    }
    for probe in ["threads", "jit", "socketpair"] {
        plugin.probe(&what(probe)).allowed();
    }
}

#[test]
fn administration_of_the_machine_is_refused() {
    let plugin = Installed::new(Bundle::hostile());
    let refused = [
        "acct",
        "add_key",
        "bpf",
        "chroot",
        "delete_module",
        "fanotify_init",
        "finit_module",
        "fsconfig",
        "fsmount",
        "fsopen",
        "fspick",
        "init_module",
        "io_uring_enter",
        "io_uring_register",
        "io_uring_setup",
        "kcmp",
        "kexec_load",
        "keyctl",
        "mount",
        "mount_setattr",
        "move_mount",
        "open_by_handle_at",
        "open_tree",
        "perf_event_open",
        "pidfd_getfd",
        "pivot_root",
        "process_madvise",
        "process_vm_readv",
        "process_vm_writev",
        "ptrace",
        "quotactl",
        "reboot",
        "request_key",
        "setns",
        "settimeofday",
        "swapoff",
        "swapon",
        "syslog",
        "umount2",
        "unshare",
        "userfaultfd",
    ];
    for name in refused {
        plugin.probe(&syscall(name)).denied(&[Errno::EPERM]);
    }
    // The same knock at calls that are let through gets the kernel's own answer.
    for name in ["pidfd_open", "landlock_add_rule", "seccomp"] {
        plugin.probe(&syscall(name)).denied(&[Errno::EINVAL]);
    }
}

#[test]
fn clone3_looks_absent_and_threads_start() {
    let plugin = Installed::new(Bundle::hostile());
    Outside::tester().probe(&what("clone3")).allowed();
    plugin.probe(&what("clone3")).denied(&[Errno::ENOSYS]);
    plugin.probe(&what("threads")).allowed();
    Installed::new(Bundle::python())
        .python("import subprocess; result = subprocess.run(['/usr/bin/true']).returncode")
        .allowed();
}

#[test]
fn new_user_namespaces_are_refused_by_seccomp_whatever_the_namespaces_allow() {
    let plugin = Installed::new(Bundle::hostile());
    let outside = Outside::tester();
    for probe in ["unshare-userns", "clone-userns"] {
        outside.probe(&what(probe)).allowed();
        // The namespaces' own limit would answer ENOSPC.
        plugin.probe(&what(probe)).denied(&[Errno::EPERM]);
    }
    plugin.probe(&what("threads")).allowed();
}

/// Entered by root from outside, so that neither seccomp nor Landlock is in force.
#[test]
fn new_user_namespaces_are_refused_by_the_sandboxs_namespaces_alone() {
    let plugin = Installed::new(Bundle::hostile());
    plugin.call("echo", &json!(1)).success();
    // A user namespace as everybody may make it, held by a process that ends with its input.
    let words = ["--user", "--map-root-user", "cat"];
    let mut other = user::as_tester("unshare").args(words).stdin(Stdio::piped()).spawn().unwrap();
    until("the namespace is made", || {
        let map = std::fs::read_to_string(format!("/proc/{}/uid_map", other.id())).ok()?;
        map.split_whitespace().eq(["0", &user::tester().uid.to_string(), "1"]).then_some(())
    });
    let nested = |pid: String, uid: &str| {
        let enter = ["--user", "--setuid", uid, "--setgid", uid, "--target", &pid, "--"];
        let mut nsenter = Command::new("nsenter");
        nsenter.args(enter).args(["unshare", "--user", "true"]).env("LC_ALL", "C").output().unwrap()
    };
    let allowed = nested(other.id().to_string(), "0");
    let refused = nested(plugin.pid().to_string(), "1000");
    drop(other.stdin.take());
    other.wait().unwrap();
    assert!(allowed.status.success(), "{}", String::from_utf8_lossy(&allowed.stderr));
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && text.contains("No space left on device"), "{text}");
}

#[test]
fn nothing_can_be_mounted() {
    let plugin = Installed::new(Bundle::hostile());
    let outside = Outside::root();
    outside.probe(&json!({"what": "mount", "path": "/mnt"})).allowed();
    outside.probe(&what("fsopen")).allowed();
    for path in ["/data", "/tmp", "/plugin", "/"] {
        plugin.probe(&json!({"what": "mount", "path": path})).denied(&[Errno::EPERM]);
    }
    plugin.probe(&what("fsopen")).denied(&[Errno::EPERM]);
    plugin.probe(&json!({"what": "create-dir", "path": "/data/mnt"})).allowed();
}

/// The same under `pluginctl run` and under the installed units, whose settings plugins inherit.
#[test]
fn calls_of_other_architectures_look_absent() {
    let bundle = Bundle::hostile();
    Report::of(&run(&bundle, "probe", &what("x32"))).denied(&[Errno::ENOSYS]);
    let python = Installed::new(Bundle::python());
    python.python("import os; result = os.getpid()").allowed();
    // The number of getpid in this architecture, and of ptrace, which has one of its own there.
    for number in ["0x40000000 | 39", "0x40000209"] {
        let code = format!(
            "import os, sys\n\
             child = os.fork()\n\
             if child == 0:\n    \
                 try: syscall({number})\n    \
                 except OSError as cause: os._exit(cause.errno)\n    \
                 os._exit(0)\n\
             result = os.waitpid(child, 0)[1]"
        );
        assert_eq!(python.python(&code).allowed(), &json!(38 << 8), "exit with ENOSYS, and no signal");
    }
    let plugin = Installed::new(bundle);
    plugin.probe(&what("x32")).denied(&[Errno::ENOSYS]);
}

#[test]
fn nothing_is_typed_into_a_terminal() {
    let plugin = Installed::new(Bundle::python());
    let control =
        |request: &str| format!("import fcntl, termios; fcntl.ioctl(0, termios.{request}, b'xxxx')");
    // Without the filter the answer for a pipe would be ENOTTY.
    plugin.python(&control("TIOCSTI")).denied(&[Errno::EPERM]);
    plugin.python("import fcntl; fcntl.ioctl(0, 0x541C, b'xxxx')").denied(&[Errno::EPERM]);
    plugin.python(&control("FIONREAD")).allowed();
    plugin.python(&control("TIOCGPGRP")).denied(&[Errno::ENOTTY]);
    Installed::new(Bundle::hostile()).probe(&what("tiocsti")).denied(&[Errno::EPERM]);
}

/// Started from a terminal, as `pluginctl run` is by people.
#[test]
fn the_terminal_of_whoever_started_it_is_out_of_reach() {
    let script = "import fcntl, os, pty, sys, termios\n\
                  ends = pty.openpty()\n\
                  child = os.fork()\n\
                  if child == 0:\n    \
                      os.setsid()\n    \
                      fcntl.ioctl(ends[1], termios.TIOCSCTTY, 0)\n    \
                      os.execvp(sys.argv[1], sys.argv[1:])\n\
                  sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))";
    let outer = ["python3", "-c", script];
    let mut control = user::as_tester_through(&outer, "bash");
    Outcome::of(control.args(["-c", "exec 3<>/dev/tty"])).success();
    let open = |path: &str| {
        let code = json!({"code": format!("open('{path}', 'r+b', 0)")});
        Report::of(&run_through(&outer, &Bundle::python(), "probe", &code, &[]))
    };
    open("/dev/tty").denied(&[Errno::ENXIO]);
    open("/dev/null").allowed();
}

#[test]
fn personalities_that_take_protections_away_are_refused() {
    let plugin = Installed::new(Bundle::python());
    for personality in ["0x40000", "0x400000"] {
        let change =
            format!("if libc.personality({personality}) == -1: raise OSError(ctypes.get_errno(), 'no')");
        plugin.python(&format!("import ctypes\n{change}")).denied(&[Errno::EPERM]);
    }
    assert_eq!(
        plugin.python("result = libc.personality(0)").allowed(),
        &json!(0),
        "the usual one is allowed"
    );
}

#[test]
fn a_sandbox_within_the_sandbox_is_allowed() {
    let plugin = Installed::new(Bundle::python());
    let code = "import ctypes, os, struct\n\
                rules = ctypes.create_string_buffer(struct.pack('Q', 1 << 1))\n\
                ruleset = syscall(444, ctypes.addressof(rules), 8, 0)\n\
                child = os.fork()\n\
                if child == 0:\n    \
                    syscall(446, ruleset, 0)\n    \
                    try: open('/data/denied', 'w')\n    \
                    except PermissionError: os._exit(7)\n    \
                    os._exit(0)\n\
                result = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])";
    assert_eq!(plugin.python(code).allowed(), &json!(7));
}
