//! The supervisor as a process: its number, its memory.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::Error;

const UNIT: &str = "plugind.service";

/// Long enough to cost nothing that matters, short enough to see a buffer that grows.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// How much memory a process has, KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Memory {
    /// All of it that is resident.
    pub rss: usize,
    /// What of it is not a file's.
    pub anonymous: usize,
    /// The most that was ever resident.
    pub peak: usize,
}

/// The supervisor's process.
pub fn main_pid() -> Result<u32, Error> {
    let output =
        run(Command::new("systemctl").args(["--user", "show", "--property=MainPID", "--value", UNIT]))?;
    match output.trim().parse() {
        Ok(pid) if pid > 0 => Ok(pid),
        _ => {
            Err(Error::Missing { what: format!("{UNIT} does not run"), hint: "see systemctl --user status" })
        }
    }
}

/// Starts it afresh: nothing is left in its memory of what was measured before.
pub fn restart() -> Result<(), Error> {
    // Else systemd would refuse the sixth start within seconds.
    run(Command::new("systemctl").args(["--user", "reset-failed", UNIT]))?;
    run(Command::new("systemctl").args(["--user", "restart", UNIT])).map(drop)
}

/// The memory of a process.
pub fn memory(pid: u32) -> Result<Memory, Error> {
    let text =
        fs::read_to_string(format!("/proc/{pid}/status")).map_err(Error::io("the supervisor is gone"))?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    };
    Ok(Memory { rss: field("VmRSS:"), anonymous: field("RssAnon:"), peak: field("VmHWM:") })
}

/// The most memory that a process has while something is done, KiB.
pub fn peak_during<T>(pid: u32, work: impl FnOnce() -> T) -> Result<(T, usize), Error> {
    let before = memory(pid)?;
    let (stop, peak) = (AtomicBool::new(false), AtomicUsize::new(before.rss));
    let done = thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                if let Ok(now) = memory(pid) {
                    peak.fetch_max(now.rss, Ordering::Relaxed);
                }
                thread::sleep(LOOK_EVERY);
            }
        });
        let done = work();
        stop.store(true, Ordering::Relaxed);
        done
    });
    let after = memory(pid)?;
    // The kernel's own record sees what is there between two looks, but only if it is a new one.
    let record = if after.peak > before.peak { after.peak } else { 0 };
    Ok((done, peak.into_inner().max(record)))
}

/// Runs a program to its end; what it printed.
pub(crate) fn run(command: &mut Command) -> Result<String, Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(Error::io(format!("cannot run {program}")))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Error::Program { program: format!("{command:?}"), text });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
