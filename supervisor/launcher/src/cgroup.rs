//! A scope's cgroup: is the stub in it, are its limits in force, is it empty.

use std::fs;
use std::io::{self, Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use plugind_protocol::launch::{LimitState, Limits};
use plugind_protocol::{Error, Kind};
use tokio::io::Interest;
use tokio::time::{Instant, timeout};

/// `cgroup.events` announces each change; a change before the watch began is found by looking again this often.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

const MOUNT: &str = "/sys/fs/cgroup";

/// One cgroup of the unified hierarchy.
#[derive(Debug, Clone)]
pub(crate) struct Cgroup {
    /// Below the mount, as `/proc/<pid>/cgroup` writes it.
    pub(crate) name: String,
    path: PathBuf,
}

impl Cgroup {
    /// The cgroup of a process, which must be the one of `unit`.
    pub(crate) fn of(pid: u32, unit: &str) -> Result<Cgroup, Error> {
        if is_dead(pid) {
            return Err(not_there(format!("the stub's process {pid} is gone before it was in {unit}")));
        }
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).map_err(|cause| {
            not_there(format!("the stub's process {pid} is gone before it was in {unit}: {cause}"))
        })?;
        Cgroup::from_proc(&text, unit, Path::new(MOUNT))
    }

    fn from_proc(text: &str, unit: &str, mount: &Path) -> Result<Cgroup, Error> {
        let Some(name) = text.lines().find_map(|line| line.strip_prefix("0::")) else {
            return Err(Error::new(
                Kind::SandboxDenied,
                "this machine has no unified cgroup hierarchy",
                "boot with systemd.unified_cgroup_hierarchy=1",
            ));
        };
        if name.rsplit('/').next() != Some(unit) {
            return Err(not_there(format!(
                "systemd says that {unit} was started, and its process is in {name}"
            )));
        }
        Ok(Cgroup { name: name.to_owned(), path: place(name, mount) })
    }

    /// The cgroup of that name.
    pub(crate) fn named(name: &str) -> Cgroup {
        Cgroup { name: name.to_owned(), path: place(name, Path::new(MOUNT)) }
    }

    /// Whether that process is in this cgroup now.
    pub(crate) fn holds(&self, pid: u32) -> bool {
        fs::read_to_string(format!("/proc/{pid}/cgroup"))
            .is_ok_and(|text| text.lines().any(|line| line.strip_prefix("0::") == Some(self.name.as_str())))
    }

    /// Each limit as the kernel has it.
    pub(crate) fn limits(&self, limits: &Limits) -> Vec<LimitState> {
        // systemd rounds memory down to whole pages, and so does the kernel.
        let memory = (limits.memory_max / 4096 * 4096).to_string();
        // systemd writes the quota for the default period of 100 ms.
        let cpu = format!("{} 100000", u64::from(limits.cpu_percent) * 1000);
        [
            ("MemoryMax", "memory.max", memory),
            ("MemorySwapMax", "memory.swap.max", "0".to_owned()),
            ("CPUQuota", "cpu.max", cpu),
            ("TasksMax", "pids.max", limits.tasks_max.to_string()),
        ]
        .into_iter()
        .map(|(name, file, wanted)| {
            let found = fs::read_to_string(self.path.join(file));
            let in_force = match &found {
                Ok(text) => text.trim_end() == wanted,
                // A kernel without swap accounting has no such file, and no swap for us to use either.
                Err(_) => file == "memory.swap.max" && no_swap() && self.path.join("memory.max").exists(),
            };
            LimitState { name: name.to_owned(), wanted, in_force }
        })
        .collect()
    }

    /// Kills every process of the cgroup at once.
    pub(crate) fn kill(&self) -> io::Result<()> {
        match fs::write(self.path.join("cgroup.kill"), "1") {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound && !self.path.exists() => Ok(()),
            other => other,
        }
    }

    /// Resolves to `true` when no process is left, to `false` at the deadline.
    pub(crate) async fn empty_within(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let Ok(mut events) = fs::File::open(self.path.join("cgroup.events")) else {
            return !self.path.exists();
        };
        let watch =
            events.try_clone().ok().and_then(|file| crate::sys::watch(file.into(), Interest::PRIORITY).ok());
        while populated(&mut events) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let changed = async {
                match &watch {
                    Some(watch) => {
                        if let Ok(mut guard) = watch.ready(Interest::PRIORITY).await {
                            guard.clear_ready();
                        }
                    }
                    None => std::future::pending().await,
                }
            };
            let _ = timeout(left.min(LOOK_AGAIN), changed).await;
        }
        true
    }
}

