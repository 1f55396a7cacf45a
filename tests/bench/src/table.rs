//! The table: each row's bar, goal, value, and what it was made of.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::Error;
use crate::report::{LOAD, Report};

/// Which side of the bar is the good one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Better {
    Less,
    More,
}

struct Row {
    key: &'static str,
    what: &'static str,
    better: Better,
    bar: f64,
    goal: f64,
    /// The part of the names of the raw numbers, and their unit.
    raw: (&'static str, &'static str),
}

const fn row(
    key: &'static str,
    what: &'static str,
    (better, bar, goal): (Better, f64, f64),
    raw: (&'static str, &'static str),
) -> Row {
    Row { key, what, better, bar, goal, raw }
}

use Better::{Less, More};

const ROWS: [Row; 14] = [
    row("channel_p50_ratio", "channel call of 200 bytes, p50", (Less, 1.5, 1.15), ("channel_p50", "µs")),
    row("channel_p99_ratio", "channel call of 200 bytes, p99", (Less, 2.0, 1.3), ("channel_p99", "µs")),
    row("pipelined_ratio", "64 in flight, calls per second", (More, 0.55, 0.85), ("pipelined", "/s")),
    row("bulk_ratio", "1 MiB echoed, bytes per second", (More, 0.50, 0.80), ("bulk", "MiB/s")),
    row("dbus_p50_ratio", "D-Bus `Call`, p50", (Less, 1.5, 1.2), ("dbus_p50", "µs")),
    row("cold_start_ratio", "cold start to first answer", (Less, 1.5, 1.2), ("cold_start", "µs")),
    row(
        "warm_vs_spawn",
        "warm call, times faster than a spawned one",
        (More, 50.0, 200.0),
        ("warm_vs_spawn", "µs"),
    ),
    row("rss_mib", "supervisor with one idle plugin, MiB", (Less, 16.0, 10.0), ("rss", "KiB")),
    row("rss_per_plugin_kib", "each further plugin, KiB", (Less, 200.0, 100.0), ("rss_per_plugin", "KiB")),
    row("growth_plugins_ratio", "p50 with most plugins alive to p50 with one", (Less, 1.25, 1.1), ("", "")),
    row("growth_callers_ratio", "time per call of 64 callers to that of one", (Less, 1.25, 1.0), ("", "")),
    row("flood_growth_frames", "supervisor's growth in a flood, frames", (Less, 2.0, 1.0), ("flood", "")),
    row("neighbour_p99_ratio", "neighbour's p99 to its quiet p99", (Less, 1.5, 1.2), ("", "")),
    row("neighbour_p50_ratio", "neighbour's p50 to its quiet p50", (Less, 1.5, 1.2), ("", "")),
];

/// With less than this, nothing else ran when the run began.
const BUSY: f64 = 0.7;

const BEGIN: &str = "<!-- table -->";
const END: &str = "<!-- /table -->";

impl Row {
    fn limit(&self, limit: f64) -> String {
        let sign = if self.better == Less { "≤" } else { "≥" };
        format!("{sign} {limit}")
    }

    fn verdict(&self, value: f64) -> &'static str {
        let meets = |limit: f64| if self.better == Less { value <= limit } else { value >= limit };
        match () {
            () if meets(self.goal) => "goal",
            () if meets(self.bar) => "bar",
            () => "MISSED",
        }
    }

    fn made_of(&self, report: &Report) -> String {
        let (name, unit) = self.raw;
        let of = |which: &str| report.raw.get(&format!("{name}_{which}"));
        match (of("ours"), of("floor")) {
            (Some(ours), Some(floor)) => format!("{} : {} {unit}", short(*ours), short(*floor)),
            _ => String::new(),
        }
    }
}

