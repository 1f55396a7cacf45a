//! What came of the calls, and the report of it.

use std::collections::BTreeMap;
use std::time::Duration;

use plugind_protocol::{Error, Kind};
use serde::Serialize;

use super::latencies::Latencies;
use crate::page::Page;
use crate::{escape, human};

/// Of an error's message, the most characters that are shown.
const MESSAGE_MAX: usize = 200;

/// The outcomes so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    calls: u64,
    failed: u64,
    /// Of each kind how many, and the first.
    errors: BTreeMap<Kind, (u64, Error)>,
    /// Arguments and results.
    bytes: u64,
    latencies: Latencies,
}

impl Tally {
    /// A call ended, well with so many bytes or not.
    pub(super) fn add(&mut self, outcome: Result<usize, Error>, time: Duration) {
        self.calls += 1;
        match outcome {
            Ok(bytes) => {
                self.bytes += bytes as u64;
                self.latencies.add(time);
            }
            Err(error) => {
                self.failed += 1;
                self.errors.entry(error.kind).or_insert((0, error)).0 += 1;
            }
        }
    }

    /// The most frequent error, where every call failed.
    pub(super) fn failure(&self) -> Option<&Error> {
        let most = self.errors.values().max_by_key(|(count, _)| *count);
        most.filter(|_| self.failed == self.calls).map(|(_, error)| error)
    }
}

/// The report, in the shape that `-o json` prints.
#[derive(Debug, Serialize)]
pub(super) struct Report<'a> {
    plugin: &'a str,
    command: &'a str,
    callers: u32,
    in_flight: u32,
    seconds: f64,
    calls: u64,
    failed: u64,
    errors_by_kind: BTreeMap<Kind, u64>,
    calls_per_second: f64,
    bytes_per_second: f64,
    latency_p50_us: Option<u64>,
    latency_p90_us: Option<u64>,
    latency_p99_us: Option<u64>,
    latency_max_us: Option<u64>,
}

impl<'a> Report<'a> {
    pub(super) fn new(
        plugin: &'a str,
        command: &'a str,
        (callers, in_flight): (u32, u32),
        time: Duration,
        tally: &Tally,
    ) -> Report<'a> {
        let latencies = &tally.latencies;
        Report {
            plugin,
            command,
            callers,
            in_flight,
            seconds: (time.as_secs_f64() * 1e6).round() / 1e6,
            calls: tally.calls,
            failed: tally.failed,
            errors_by_kind: tally.errors.iter().map(|(kind, (count, _))| (*kind, *count)).collect(),
            calls_per_second: rate(tally.calls - tally.failed, time),
            bytes_per_second: rate(tally.bytes, time),
            latency_p50_us: latencies.percentile(50),
            latency_p90_us: latencies.percentile(90),
            latency_p99_us: latencies.percentile(99),
            latency_max_us: latencies.max(),
        }
    }

    /// The report for people; the tally has the errors' words.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is not negative")]
    pub(super) fn text(&self, tally: &Tally) -> String {
        let Report { plugin, command, callers, in_flight, calls, failed, .. } = self;
        let mut page = Page::default();
        let time = human::latency((self.seconds * 1e6) as u64);
        let plural = if *callers == 1 { "" } else { "s" };
        page.line(format_args!(
            "{plugin}.{command}: {callers} caller{plural}, {in_flight} in flight each, {time}"
        ));
        let calls_per_second = human::decimal(self.calls_per_second);
        page.line(format_args!("      Calls: {calls} ({failed} failed), {calls_per_second}/s"));
        for (number, (kind, (count, error))) in tally.errors.iter().enumerate() {
            let label = if number == 0 { "Errors:" } else { "" };
            let message = escape::short(&error.message, MESSAGE_MAX);
            page.line(format_args!("{label:>12} {kind} {count}, the first: {message}"));
        }
        if let (Some(p50), Some(p90), Some(p99), Some(max)) =
            (self.latency_p50_us, self.latency_p90_us, self.latency_p99_us, self.latency_max_us)
        {
            page.line(format_args!("      Bytes: {}/s", human::bytes(self.bytes_per_second as u64)));
            let [p50, p90, p99, max] = [p50, p90, p99, max].map(human::latency);
            page.line(format_args!("    Latency: p50 {p50}, p90 {p90}, p99 {p99}, max {max}"));
        }
        page.into_text()
    }
}

#[allow(clippy::cast_precision_loss, reason = "a rate of more than 2^53 is not exact to one")]
fn rate(count: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { (count as f64 / time.as_secs_f64() * 100.0).round() / 100.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing(kind: Kind) -> Result<usize, Error> {
        Err(Error::new(kind, format!("it is {kind}\n"), "wait"))
    }

    fn mixed() -> Tally {
        let mut tally = Tally::default();
        for _ in 0..98 {
            tally.add(Ok(2048), Duration::from_micros(100));
        }
        tally.add(Ok(2048), Duration::from_micros(1250));
        for kind in [Kind::TimedOut, Kind::Busy, Kind::Busy] {
            tally.add(failing(kind), Duration::from_secs(9));
        }
        tally
    }

    #[test]
    fn people_get_rates_latencies_and_the_first_of_each_error() {
        let tally = mixed();
        let report = Report::new("demo", "echo", (2, 3), Duration::from_millis(500), &tally);
        let expected = "\
demo.echo: 2 callers, 3 in flight each, 500ms
      Calls: 102 (3 failed), 198/s
     Errors: Busy 2, the first: it is Busy\\n
             TimedOut 1, the first: it is TimedOut\\n
      Bytes: 396.0K/s
    Latency: p50 100us, p90 100us, p99 1.25ms, max 1.25ms
";
        assert_eq!(report.text(&tally), expected);
    }

    #[test]
    fn programs_get_numbers() {
        let tally = mixed();
        let value = serde_json::to_value(Report::new("demo", "echo", (1, 1), Duration::from_secs(1), &tally))
            .unwrap();
        assert_eq!(value["errors_by_kind"], serde_json::json!({"Busy": 2, "TimedOut": 1}));
        assert_eq!((&value["calls"], &value["calls_per_second"]), (&102.into(), &99.0.into()));
        assert_eq!((&value["latency_p50_us"], &value["latency_max_us"]), (&100.into(), &1250.into()));
    }

    #[test]
    fn only_where_every_call_failed_the_most_frequent_error_is_ours() {
        let mut tally = Tally::default();
        assert_eq!(tally.failure(), None);
        for kind in [Kind::TimedOut, Kind::Busy, Kind::Busy] {
            tally.add(failing(kind), Duration::ZERO);
        }
        assert_eq!(tally.failure().map(|error| error.kind), Some(Kind::Busy));
        let report = Report::new("demo", "echo", (1, 1), Duration::ZERO, &tally).text(&tally);
        assert!(!report.contains("Latency") && report.contains("Calls: 3 (3 failed), 0.00/s"), "{report}");
        tally.add(Ok(1), Duration::ZERO);
        assert_eq!(tally.failure(), None);
    }
}