/// Where a cgroup's files are. On a hybrid machine the unified hierarchy is mounted one level deeper.
fn place(name: &str, mount: &Path) -> PathBuf {
    let root =
        if mount.join("cgroup.controllers").exists() { mount.to_owned() } else { mount.join("unified") };
    root.join(name.trim_start_matches('/'))
}

/// Whether a process has ended and was not waited for yet: then it is in no cgroup that says anything.
fn is_dead(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state follows the name, which may hold anything.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X']))
}

/// A removed cgroup answers `ENODEV`: nobody is in it.
fn populated(events: &mut fs::File) -> bool {
    let mut text = String::new();
    events.rewind().is_ok()
        && events.read_to_string(&mut text).is_ok()
        && text.lines().any(|line| line == "populated 1")
}

fn no_swap() -> bool {
    fs::read_to_string("/proc/swaps").is_ok_and(|text| text.lines().count() <= 1)
}

fn not_there(message: String) -> Error {
    Error::new(
        Kind::SandboxDenied,
        message,
        "try again; if it stays, see `journalctl --user` for what moved or ended the process",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: &str = "plugind-x-01234567.scope";

    fn found(text: &str) -> Result<Cgroup, Error> {
        Cgroup::from_proc(text, UNIT, Path::new("/nowhere"))
    }

    #[test]
    fn a_pure_v2_line_names_the_cgroup() {
        let cgroup = found(&format!("0::/user.slice/plugind.slice/{UNIT}\n")).unwrap();
        assert_eq!(cgroup.name, format!("/user.slice/plugind.slice/{UNIT}"));
    }

    #[test]
    fn a_hybrid_file_is_read_by_its_unified_line() {
        assert!(found(&format!("4:memory:/\n1:name=systemd:/x\n0::/a/{UNIT}\n")).is_ok());
    }

    #[test]
    fn a_v1_only_machine_is_refused_with_the_reason() {
        let error = found("4:memory:/\n").unwrap_err();
        assert!(error.message.contains("no unified cgroup hierarchy"));
    }

    #[test]
    fn a_stub_that_systemd_did_not_move_is_noticed() {
        assert_eq!(found("0::/user.slice/session-1.scope\n").unwrap_err().kind, Kind::SandboxDenied);
        assert!(found(&format!("0::/{UNIT}/deeper\n")).is_err());
    }

    #[test]
    fn a_stub_that_died_before_it_was_moved_is_noticed() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let error = Cgroup::of(child.id(), UNIT).unwrap_err();
        assert!(error.message.contains("is gone before it was in"), "{error}");
    }

    #[test]
    fn limits_are_in_force_only_when_the_kernel_says_the_same() {
        let dir = std::env::temp_dir().join(format!("plugind-cgroup-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let cgroup = Cgroup { name: "/x".into(), path: dir.clone() };
        let limits = Limits { memory_max: 1 << 20, cpu_percent: 50, tasks_max: 8, tmp_size: 0 };
        assert!(cgroup.limits(&limits).iter().all(|limit| !limit.in_force), "no file at all");
        fs::write(dir.join("memory.max"), "1048576\n").unwrap();
        fs::write(dir.join("memory.swap.max"), "0\n").unwrap();
        fs::write(dir.join("cpu.max"), "50000 100000\n").unwrap();
        fs::write(dir.join("pids.max"), "max\n").unwrap();
        let states = cgroup.limits(&limits);
        let in_force: Vec<_> =
            states.iter().filter(|limit| limit.in_force).map(|limit| limit.name.as_str()).collect();
        assert_eq!(in_force, ["MemoryMax", "MemorySwapMax", "CPUQuota"], "pids.max is max");
        fs::remove_dir_all(&dir).unwrap();
    }
}
