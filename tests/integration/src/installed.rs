//! A plugin of the test user's installed plugind, for tests that call it often or look at it from outside.

use serde_json::{Value, json};

use crate::bundle::Bundle;
use crate::ctl::{Outcome, ctl};
use crate::probe::Report;

/// An installed and enabled plugin; removed when dropped.
#[derive(Debug)]
pub struct Installed {
    bundle: Bundle,
}

impl Installed {
    /// Installs a bundle and enables it; nothing is granted.
    pub fn new(bundle: Bundle) -> Installed {
        ctl(&["install", bundle.path()]).success();
        let installed = Installed { bundle };
        ctl(&["enable", installed.name()]).success();
        installed
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.bundle.name()
    }

    /// Calls one of its commands.
    pub fn call(&self, command: &str, arguments: &Value) -> Outcome {
        ctl(&["call", &self.bundle.command(command), "--args", &arguments.to_string()])
    }

    /// Calls the hostile plugin's `probe`.
    pub fn probe(&self, arguments: &Value) -> Report {
        Report::of(&self.call("probe", arguments))
    }

    /// Runs a piece of Python in a plugin of [`Bundle::python`].
    pub fn python(&self, code: &str) -> Report {
        self.probe(&json!({"code": code}))
    }

    /// `grant` and `revoke`.
    pub fn permit(&self, verb: &str, permissions: &[&str]) -> Outcome {
        let mut arguments = vec![verb, self.name()];
        arguments.extend(permissions);
        ctl(&arguments)
    }

    /// What `status` says.
    pub fn status(&self) -> Value {
        let outcome = ctl(&["status", self.name()]);
        let list: Value = serde_json::from_str(&outcome.stdout).expect("status prints JSON");
        list[0].clone()
    }

    /// The Landlock ABI in force, as `status` shows it. It must be running.
    pub fn landlock_abi(&self) -> u32 {
        let status = self.status();
        let layers = status["sandbox"].as_array().expect("layers");
        let landlock = layers.iter().find(|layer| layer["layer"] == "landlock").expect("it runs");
        let text = landlock["text"].as_str().expect("text");
        let digits: String =
            text.trim_start_matches("ABI ").chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or_else(|_| panic!("no ABI in {text:?}"))
    }

    /// The plugin's own process, as this machine numbers it. It must be running.
    pub fn pid(&self) -> u64 {
        let pid = self.status()["main_pid"].as_u64().expect("main_pid");
        assert_ne!(pid, 0, "{} does not run", self.name());
        pid
    }

    /// Every process of its scope. It must be running.
    pub fn processes(&self) -> Vec<Process> {
        Process::all_of(self.status()["control_group"].as_str().expect("control_group"))
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        // Whatever the test thinks of it, a second panic would hide the first.
        let _ = ctl(&["remove", self.name()]);
    }
}

/// A process that is told apart from a later one with the same number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its number on this machine.
    pub pid: u64,
    /// Its name.
    pub name: String,
    /// One letter: R, S, T …
    pub state: char,
    started: u64,
}

impl Process {
    /// The process of that number, if there is one.
    pub fn find(pid: u64) -> Option<Process> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name may hold blanks and brackets.
        let (front, rest) = stat.rsplit_once(')')?;
        let (_, name) = front.split_once('(')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let state = fields.first()?.chars().next()?;
        Some(Process { pid, name: name.to_owned(), state, started: fields.get(19)?.parse().ok()? })
    }

    /// Every process of a plugin's cgroup, as `status` names that. The plugin must be running.
    pub fn all_of(control_group: &str) -> Vec<Process> {
        assert!(!control_group.is_empty(), "it does not run");
        let procs = std::fs::read_to_string(format!("/sys/fs/cgroup{control_group}/cgroup.procs"));
        let procs = procs.expect("its cgroup");
        procs.lines().filter_map(|pid| Process::find(pid.parse().expect("a PID"))).collect()
    }

    /// Whether it has not ended. A zombie has.
    pub fn is_alive(&self) -> bool {
        Process::find(self.pid).is_some_and(|now| now.started == self.started && now.state != 'Z')
    }
}
