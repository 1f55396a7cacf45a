//! Which system calls the plugin reaches, tried for real from inside.
#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod common;

use common::{PYTHON, Scratch, enter, found, probe};
use nix::libc;
use serde_json::{Value, json};

/// The numbers of x32 calls are those of x86-64 with this bit.
const X32: i64 = 0x4000_0000;
/// `ptrace` has a number of its own there.
const X32_PTRACE: i64 = 0x209;

fn tried(calls: &[String]) -> Value {
    let mut words = vec!["syscalls"];
    words.extend(calls.iter().map(String::as_str));
    probe(&[], &words)
}

#[test]
fn what_is_refused_on_purpose_answers_eperm() {
    let calls = [
        ("mount", libc::SYS_mount, "0:0:0:0:0"),
        ("umount2", libc::SYS_umount2, "0:0"),
        ("pivot_root", libc::SYS_pivot_root, "0:0"),
        ("chroot", libc::SYS_chroot, "0"),
        ("move_mount", libc::SYS_move_mount, "-1:0:-1:0:0"),
        ("open_tree", libc::SYS_open_tree, "-1:0:0"),
        ("fsopen", libc::SYS_fsopen, "0:0"),
        ("mount_setattr", libc::SYS_mount_setattr, "-1:0:0:0:0"),
        ("unshare(0)", libc::SYS_unshare, "0"),
        ("unshare(CLONE_NEWUSER)", libc::SYS_unshare, "0x10000000"),
        ("setns", libc::SYS_setns, "-1:0"),
        ("ptrace", libc::SYS_ptrace, "0:0:0:0"),
        ("process_vm_readv", libc::SYS_process_vm_readv, "1:0:0:0:0:0"),
        ("process_vm_writev", libc::SYS_process_vm_writev, "1:0:0:0:0:0"),
        ("pidfd_getfd", libc::SYS_pidfd_getfd, "-1:0:0"),
        ("bpf", libc::SYS_bpf, "0:0:0"),
        ("perf_event_open", libc::SYS_perf_event_open, "0:0:0:0:0"),
        ("io_uring_setup", libc::SYS_io_uring_setup, "1:0"),
        ("io_uring_enter", libc::SYS_io_uring_enter, "-1:0:0:0:0"),
        ("io_uring_register", libc::SYS_io_uring_register, "-1:0:0:0"),
        ("userfaultfd", libc::SYS_userfaultfd, "1"),
        ("add_key", libc::SYS_add_key, "0:0:0:0:0"),
        ("request_key", libc::SYS_request_key, "0:0:0:0"),
        ("keyctl", libc::SYS_keyctl, "0:-3:0"),
        ("open_by_handle_at", libc::SYS_open_by_handle_at, "-1:0:0"),
        ("init_module", libc::SYS_init_module, "0:0:0"),
        ("kexec_load", libc::SYS_kexec_load, "0:0:0:0"),
        ("reboot", libc::SYS_reboot, "0:0:0:0"),
        ("swapon", libc::SYS_swapon, "0:0"),
        ("quotactl", libc::SYS_quotactl, "0:0:0:0"),
        ("acct", libc::SYS_acct, "0"),
        ("settimeofday", libc::SYS_settimeofday, "0:0"),
        ("clock_settime", libc::SYS_clock_settime, "0:0"),
        ("adjtimex", libc::SYS_adjtimex, "0"),
        ("syslog", libc::SYS_syslog, "10:0:0"),
        ("clone(CLONE_NEWUSER)", libc::SYS_clone, "0x10000011:0:0:0:0"),
        ("clone(CLONE_NEWNET)", libc::SYS_clone, "0x40000011:0:0:0:0"),
        ("clone(CLONE_NEWUSER, junk above)", libc::SYS_clone, "0x110000011:0:0:0:0"),
        ("personality(ADDR_NO_RANDOMIZE)", libc::SYS_personality, "0x40000"),
        ("personality(READ_IMPLIES_EXEC)", libc::SYS_personality, "0x400000"),
        ("ioctl(TIOCSTI)", libc::SYS_ioctl, "0:0x5412:0"),
        ("ioctl(TIOCSTI, junk above)", libc::SYS_ioctl, "0:0x100005412:0"),
        ("ioctl(TIOCLINUX)", libc::SYS_ioctl, "0:0x541c:0"),
        ("socketpair(AF_INET)", libc::SYS_socketpair, "2:1:0:0"),
        #[cfg(target_arch = "x86_64")]
        ("iopl", libc::SYS_iopl, "3"),
        #[cfg(target_arch = "x86_64")]
        ("ioperm", libc::SYS_ioperm, "0:1:1"),
        #[cfg(target_arch = "x86_64")]
        ("modify_ldt", libc::SYS_modify_ldt, "0:0:0"),
    ];
    let lines: Vec<String> =
        calls.iter().map(|(name, number, arguments)| format!("{name}:{number}:{arguments}")).collect();
    let answers = tried(&lines);
    for (name, ..) in calls {
        assert_eq!(answers[name], "EPERM", "{name}");
    }
    // Beside them, what stays allowed: the same calls with other arguments, and the harmless neighbours.
    let allowed = [
        format!("personality(query):{}:0xffffffff", libc::SYS_personality),
        format!("personality(PER_LINUX):{}:0", libc::SYS_personality),
        format!("getpid:{}", libc::SYS_getpid),
        format!("pidfd_open:{}:{}:0", libc::SYS_pidfd_open, 1),
        format!("memfd_create:{}:0:0", libc::SYS_memfd_create),
    ];
    let answers = tried(&allowed);
    assert_eq!(answers["personality(query)"], 0);
    assert_eq!(answers["personality(PER_LINUX)"], 0);
    assert_eq!(answers["getpid"], 0);
    // A null name is the kernel's to refuse.
    assert_eq!(answers["memfd_create"], "EFAULT");
}

