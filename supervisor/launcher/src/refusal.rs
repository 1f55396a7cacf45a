//! Turns what bubblewrap printed before anything untrusted ran into an error with a cause and a fix.

use std::fs;

use plugind_protocol::{Error, Kind};

/// bubblewrap prints one line; more than this is not bubblewrap's.
pub(crate) const TEXT_MAX: usize = 4096;

/// The error for bubblewrap's last words; `text` may be empty.
pub(crate) fn classify(text: &str, status: &str) -> Error {
    let said = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("").trim();
    let (message, hint) = cause(said, status);
    Error::new(Kind::SandboxDenied, message, hint).with_details(serde_json::json!({ "bubblewrap": said }))
}

fn cause(said: &str, status: &str) -> (String, String) {
    let lower = said.to_ascii_lowercase();
    let denied = lower.contains("permission denied") || lower.contains("operation not permitted");
    if lower.contains("rtm_newaddr") || lower.contains("loopback:") {
        return (
            format!("the loopback device of the plugin's network namespace was refused ({said})"),
            userns_hint(),
        );
    }
    if lower.contains("uid map")
        || lower.contains("gid map")
        || lower.contains("no permissions to create")
        || (lower.contains("creating new namespace failed") && denied)
    {
        return (
            format!("unprivileged user namespaces are refused here{} ({said})", userns_reason()),
            userns_hint(),
        );
    }
    if lower.contains("unshare user ns") && denied {
        return (
            format!(
                "nested user namespaces are refused here, and one keeps the plugin from making its own ({said})"
            ),
            userns_hint(),
        );
    }
    if lower.contains("max_*_namespaces exceeded")
        || lower.contains("unshare user ns") && lower.contains("no space left")
        || lower.contains("no space left") && lower.contains("namespace")
    {
        return (
            format!(
                "no more user namespaces are allowed here: user.max_user_namespaces is too low, or namespaces are nested too deep ({said})"
            ),
            "raise it: sysctl user.max_user_namespaces=15000".to_owned(),
        );
    }
    if lower.contains("mount proc") || lower.contains("/proc/sys") && lower.contains("read-only") {
        return (
            format!("mounting /proc in the plugin's own PID namespace was refused ({said})"),
            "something masks parts of /proc for the launcher: a container, or ProtectKernelTunables=, ProtectProc= or \
             ProcSubset= in its unit; run plugind outside of it"
                .to_owned(),
        );
    }
    if lower.contains("make / slave") || lower.contains("failed to make") {
        return (
            format!("changing mount propagation was refused ({said})"),
            "the launcher runs in a mount namespace that is locked: run it outside of that container or sandbox".to_owned(),
        );
    }
    if lower.contains("pivot_root") || lower.contains("mount") && denied {
        return (
            format!("mounting was refused ({said})"),
            "the launcher itself runs in a Landlock domain, or under a seccomp filter that forbids mounts: run it outside of it".to_owned(),
        );
    }
    if lower.contains("can't find source path") || lower.contains("can't create file") {
        return (
            format!("a path that the plugin was granted cannot be mounted ({said})"),
            "check the roots in plugind.toml".to_owned(),
        );
    }
    if said.is_empty() {
        return (
            format!(
                "bubblewrap ended with {status} before the plugin's program was reached, and said nothing"
            ),
            "run `pluginctl doctor` to see which layer is missing".to_owned(),
        );
    }
    (format!("bubblewrap failed: {said}"), "run `pluginctl doctor` to see which layer is missing".to_owned())
}

/// What this machine's switches say about user namespaces.
fn userns_reason() -> String {
    let set = |path: &str, value: &str| fs::read_to_string(path).is_ok_and(|text| text.trim() == value);
    if set("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
        ": kernel.apparmor_restrict_unprivileged_userns=1".to_owned()
    } else if set("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        ": kernel.unprivileged_userns_clone=0".to_owned()
    } else if set("/proc/sys/user/max_user_namespaces", "0") {
        ": user.max_user_namespaces=0".to_owned()
    } else {
        String::new()
    }
}

fn userns_hint() -> String {
    "allow them: an AppArmor profile with `userns,` for plugind-sandbox and bwrap where AppArmor restricts them, \
     sysctl kernel.unprivileged_userns_clone=1 on Debian, sysctl user.max_user_namespaces=15000 elsewhere"
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        let error = classify(text, "exit code 1");
        assert_eq!(error.kind, Kind::SandboxDenied);
        assert!(!error.hint.is_empty());
        error.message
    }

    /// The texts are those that bubblewrap 0.8 to 0.12 print for each cause.
    #[test]
    fn each_refusal_of_the_kernel_gets_its_cause() {
        for (text, cause) in [
            ("bwrap: setting up uid map: Permission denied\n", "user namespaces are refused"),
            ("bwrap: Creating new namespace failed: Permission denied", "user namespaces are refused"),
            ("bwrap: Creating new namespace failed: Operation not permitted", "user namespaces are refused"),
            (
                "bwrap: No permissions to create new namespace, likely because the kernel does not allow non-privileged user namespaces.",
                "user namespaces are refused",
            ),
            (
                "bwrap: No permissions to create a new namespace, likely because the kernel does not allow it",
                "user namespaces are refused",
            ),
            (
                "bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)",
                "no more user namespaces",
            ),
            ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", "mounting /proc"),
            ("bwrap: unshare user ns: No space left on device", "no more user namespaces"),
            ("bwrap: unshare user ns: Operation not permitted", "nested user namespaces are refused here"),
            (
                "bwrap: cannot open /proc/sys/user/max_user_namespaces: Read-only file system",
                "mounting /proc",
            ),
            ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", "loopback device"),
            ("bwrap: Failed to make / slave: Permission denied", "mount propagation"),
            ("bwrap: Can't find source path /srv/docs: No such file or directory", "cannot be mounted"),
        ] {
            assert!(message(text).contains(cause), "{text} → {}", message(text));
        }
    }

    #[test]
    fn silence_names_the_exit_status() {
        assert!(message("").contains("exit code 1"));
    }

    #[test]
    fn an_unknown_text_is_shown_as_it_is() {
        assert!(message("bwrap: something new\n").contains("something new"));
    }
}
