//! What a plugin that floods makes the supervisor hold.

use super::Bench;
use crate::Error;
use crate::bus::Service;
use crate::sample::float;
use crate::supervisor::{main_pid, memory, peak_during, restart};

const FRAME_MAX: (&str, usize) = ("1M", 1024);
const MEBIBYTES: usize = 1 << 20;

pub(super) fn measure(bench: &mut Bench) -> Result<(), Error> {
    let plugin = bench.plugins.add("flood", FRAME_MAX.0)?;
    let tenth = bench.either(10, 1);
    let floods = [
        ("flood-stderr", 200 * MEBIBYTES / tenth),
        ("flood-progress", 100 * MEBIBYTES / tenth),
        ("flood-stdout-junk", 100 * MEBIBYTES / tenth),
        ("endless-line", 100 * MEBIBYTES / tenth),
        ("big-reply", 100 * MEBIBYTES / tenth),
    ];
    let mut worst = 0.0_f64;
    for (command, bytes) in floods {
        // A supervisor that has not held much before: what it keeps for later would hide what it needs now.
        restart()?;
        bench.bus.call(Service::Supervisor, &plugin, "echo", "{}")?;
        let pid = main_pid()?;
        let before = memory(pid)?.rss;
        let arguments = format!(r#"{{"bytes":{bytes}}}"#);
        let (answer, peak) = peak_during(pid, || {
            let answer = bench.bus.call(Service::Supervisor, &plugin, command, &arguments);
            // The call may be refused at the first bad line: this one waits until the plugin is through, or is gone.
            let _ = bench.bus.call(Service::Supervisor, &plugin, "echo", "{}");
            answer
        })?;
        // Refusals are right answers to most of them.
        let answer = answer.unwrap_or_else(|cause| cause.to_string());
        let frames = float(peak.saturating_sub(before)) / float(FRAME_MAX.1);
        eprintln!("{command}: {frames:.2} frames; answered: {answer}");
        bench.report.raw(&format!("{command}_growth_frames"), frames);
        worst = worst.max(frames);
    }
    bench.report.value("flood_growth_frames", worst);
    Ok(())
}
