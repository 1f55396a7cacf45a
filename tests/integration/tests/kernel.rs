//! A machine that lacks a part of the sandbox: the start is refused, the missing piece and its fix are named, and the
//! plugin has not run.
#![cfg(feature = "stage")]

use plugind_integration::bundle::repository;
use plugind_integration::{Bundle, Outcome, trial, trial_with};
use plugind_protocol::{Error, Kind};
use serde_json::json;

/// Runs a command where these system calls fail: pairs as `fault-errno` takes them.
fn with_faults(faults: &[&str]) -> Outcome {
    let program = repository().join("target/hostile/fault-errno");
    let mut outer = vec![program.to_str().expect("UTF-8")];
    outer.extend(faults);
    outer.push("--");
    attempt(&outer)
}

/// Runs a command in a mount namespace that a line of shell changed first.
fn with_mounts(change: &str) -> Outcome {
    let line = format!("set -e; {change}; exec \"$@\"");
    attempt(&["unshare", "--mount", "sh", "-c", &line, "sh"])
}

fn attempt(outer: &[&str]) -> Outcome {
    // It says on stderr that it ran, and must not have.
    let bundle = Bundle::hostile().mode("exit-code-7");
    let outcome = trial_with(outer, &bundle, "echo", &json!(1), |pluginctl| {
        pluginctl.env("PLUGIND_LIBEXEC", "/usr/libexec/plugind");
    });
    assert!(!outcome.stderr.contains("leaving with 7"), "the plugin ran: {}", outcome.stderr);
    outcome
}

fn denied(outcome: &Outcome, said: &str, hint: &str) -> Error {
    let error = outcome.fails(Kind::SandboxDenied);
    assert!(error.message.contains(said), "{said}: {error:?}");
    assert!(error.hint.contains(hint), "{hint}: {error:?}");
    assert!(error.outcome_known && !error.retryable, "{error:?}");
    error
}

/// The control case: the same ways of starting, with nothing broken.
#[test]
fn without_a_fault_the_plugin_runs() {
    let program = repository().join("target/hostile/fault-errno");
    let program = program.to_str().unwrap();
    for outer in [
        &[][..],
        &[program, "io_uring_setup", "EPERM", "--"],
        &["unshare", "--mount", "sh", "-c", "exec \"$@\"", "sh"],
    ] {
        assert_eq!(trial(outer, &Bundle::hostile(), "echo", &json!(outer)).json(), json!(outer));
    }
}

#[test]
fn bubblewrap_is_missing() {
    // All of /usr/bin but one name.
    let line = "mount -t tmpfs none /mnt; mkdir /mnt/bin; mount --bind /usr/bin /mnt/bin; PATH=$PATH:/mnt/bin; \
                mount -t tmpfs none /usr/bin; ln -s /mnt/bin/* /usr/bin/; rm /usr/bin/bwrap";
    let outcome = with_mounts(line);
    denied(&outcome, "bubblewrap is missing: /usr/bin/bwrap", "apt install bubblewrap");
}

/// Another file in the place of `bwrap`, made by a line of shell that knows it as `$new`.
fn with_bubblewrap(make: &str) -> Outcome {
    with_mounts(&format!(
        "mount -t tmpfs none /mnt; new=/mnt/bwrap; {make}; mount --bind /mnt/bwrap /usr/bin/bwrap"
    ))
}

#[test]
fn bubblewrap_is_not_one_to_be_trusted() {
    let outcome = with_bubblewrap("cp /usr/bin/bwrap $new; chmod u+s $new");
    denied(&outcome, "/usr/bin/bwrap is setuid", "chmod u-s");
    let outcome = with_bubblewrap("cp /usr/bin/bwrap $new; chmod g+s $new");
    denied(&outcome, "/usr/bin/bwrap is setuid", "chmod");
    let outcome = with_bubblewrap("cp /usr/bin/bwrap $new; chown tester $new");
    denied(&outcome, "can be changed by others than root", "reinstall");
    let outcome = with_bubblewrap("cp /usr/bin/bwrap $new; chmod g+w $new");
    denied(&outcome, "can be changed by others than root", "reinstall");
    let outcome = with_bubblewrap("cp /usr/bin/bwrap $new; chmod a-x $new");
    denied(&outcome, "is not a program", "reinstall");
    let outcome = with_bubblewrap("printf '#!/bin/sh\\necho bubblewrap 0.7.0' >$new; chmod 755 $new");
    denied(&outcome, "too old or not bubblewrap: it says \"bubblewrap 0.7.0\"", "0.8");
    let outcome = with_bubblewrap("cp /bin/true $new; chmod 755 $new");
    denied(&outcome, "too old or not bubblewrap", "0.8");
    let outcome = with_bubblewrap("printf 'no program' >$new; chmod 755 $new");
    denied(&outcome, "does not run", "reinstall");
}

