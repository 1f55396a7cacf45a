//! What a probe found, and the same probes made outside any sandbox, as the control case.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use nix::errno::Errno;
use serde_json::{Value, json};

use crate::bundle::Bundle;
use crate::ctl::Outcome;
use crate::user::as_tester;

/// What a probe reported: whether it worked, the errno, and what was found.
#[derive(Debug)]
pub struct Report(Value);

impl Report {
    /// The report that a call brought.
    #[track_caller]
    pub fn of(outcome: &Outcome) -> Report {
        let report = outcome.json();
        assert!(report["ok"].is_boolean(), "no report: {report}");
        Report(report)
    }

    /// Asserts that it worked; what was found.
    #[track_caller]
    pub fn allowed(&self) -> &Value {
        assert_eq!(self.0["ok"], true, "denied: {}", self.0);
        &self.0["value"]
    }

    /// Asserts that it failed with one of these errors.
    #[track_caller]
    pub fn denied(&self, errors: &[Errno]) {
        assert_eq!(self.0["ok"], false, "allowed: {}", self.0);
        let errno = self.0["errno"].as_i64().and_then(|errno| i32::try_from(errno).ok()).map(Errno::from_raw);
        assert!(errno.is_some_and(|errno| errors.contains(&errno)), "denied otherwise: {}", self.0);
    }
}

/// The hostile plugin outside any sandbox, as the test user or as root.
#[derive(Debug)]
pub struct Outside {
    bundle: Bundle,
    root: bool,
}

impl Outside {
    /// Probes are made as the test user, as whom plugins run.
    pub fn tester() -> Outside {
        Outside { bundle: Bundle::hostile(), root: false }
    }

    /// Probes are made as root, for what this kernel refuses to every other user.
    pub fn root() -> Outside {
        Outside { bundle: Bundle::hostile(), root: true }
    }

    /// Makes one probe.
    #[track_caller]
    pub fn probe(&self, arguments: &Value) -> Report {
        let program = format!("{}/bin/hostile-plugin", self.bundle.path());
        let mut command = if self.root { Command::new(&program) } else { as_tester(&program) };
        let mut plugin = command
            .current_dir(self.bundle.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the hostile plugin starts");
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": "command/invoke",
                             "params": {"command": "probe", "arguments": arguments, "meta": {}}});
        let mut stdin = plugin.stdin.take().expect("a pipe");
        writeln!(stdin, "{request}").expect("the plugin reads");
        let mut line = String::new();
        BufReader::new(plugin.stdout.take().expect("a pipe")).read_line(&mut line).expect("an answer");
        drop(stdin);
        plugin.wait().expect("its end");
        let mut answer: Value = serde_json::from_str(&line).expect("JSON");
        assert!(answer["result"]["ok"].is_boolean(), "no report: {answer}");
        Report(answer["result"].take())
    }
}
