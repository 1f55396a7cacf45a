//! What the launcher is told: one JSON object a packet, on a socket that closes by itself when the plugin runs.

use std::fmt;
use std::io::Write;
use std::os::fd::{OwnedFd, RawFd};

use nix::errno::Errno;
use serde_json::{Value, json};

use crate::sys;

/// No packet is longer; a message that would make it so is cut.
const PACKET_MAX: usize = 4096;

/// Where a start failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Fds,
    Bundle,
    Entry,
    Rlimits,
    NoNewPrivs,
    Landlock,
    Seccomp,
    Exec,
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Step::Fds => "fds",
            Step::Bundle => "bundle",
            Step::Entry => "entry",
            Step::Rlimits => "rlimits",
            Step::NoNewPrivs => "no_new_privs",
            Step::Landlock => "landlock",
            Step::Seccomp => "seccomp",
            Step::Exec => "exec",
        }
    }
}

/// Why there is no sandbox, in words for the operator.
#[derive(Debug)]
pub(crate) struct Failure {
    step: Step,
    errno: Option<Errno>,
    message: String,
}

impl Failure {
    /// A failure whose message ends in what the kernel answered.
    pub(crate) fn new(step: Step, errno: Option<Errno>, message: impl fmt::Display) -> Failure {
        let message = match errno {
            Some(errno) => format!("{message}: {}", describe(errno)),
            None => message.to_string(),
        };
        Failure { step, errno, message }
    }

    /// A failure whose message already says all that its errno means.
    pub(crate) fn explained(step: Step, errno: Errno, message: impl Into<String>) -> Failure {
        Failure { step, errno: Some(errno), message: message.into() }
    }

    /// What to tell the operator.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// The kernel's answer as a number, if it came to one.
    pub(crate) fn errno(&self) -> Option<i32> {
        self.errno.map(|errno| errno as i32)
    }

    /// The packet, its message cut where it would not fit.
    fn packet(&self) -> String {
        let mut message = self.message.as_str();
        loop {
            let packet =
                json!({"failed": {"step": self.step.name(), "errno": self.errno(), "message": message}})
                    .to_string();
            if packet.len() <= PACKET_MAX {
                return packet;
            }
            let mut half = message.len() / 2;
            while !message.is_char_boundary(half) {
                half -= 1;
            }
            message = &message[..half];
        }
    }
}

/// An errno by its name and its meaning.
pub(crate) fn describe(errno: Errno) -> String {
    format!("{} ({errno:?})", errno.desc())
}

/// Writes to standard error; where that is gone, `eprintln!` would abort.
pub(crate) fn complain(text: impl fmt::Display) {
    let _ = writeln!(std::io::stderr(), "plugind-sandbox {text}");
}

/// The launcher's end of the conversation, or standard error where nobody asked for reports.
pub(crate) struct Report(Option<OwnedFd>);

impl Report {
    /// Takes over the socket; it closes on exec, and its end then means that the plugin runs.
    pub(crate) fn open(fd: Option<RawFd>) -> Result<Report, Failure> {
        match fd.map(|fd| (fd, sys::adopt(fd))) {
            None => Ok(Report(None)),
            Some((_, Some(socket))) => Ok(Report(Some(socket))),
            Some((fd, None)) => {
                Err(Failure::new(Step::Fds, Some(Errno::EBADF), format!("report descriptor {fd}")))
            }
        }
    }

    /// A report to nobody but standard error.
    pub(crate) fn to_stderr() -> Report {
        Report(None)
    }

    /// Says that every layer but the last stands. A launcher that is gone is a failure: nobody would watch the plugin.
    pub(crate) fn ready(&self, landlock_abi: i32, not_handled: &[String]) -> Result<(), Failure> {
        let ready = json!({"ready": {
            "landlock_abi": landlock_abi,
            "landlock_not_handled": not_handled,
            "seccomp": true,
            "no_new_privs": true,
        }});
        self.send(&ready).map_err(|errno| Failure::new(Step::Fds, Some(errno), "the report cannot be sent"))
    }

    /// Says why there will be no plugin.
    pub(crate) fn failed(&self, failure: &Failure) {
        let sent = match &self.0 {
            Some(socket) => sys::send(socket, failure.packet().as_bytes()),
            None => Err(Errno::EBADF),
        };
        if sent.is_err() {
            complain(format_args!("enter: {}: {}", failure.step.name(), failure.message));
        }
    }

    fn send(&self, packet: &Value) -> nix::Result<()> {
        match &self.0 {
            Some(socket) => sys::send(socket, packet.to_string().as_bytes()).map(drop),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_errno() {
        let failure = Failure::new(Step::Rlimits, Some(Errno::EPERM), "cannot lower it");
        let packet: Value = serde_json::from_str(&failure.packet()).unwrap();
        assert_eq!(
            packet,
            json!({"failed": {"step": "rlimits", "errno": 1,
                "message": "cannot lower it: Operation not permitted (EPERM)"}})
        );
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        for text in ["ü".repeat(5000), "\u{1}".repeat(3000)] {
            let packet = Failure::new(Step::Exec, None, text).packet();
            assert!(packet.len() <= PACKET_MAX);
            serde_json::from_str::<Value>(&packet).unwrap();
        }
    }
}
