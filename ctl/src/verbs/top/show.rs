//! One round as a table for people, and as plain numbers for programs.

use std::time::Duration;

use super::rates::{Round, Row, Total};
use super::sort::{self, LETTERS};
use crate::cli::SortKey;
use crate::colour::{Style, Tone, tone_of_state};
use crate::human;
use crate::table::{Cell, Table};

const HEADINGS: [&str; 13] = [
    "NAME", "STATE", "CALLS/S", "ERR/S", "P50", "P99", "FLIGHT", "QUEUED", "IN/S", "OUT/S", "CPU%", "MEMORY",
    "TASKS",
];

/// What is not known.
const NONE: &str = "-";

/// What the lines around the table say.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) style: Style,
    /// Totals, headings and the footer.
    pub(super) legend: bool,
    pub(super) sort: SortKey,
    pub(super) delay: Duration,
    /// Keys can be pressed.
    pub(super) keys: bool,
}

/// The lines of a window of this height. What has no room is counted in the last line.
pub(super) fn window(round: &Round, frame: &Frame, height: usize) -> Vec<String> {
    let mut lines = whole(round, frame);
    let footer = (frame.legend && frame.keys).then(footer);
    let room = height.saturating_sub(footer.iter().len()).max(1);
    if lines.len() > room {
        let cut = lines.len() - (room - 1);
        lines.truncate(room - 1);
        lines.push(frame.style.paint(Tone::Faint, &format!("… and {cut} more")));
    }
    if let Some(text) = footer
        && lines.len() < height
    {
        // The footer keeps to the last line.
        lines.resize(height - 1, String::new());
        lines.push(frame.style.paint(Tone::Faint, &text));
    }
    lines
}

/// The totals and the table.
pub(super) fn whole(round: &Round, frame: &Frame) -> Vec<String> {
    let mut lines = Vec::new();
    if frame.legend {
        lines.extend(header(&round.total, frame));
        lines.push(String::new());
    }
    let mut table = Table::new(&HEADINGS);
    for row in &round.plugins {
        table.push(cells(row));
    }
    lines.extend(table.lines(frame.style, frame.legend).iter().map(|line| line.trim_end().to_owned()));
    lines
}

fn header(total: &Total, frame: &Frame) -> [String; 3] {
    let Total { plugins, active, calls, errors, .. } = total;
    [
        format!(
            "{} - {active} of {plugins} plugins active, sorted by {}, every {}",
            frame.style.paint(Tone::Strong, "pluginctl top"),
            sort::word(frame.sort),
            human::span(frame.delay)
        ),
        format!(
            "Calls: {}/s, {} failed/s, {} in flight, {} queued; {calls} in all, {errors} failed",
            rate(total.calls_per_second),
            rate(total.errors_per_second),
            whole_number(total.in_flight),
            whole_number(total.queued),
        ),
        format!(
            "Bytes: {}/s in, {}/s out; CPU: {}%; memory: {}; tasks: {}",
            bytes_rate(total.bytes_in_per_second),
            bytes_rate(total.bytes_out_per_second),
            rate(total.cpu_percent),
            or_none(total.memory_current, human::bytes),
            whole_number(total.tasks_current),
        ),
    ]
}

fn footer() -> String {
    let letters = LETTERS.map(|(letter, word, _)| format!("{letter} {word}"));
    format!("q quit; sort by: {}", letters.join(", "))
}

fn cells(row: &Row) -> Vec<Cell> {
    let right = |text: String| Cell::new(&text).right();
    let failing = row.errors_per_second.is_some_and(|rate| rate > 0.0);
    let errors = right(rate(row.errors_per_second));
    vec![
        Cell::new(&row.name),
        Cell::new(&row.state).tone(tone_of_state(&row.state)),
        right(rate(row.calls_per_second)),
        if failing { errors.tone(Tone::Bad) } else { errors },
        right(or_none(row.latency_p50_us, human::latency)),
        right(or_none(row.latency_p99_us, human::latency)),
        right(whole_number(row.in_flight)),
        right(whole_number(row.queued)),
        right(bytes_rate(row.bytes_in_per_second)),
        right(bytes_rate(row.bytes_out_per_second)),
        right(rate(row.cpu_percent)),
        right(or_none(row.memory_current, human::bytes)),
        right(whole_number(row.tasks_current)),
    ]
}