#[test]
fn user_namespaces_are_refused() {
    let refuse = |errno| {
        with_faults(&[
            "clone:ARG0&CLONE_NEWUSER=CLONE_NEWUSER",
            errno,
            "unshare:ARG0&CLONE_NEWUSER=CLONE_NEWUSER",
            errno,
            "clone3",
            "ENOSYS",
        ])
    };
    denied(
        &refuse("EPERM"),
        "unprivileged user namespaces are refused here",
        "kernel.unprivileged_userns_clone=1",
    );
    denied(&refuse("EACCES"), "unprivileged user namespaces are refused here", "AppArmor");
    denied(&refuse("ENOSPC"), "no more user namespaces are allowed here", "user.max_user_namespaces");
}

/// `--disable-userns` makes a second one in the first.
#[test]
fn the_second_user_namespace_is_refused() {
    let second = "unshare:ARG0&CLONE_NEWUSER=CLONE_NEWUSER";
    denied(&with_faults(&[second, "ENOSPC"]), "no more user namespaces are allowed", "max_user_namespaces");
    denied(&with_faults(&[second, "EPERM"]), "user namespaces are refused here", "AppArmor");
}

#[test]
fn a_step_of_bubblewrap_is_refused() {
    denied(&with_faults(&["pivot_root", "EPERM"]), "mounting was refused", "outside of it");
    denied(&with_faults(&["mount", "EPERM"]), "refused", "outside");
    denied(&with_faults(&["mount", "EACCES"]), "refused", "outside");
    denied(&with_faults(&["prctl:ARG0=PR_SET_NO_NEW_PRIVS", "EPERM"]), "bubblewrap failed", "doctor");
}

#[test]
fn mounting_proc_is_refused() {
    let outcome = with_mounts("mount --bind -o ro /proc/sys /proc/sys");
    denied(
        &outcome,
        "mounting /proc in the plugin's own PID namespace was refused",
        "ProtectKernelTunables=",
    );
}

#[test]
fn landlock_is_absent_or_switched_off() {
    let absent = denied(
        &with_faults(&["landlock_create_ruleset", "ENOSYS"]),
        "this kernel has no Landlock: CONFIG_SECURITY_LANDLOCK is off",
        "Linux 5.13",
    );
    let off = denied(
        &with_faults(&["landlock_create_ruleset", "EOPNOTSUPP"]),
        "Landlock is built in but switched off at boot: add landlock to lsm=",
        "lsm=",
    );
    assert_ne!(absent.message, off.message);
    assert_eq!((&absent.details["step"], &off.details["step"]), (&json!("landlock"), &json!("landlock")));
}

#[test]
fn the_kernel_reports_a_landlock_abi_and_rejects_it() {
    for (call, errno) in [
        ("landlock_restrict_self", "EINVAL"),
        ("landlock_restrict_self", "EPERM"),
        ("landlock_create_ruleset:ARG2=0", "EINVAL"),
    ] {
        let error = denied(&with_faults(&[call, errno]), "but refuses to enforce it", "Landlock");
        assert!(error.message.contains("this kernel reports Landlock ABI "), "{error:?}");
    }
    denied(&with_faults(&["landlock_add_rule", "EINVAL"]), "Landlock refuses the rules", "Landlock");
}

#[test]
fn seccomp_is_refused() {
    denied(&with_faults(&["prctl:ARG0=22", "EINVAL", "seccomp", "ENOSYS"]), "seccomp", "doctor");
}
