//! A running scope's cgroup: what it uses, and the last resort to end it.

use std::fs;
use std::path::{Path, PathBuf};

use plugind_protocol::launch::is_unit_name;

/// As systemd writes a figure that is not known.
const UNKNOWN: u64 = u64::MAX;

/// Figures of one cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Bytes.
    pub(crate) memory: u64,
    /// Nanoseconds of CPU time.
    pub(crate) cpu_nsec: u64,
    /// Processes and threads.
    pub(crate) tasks: u64,
}

impl Usage {
    /// The sums over cgroups by their names below the mount; all unknown without any.
    pub(crate) fn of_all(cgroups: &[String]) -> Usage {
        let add = |a: u64, b: u64| if a == UNKNOWN || b == UNKNOWN { UNKNOWN } else { a.saturating_add(b) };
        let sum = cgroups.iter().map(|cgroup| Usage::of(cgroup)).reduce(|a, b| Usage {
            memory: add(a.memory, b.memory),
            cpu_nsec: add(a.cpu_nsec, b.cpu_nsec),
            tasks: add(a.tasks, b.tasks),
        });
        sum.unwrap_or(Usage { memory: UNKNOWN, cpu_nsec: UNKNOWN, tasks: UNKNOWN })
    }

    fn of(cgroup: &str) -> Usage {
        let path = folder(cgroup);
        let cpu = fs::read_to_string(path.join("cpu.stat")).ok().and_then(|text| {
            text.lines().find_map(|line| line.strip_prefix("usage_usec ")?.trim().parse::<u64>().ok())
        });
        Usage {
            memory: number(&path.join("memory.current")),
            cpu_nsec: cpu.map_or(UNKNOWN, |usec| usec.saturating_mul(1000)),
            tasks: number(&path.join("pids.current")),
        }
    }
}

/// Kills everything in a cgroup of ours, where the launcher cannot do it any more.
pub(crate) fn kill(cgroup: &str) -> std::io::Result<()> {
    if !cgroup.rsplit('/').next().is_some_and(is_unit_name) {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    match fs::write(folder(cgroup).join("cgroup.kill"), "1") {
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn folder(cgroup: &str) -> PathBuf {
    let mount = Path::new("/sys/fs/cgroup");
    let root =
        if mount.join("cgroup.controllers").exists() { mount.to_owned() } else { mount.join("unified") };
    root.join(cgroup.trim_start_matches('/'))
}

fn number(path: &Path) -> u64 {
    fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(UNKNOWN)
}