/// A line a plugin, numbers as they are, for `sort` and `awk`.
pub(super) fn plain(round: &Round) -> String {
    let mut table = Table::new(&HEADINGS);
    for row in &round.plugins {
        table.push(
            [
                row.name.clone(),
                row.state.clone(),
                or_none(row.calls_per_second, |number| number.to_string()),
                or_none(row.errors_per_second, |number| number.to_string()),
                whole_number(row.latency_p50_us),
                whole_number(row.latency_p99_us),
                whole_number(row.in_flight),
                whole_number(row.queued),
                or_none(row.bytes_in_per_second, |number| number.to_string()),
                or_none(row.bytes_out_per_second, |number| number.to_string()),
                or_none(row.cpu_percent, |number| number.to_string()),
                whole_number(row.memory_current),
                whole_number(row.tasks_current),
            ]
            .iter()
            .map(|text| Cell::new(text))
            .collect(),
        );
    }
    table.tabbed()
}

fn or_none<T>(number: Option<T>, shown: impl Fn(T) -> String) -> String {
    number.map_or_else(|| NONE.to_owned(), shown)
}

fn whole_number(number: Option<impl ToString>) -> String {
    or_none(number, |number| number.to_string())
}

fn rate(number: Option<f64>) -> String {
    or_none(number, human::decimal)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate of bytes is not negative")]
fn bytes_rate(number: Option<f64>) -> String {
    or_none(number, |number| human::bytes(number.round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Plugin;

    const FRAME: Frame = Frame {
        style: Style::TERMINAL,
        legend: true,
        sort: SortKey::Calls,
        delay: Duration::from_secs(1),
        keys: true,
    };

    fn round() -> Round {
        let plugin = |name: &str, calls| Plugin {
            name: name.into(),
            state: "active".into(),
            calls,
            latency_p50_us: Some(254),
            latency_p99_us: Some(1254),
            in_flight: Some(2),
            queued: Some(0),
            bytes_in: Some(calls * 100),
            bytes_out: Some(calls * 10),
            memory_current: Some(1 << 20),
            cpu_usage_nsec: Some(calls * 1_000_000),
            tasks_current: Some(3),
            ..Plugin::default()
        };
        let idle = Plugin { name: "idle\u{1b}".into(), state: "inactive".into(), ..Plugin::default() };
        let last = [plugin("textstats", 0), idle.clone()];
        Round::between(&last, &[plugin("textstats", 100), idle], Duration::from_secs(1))
    }

    #[test]
    fn a_window_has_totals_the_table_and_the_keys() {
        let expected = "\
pluginctl top - 1 of 2 plugins active, sorted by calls, every 1s
Calls: 100/s, 0.00 failed/s, 2 in flight, 0 queued; 100 in all, 0 failed
Bytes: 9.7K/s in, 1000B/s out; CPU: 10.0%; memory: 1.0M; tasks: 3

NAME       STATE    CALLS/S ERR/S   P50    P99 FLIGHT QUEUED IN/S OUT/S CPU% MEMORY TASKS
textstats  active       100  0.00 254us 1.25ms      2      0 9.7K 1000B 10.0   1.0M     3
idle\\u{1b} inactive    0.00  0.00     -      -      -      -    -     -    -      -     -

q quit; sort by: n name, c calls, e errors, l latency, f in flight, u queued, b bytes, p CPU, m memory";
        assert_eq!(window(&round(), &FRAME, 9).join("\n"), expected);
    }

    #[test]
    fn a_low_window_counts_what_it_hides() {
        for height in 1..12 {
            assert!(window(&round(), &FRAME, height).len() <= height.max(1), "{height}");
        }
        let lines = window(&round(), &FRAME, 7);
        assert!(lines[4].starts_with("NAME ") && lines[6].starts_with("q quit"), "{lines:?}");
        assert_eq!(lines[5], "… and 2 more");
        let bare = Frame { legend: false, keys: false, ..FRAME };
        assert_eq!(window(&round(), &bare, 24).len(), 2);
    }

    #[test]
    fn a_pipe_gets_plain_numbers() {
        assert_eq!(
            plain(&round()),
            "textstats\tactive\t100\t0\t254\t1254\t2\t0\t10000\t1000\t10\t1048576\t3\n\
             idle\\u{1b}\tinactive\t0\t0\t-\t-\t-\t-\t-\t-\t-\t-\t-\n"
        );
    }
}
