//! The memory of a process while something is done to it.

use std::fs;

/// How far the resident memory of a process rises above what it was, at its highest, while `work` is done; bytes.
///
/// # Panics
/// If there is no such process.
pub fn growth(pid: u32, work: impl FnOnce()) -> u64 {
    // Sets VmHWM to VmRSS (proc(5)).
    fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("the peak is forgotten");
    let before = field(pid, "VmHWM:");
    work();
    field(pid, "VmHWM:").saturating_sub(before)
}

fn field(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is there");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a field of memory");
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kibibytes << 10
}
