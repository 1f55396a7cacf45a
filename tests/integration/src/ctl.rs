//! `pluginctl`, as a script uses it.

use std::process::{Command, Output};

use plugind_protocol::{Error, Kind};
use serde_json::Value;

use crate::bundle::Bundle;
use crate::user::{as_tester, as_tester_through};

/// What a `pluginctl` command came to.
#[derive(Debug)]
pub struct Outcome {
    /// The exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Outcome {
    /// Runs a command to its end.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn of(command: &mut Command) -> Outcome {
        let Output { status, stdout, stderr } = command.output().expect("the command starts");
        Outcome {
            code: status.code(),
            stdout: String::from_utf8_lossy(&stdout).into_owned(),
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
        }
    }

    /// The JSON that a successful command printed.
    ///
    /// # Panics
    /// If it failed.
    #[must_use]
    pub fn json(&self) -> Value {
        assert_eq!(self.code, Some(0), "failed: {}", self.stderr);
        serde_json::from_str(&self.stdout).unwrap_or_else(|cause| panic!("{cause}: {:?}", self.stdout))
    }

    /// Asserts success.
    ///
    /// # Panics
    /// If it failed.
    pub fn success(&self) {
        assert_eq!(self.code, Some(0), "failed: {}{}", self.stdout, self.stderr);
    }

    /// The error of a failed command, whole.
    ///
    /// # Panics
    /// If it did not fail, or with something that is no error of ours, or with an error that has no hint.
    #[must_use]
    pub fn error(&self) -> Error {
        assert_ne!(self.code, Some(0), "it succeeded: {}", self.stdout);
        let line = self.stderr.lines().rev().find_map(|line| serde_json::from_str::<Value>(line).ok());
        let error = line.and_then(|mut value| serde_json::from_value::<Error>(value["error"].take()).ok());
        let error = error.unwrap_or_else(|| panic!("no error as JSON: {:?}", self.stderr));
        assert!(!error.hint.is_empty(), "no hint: {error}");
        assert_eq!(self.code, Some(i32::from(error.exit_code())), "exit code of {error}");
        error
    }

    /// The error's kind, which must be this one.
    ///
    /// # Panics
    /// If it is another.
    pub fn fails(&self, kind: Kind) -> Error {
        let error = self.error();
        assert_eq!(error.kind, kind, "{error:?}");
        error
    }
}

/// `pluginctl -o json ARGUMENTS` against the test user's installed plugind.
#[must_use]
pub fn ctl(arguments: &[&str]) -> Outcome {
    Outcome::of(as_tester("pluginctl").args(["-o", "json"]).args(arguments))
}

/// `pluginctl -o json run`: one call of a bundle's command by a private supervisor.
#[must_use]
pub fn run(bundle: &Bundle, command: &str, arguments: &Value) -> Outcome {
    run_through(&[], bundle, command, arguments, &[])
}

/// The same with permissions granted, started through other programs that run as root.
#[must_use]
pub fn run_through(
    outer: &[&str],
    bundle: &Bundle,
    command: &str,
    arguments: &Value,
    grants: &[&str],
) -> Outcome {
    let mut pluginctl = as_tester_through(outer, "pluginctl");
    pluginctl.args(["-o", "json", "run"]);
    for grant in grants {
        pluginctl.args(["--grant", grant]);
    }
    pluginctl.args([bundle.path(), &bundle.command(command), "--args", &arguments.to_string()]);
    Outcome::of(&mut pluginctl)
}