/// The table in Markdown, which is read as it is, too.
#[must_use]
pub fn markdown(report: &Report) -> String {
    let machine = &report.machine;
    let mut text = format!(
        "Commit {}, {} UTC; kernel {}, {}, {} cores; systemd {}, bubblewrap {}.{}\n\n",
        report.commit,
        report.date,
        machine.kernel,
        machine.cpu,
        machine.cores,
        machine.systemd,
        machine.bubblewrap,
        if report.quick { " A short run: rough numbers." } else { "" },
    );
    match report.raw.get(LOAD) {
        Some(load) if *load > BUSY => {
            let _ = writeln!(text, "The machine was busy (load {}): do not trust p99.\n", short(*load));
        }
        _ => {}
    }
    let mut rows = vec![["what", "bar", "goal", "value", "met", "ours : floor"].map(str::to_owned)];
    for row in &ROWS {
        let (value, verdict) = match report.values.get(row.key) {
            Some(value) => (short(*value), row.verdict(*value)),
            None => ("–".to_owned(), "skipped"),
        };
        let limits = (row.limit(row.bar), row.limit(row.goal));
        rows.push([row.what.to_owned(), limits.0, limits.1, value, verdict.to_owned(), row.made_of(report)]);
    }
    text.push_str(&aligned(&rows));
    for (row, why) in &report.skipped {
        let _ = writeln!(text, "\nSkipped: {row}: {why}");
    }
    if !report.growth.is_empty() {
        let mut rows = vec![["plugins alive", "callers", "p50 µs", "calls per second"].map(str::to_owned)];
        for growth in &report.growth {
            rows.push([
                growth.plugins.to_string(),
                growth.callers.to_string(),
                short(growth.p50_us),
                short(growth.calls_per_second),
            ]);
        }
        text.push('\n');
        text.push_str(&aligned(&rows));
    }
    text
}

/// Every single number, for the terminal.
#[must_use]
pub fn details(report: &Report) -> String {
    report.raw.iter().fold(String::new(), |mut text, (key, value)| {
        let _ = writeln!(text, "{key:40} {}", short(*value));
        text
    })
}

/// Replaces what stands between the table's marks in a file.
pub fn update(file: &Path, table: &str) -> Result<(), Error> {
    let failed = || Error::io(format!("cannot bring {} up to date", file.display()));
    let text = fs::read_to_string(file).map_err(failed())?;
    let parts = text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let Some((before, after)) = parts else {
        let what = format!("{} has no `{BEGIN}` … `{END}`", file.display());
        return Err(Error::Missing { what, hint: "put both marks where the table belongs" });
    };
    fs::write(file, format!("{before}{BEGIN}\n{table}{END}{after}")).map_err(failed())
}

/// Three digits or more.
fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(text, "| {cell:width$} ");
        }
        text.push_str("|\n");
        if number == 0 {
            for width in widths {
                let _ = write!(text, "|{}", "-".repeat(width + 2));
            }
            text.push_str("|\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(key: &str, value: f64) -> Report {
        let mut report = Report::new("abc".to_owned(), false);
        report.value(key, value);
        report
    }

    #[test]
    fn a_value_is_judged_on_the_side_of_the_bar_that_is_better() {
        for (key, value, verdict) in [
            ("channel_p50_ratio", 1.1, "goal"),
            ("channel_p50_ratio", 1.4, "bar"),
            ("channel_p50_ratio", 1.6, "MISSED"),
            ("pipelined_ratio", 0.9, "goal"),
            ("pipelined_ratio", 0.6, "bar"),
            ("pipelined_ratio", 0.5, "MISSED"),
        ] {
            let row = ROWS.iter().find(|row| row.key == key).unwrap();
            assert_eq!(row.verdict(value), verdict, "{key} {value}");
        }
    }

    #[test]
    fn a_row_without_a_value_is_told_with_its_reason() {
        let mut report = report("bulk_ratio", 0.7);
        report.skipped.insert("dbus".to_owned(), "no bus".to_owned());
        let table = markdown(&report);
        assert!(table.contains("Skipped: dbus: no bus"), "{table}");
        assert!(table.contains("0.70"), "{table}");
    }

    #[test]
    fn the_rows_survive_the_file() {
        let text = serde_json::to_string(&report("bulk_ratio", 0.7)).unwrap();
        let back: Report = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&back).unwrap(), text);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap()["bulk_ratio"], 0.7);
    }
}