#[test]
fn what_is_unknown_looks_absent() {
    let lines = [
        // clone3 without arguments would be EINVAL.
        format!("clone3:{}:0:0", libc::SYS_clone3),
        "not yet invented:1000".to_owned(),
        format!("move_pages:{}:0:0:0:0:0:0", libc::SYS_move_pages),
        #[cfg(target_arch = "x86_64")]
        format!("x32 getpid:{}", X32 | libc::SYS_getpid),
        #[cfg(target_arch = "x86_64")]
        format!("x32 ptrace:{}:0:0:0:0", X32 | X32_PTRACE),
    ];
    for (name, answer) in tried(&lines).as_object().unwrap() {
        assert_eq!(answer, "ENOSYS", "{name}");
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_call_of_i386_kills() {
    // mov eax, 20 (getpid of i386); int 0x80; ret
    assert_eq!(probe(&[], &["in_child", "b814000000cd80c3"]), libc::SIGSYS);
    // The control: mov eax, 39 (getpid of x86-64); syscall; ret
    assert_eq!(probe(&[], &["in_child", "b8270000000f05c3"]), 0);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_jit_can_run_what_it_wrote() {
    // mov eax, 42; ret
    assert_eq!(probe(&[], &["machine_code", "b82a000000c3"]), 42);
}

#[test]
fn only_harmless_families_of_sockets() {
    let answers = probe(&["--network"], &["sockets"]);
    assert_eq!(answers["pair"], "x");
    assert_eq!(answers["route"], 0);
    assert_eq!(answers["tcp_bind"], 0);
    assert_eq!(answers["tcp_connect"], "ECONNREFUSED");
    for family in ["audit", "vsock", "packet", "alg"] {
        assert_eq!(answers[family], "EPERM", "{family}");
    }
}

#[test]
fn threads_start_though_clone3_is_absent() {
    assert_eq!(probe(&[], &["threads"]), 8);
}

/// Runs source code of a language that this machine has; where it has not, says so and proves nothing. From any
/// path, because these are about system calls.
fn speaks(program: &str, arguments: &[&str], said: &str) {
    let Some(path) = found(program) else {
        println!("not tried: {program} is not on this machine");
        return;
    };
    let path = std::fs::canonicalize(path).unwrap();
    let mut words = vec![path.to_str().unwrap()];
    words.extend(arguments);
    let ended = enter(&["--exec", "/", "--write", "/tmp"], &words);
    ended.ready();
    assert_eq!(ended.stdout.trim(), said, "{ended:#?}");
    assert!(ended.status.success(), "{ended:#?}");
}

#[test]
fn node_runs_with_its_jit_and_its_threads() {
    let source = "const {Worker} = require('worker_threads'); let n = 0; for (let i = 0; i < 1e7; i++) n += i % 3; \
                  new Worker('', {eval: true}).on('exit', () => \
                  require('child_process').execFile('/usr/bin/true', error => console.log(n, error)));";
    speaks("node", &["-e", source], "9999999 null");
}

#[test]
fn java_runs_with_its_jit_and_its_threads() {
    let scratch = Scratch::new();
    let source = "class Main { public static void main(String[] a) throws Exception { long[] n = {0}; \
                  Thread t = new Thread(() -> { for (int i = 0; i < 10000000; i++) n[0] += i % 3; }); \
                  t.start(); t.join(); System.out.println(n[0]); } }";
    let file = scratch.file("Main.java", source.as_bytes(), 0o644);
    speaks("java", &["-Xmx256m", &file], "9999999");
}

#[test]
fn perl_forks_and_pipes() {
    speaks("perl", &["-e", "print scalar qx{/bin/echo child}"], "child");
}

/// Compiles C with a compiler of this machine and runs it.
fn compiled(compiler: &str, flags: &[&str]) {
    let Some(compiler) = found(compiler) else {
        println!("not tried: {compiler} is not on this machine");
        return;
    };
    let scratch = Scratch::new();
    let source = "#include <pthread.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <sys/wait.h>\n\
                  #include <unistd.h>\n\
                  static void *work(void *n) { ++*(int *)n; return 0; }\n\
                  int main(void) { int n = 0; pthread_t t; if (pthread_create(&t, 0, work, &n)) return 1;\n\
                  pthread_join(t, 0); pid_t p = fork(); if (p == 0) _exit(3); int s; waitpid(p, &s, 0);\n\
                  char *m = malloc(1 << 24); m[1 << 23] = 1; printf(\"%d %d\\n\", n, WEXITSTATUS(s)); return 0; }\n";
    let source = scratch.file("main.c", source.as_bytes(), 0o644);
    let program = format!("{}/program", scratch.path());
    let status = std::process::Command::new(compiler)
        .args(flags)
        .args(["-o", &program, &source, "-pthread"])
        .status()
        .unwrap();
    assert!(status.success());
    let ended = enter(&["--exec", scratch.path()], &[&program]);
    ended.ready();
    assert_eq!(ended.stdout, "1 3\n", "{ended:#?}");
}

#[test]
fn glibc_programs_run() {
    compiled("cc", &[]);
}

#[test]
fn static_glibc_programs_run() {
    compiled("cc", &["-static"]);
}

#[test]
fn musl_programs_run() {
    compiled("musl-gcc", &["-static"]);
}

#[test]
fn go_programs_run() {
    let Some(go) = found("go") else {
        println!("not tried: go is not on this machine");
        return;
    };
    let scratch = Scratch::new();
    let source = "package main\nimport (\"fmt\"; \"os/exec\"; \"sync\")\nfunc main() { var w sync.WaitGroup\n\
                  for i := 0; i < 64; i++ { w.Add(1); go func() { defer w.Done() }() }; w.Wait()\n\
                  out, err := exec.Command(\"/bin/echo\", \"child\").Output(); fmt.Print(string(out), err) }\n";
    let source = scratch.file("main.go", source.as_bytes(), 0o644);
    let program = format!("{}/program", scratch.path());
    let status = std::process::Command::new(go)
        .args(["build", "-o", &program, &source])
        .env("GOCACHE", format!("{}/cache", scratch.path()))
        .env("GOFLAGS", "-mod=mod")
        .status()
        .unwrap();
    assert!(status.success());
    let ended = enter(&["--exec", scratch.path()], &[&program]);
    assert_eq!(ended.stdout, "child\n<nil>", "{ended:#?}");
}

#[test]
fn the_policy_is_data() {
    let output = std::process::Command::new(common::SANDBOX).arg("policy").output().unwrap();
    let policy: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(policy["refused"]["errno"], "EPERM");
    assert_eq!(policy["absent"]["errno"], "ENOSYS");
    let groups = policy["allowed"].as_array().unwrap();
    assert!(groups.iter().all(|group| group["reason"].as_str().is_some_and(|reason| !reason.is_empty())));
    let named = json!(["bpf", "perf_event_open"]);
    assert!(policy["refused"]["always"].as_array().unwrap().iter().any(|group| group["syscalls"] == named));
}

#[test]
fn python_is_where_the_tests_look_for_it() {
    assert!(std::path::Path::new(PYTHON).exists(), "the probes need the distribution's python3");
}
