//! What the numbers were measured on.

use std::fs;
use std::process::Command;
use std::thread::available_parallelism;

use serde::{Deserialize, Serialize};

use crate::supervisor::run;

/// Kernel, processor, and the programs that take part.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// The kernel's release.
    pub kernel: String,
    /// The processor's model.
    pub cpu: String,
    /// How many of its cores there are.
    pub cores: usize,
    /// The version of systemd.
    pub systemd: String,
    /// The version of bubblewrap.
    pub bubblewrap: String,
}

impl Machine {
    /// This one.
    #[must_use]
    pub fn this() -> Machine {
        Machine {
            kernel: file("/proc/sys/kernel/osrelease").trim().to_owned(),
            cpu: processor(&file("/proc/cpuinfo")),
            cores: available_parallelism().map_or(0, Into::into),
            systemd: version("systemctl"),
            bubblewrap: version("bwrap"),
        }
    }
}

/// The time of day, as `date` writes it.
#[must_use]
pub fn date() -> String {
    run(Command::new("date").args(["--utc", "+%F %H:%M"])).unwrap_or_default().trim().to_owned()
}

/// How many programs wanted to run in the last minute.
#[must_use]
pub fn load() -> f64 {
    file("/proc/loadavg").split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(f64::NAN)
}

fn file(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn processor(cpuinfo: &str) -> String {
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or("unknown", |(_, model)| model.trim()).to_owned()
}

/// The second word of a version's first line: `systemd 252 (…)`, `bubblewrap 0.8.0`.
fn version(program: &str) -> String {
    let text = run(Command::new(program).arg("--version")).unwrap_or_default();
    text.split_whitespace().nth(1).unwrap_or("unknown").to_owned()
}
