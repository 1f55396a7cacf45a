//! What an idle plugin costs the supervisor.

use super::Bench;
use crate::Error;
use crate::bus::Service;
use crate::sample::float;
use crate::supervisor::{Memory, main_pid, memory, restart};

pub(super) fn measure(bench: &mut Bench) -> Result<(), Error> {
    let first = bench.plugin()?;
    let one = with_running(bench, std::slice::from_ref(&first))?;
    let count = bench.either(10, 50);
    let further: Vec<String> = (1..=count).map(|number| format!("idle-{number}")).collect();
    let mut all = bench.plugins.add_all(&further, "1M")?;
    all.push(first);
    let many = with_running(bench, &all)?;
    for name in &all[..count] {
        bench.bus.stop(name)?;
    }
    let report = &mut bench.report;
    report.value("rss_mib", float(one.rss) / 1024.0);
    report.value("rss_per_plugin_kib", float(many.rss.saturating_sub(one.rss)) / float(count));
    report.raw("rss_one_plugin_kib", float(one.rss));
    report.raw("rss_one_plugin_anonymous_kib", float(one.anonymous));
    report.raw("rss_all_plugins_kib", float(many.rss));
    report.raw("rss_all_plugins_anonymous_kib", float(many.anonymous));
    Ok(())
}

/// A fresh supervisor's memory after one call of each of these plugins.
fn with_running(bench: &Bench, plugins: &[String]) -> Result<Memory, Error> {
    restart()?;
    for plugin in plugins {
        bench.bus.call(Service::Supervisor, plugin, "echo", "{}")?;
    }
    memory(main_pid()?)
}
