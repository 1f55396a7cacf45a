//! From counters at two moments to rates.

use std::time::Duration;

use serde::Serialize;

use crate::model::Plugin;

/// What happened between two looks. A number is none where the supervisor does not say it, or where there is only one
/// look so far.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Round {
    pub(super) seconds: f64,
    pub(super) total: Total,
    pub(super) plugins: Vec<Row>,
}

/// One plugin's part of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) state: String,
    pub(super) calls: u64,
    pub(super) errors: u64,
    pub(super) calls_per_second: Option<f64>,
    pub(super) errors_per_second: Option<f64>,
    pub(super) latency_p50_us: Option<u64>,
    pub(super) latency_p99_us: Option<u64>,
    pub(super) in_flight: Option<u32>,
    pub(super) queued: Option<u32>,
    pub(super) bytes_in_per_second: Option<f64>,
    pub(super) bytes_out_per_second: Option<f64>,
    /// Of one core.
    pub(super) cpu_percent: Option<f64>,
    pub(super) memory_current: Option<u64>,
    pub(super) tasks_current: Option<u64>,
}

/// All plugins together.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Total {
    pub(super) plugins: usize,
    pub(super) active: usize,
    pub(super) calls: u64,
    pub(super) errors: u64,
    pub(super) calls_per_second: Option<f64>,
    pub(super) errors_per_second: Option<f64>,
    pub(super) in_flight: Option<u64>,
    pub(super) queued: Option<u64>,
    pub(super) bytes_in_per_second: Option<f64>,
    pub(super) bytes_out_per_second: Option<f64>,
    pub(super) cpu_percent: Option<f64>,
    pub(super) memory_current: Option<u64>,
    pub(super) tasks_current: Option<u64>,
}

impl Round {
    /// One look alone has no rates.
    pub(super) fn first(now: &[Plugin]) -> Round {
        Round::between(&[], now, Duration::ZERO)
    }

    /// From the counters of two looks with so much time between them.
    pub(super) fn between(last: &[Plugin], now: &[Plugin], time: Duration) -> Round {
        let plugins: Vec<Row> = now
            .iter()
            .map(|plugin| Row::of(last.iter().find(|last| last.name == plugin.name), plugin, time))
            .collect();
        Round { seconds: rounded(time.as_secs_f64()), total: Total::of(&plugins), plugins }
    }
}

impl Row {
    fn of(last: Option<&Plugin>, now: &Plugin, time: Duration) -> Row {
        let rate = |counter: fn(&Plugin) -> Option<u64>| {
            let last = last.and_then(counter)?;
            per_second(last, counter(now)?, time)
        };
        Row {
            name: now.name.clone(),
            state: now.state.clone(),
            calls: now.calls,
            errors: now.errors,
            calls_per_second: rate(|plugin| Some(plugin.calls)),
            errors_per_second: rate(|plugin| Some(plugin.errors)),
            latency_p50_us: now.latency_p50_us,
            latency_p99_us: now.latency_p99_us,
            in_flight: now.in_flight,
            queued: now.queued,
            bytes_in_per_second: rate(|plugin| plugin.bytes_in),
            bytes_out_per_second: rate(|plugin| plugin.bytes_out),
            // A hundredth of a second of work within a second is one percent.
            cpu_percent: rate(|plugin| plugin.cpu_usage_nsec).map(|nanoseconds| rounded(nanoseconds / 1e7)),
            memory_current: now.memory_current,
            tasks_current: now.tasks_current,
        }
    }
}

impl Total {
    fn of(rows: &[Row]) -> Total {
        Total {
            plugins: rows.len(),
            active: rows.iter().filter(|row| row.state == "active").count(),
            calls: rows.iter().map(|row| row.calls).sum(),
            errors: rows.iter().map(|row| row.errors).sum(),
            calls_per_second: sum(rows, |row| row.calls_per_second),
            errors_per_second: sum(rows, |row| row.errors_per_second),
            in_flight: count(rows, |row| row.in_flight.map(u64::from)),
            queued: count(rows, |row| row.queued.map(u64::from)),
            bytes_in_per_second: sum(rows, |row| row.bytes_in_per_second),
            bytes_out_per_second: sum(rows, |row| row.bytes_out_per_second),
            cpu_percent: sum(rows, |row| row.cpu_percent),
            memory_current: count(rows, |row| row.memory_current),
            tasks_current: count(rows, |row| row.tasks_current),
        }
    }
}

/// The sum of what is known; none where nothing is.
fn sum(rows: &[Row], number: impl Fn(&Row) -> Option<f64>) -> Option<f64> {
    rows.iter().filter_map(number).reduce(|a, b| rounded(a + b))
}

fn count(rows: &[Row], number: impl Fn(&Row) -> Option<u64>) -> Option<u64> {
    rows.iter().filter_map(number).reduce(u64::saturating_add)
}

/// A counter that went back began anew: how much was counted since is not known.
#[allow(clippy::cast_precision_loss, reason = "a rate of more than 2^53 is not exact to one")]
fn per_second(last: u64, now: u64, time: Duration) -> Option<f64> {
    let grown = now.checked_sub(last)?;
    (!time.is_zero()).then(|| rounded(grown as f64 / time.as_secs_f64()))
}

/// Two decimals: what is behind them is noise.
fn rounded(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin(name: &str, calls: u64, cpu: Option<u64>) -> Plugin {
        Plugin {
            name: name.into(),
            state: "active".into(),
            calls,
            cpu_usage_nsec: cpu,
            bytes_in: Some(calls * 100),
            in_flight: Some(1),
            ..Plugin::default()
        }
    }

    #[test]
    fn rates_are_what_was_counted_by_the_time_it_took() {
        let last = [plugin("a", 10, Some(0)), plugin("b", 5, None)];
        let now = [plugin("a", 40, Some(500_000_000)), plugin("b", 5, Some(7))];
        let round = Round::between(&last, &now, Duration::from_secs(2));
        let [a, b] = &round.plugins[..] else { panic!("two plugins") };
        assert_eq!(
            (a.calls_per_second, a.bytes_in_per_second, a.cpu_percent),
            (Some(15.0), Some(1500.0), Some(25.0))
        );
        assert_eq!((b.calls_per_second, b.cpu_percent, b.bytes_out_per_second), (Some(0.0), None, None));
        let Total { calls, calls_per_second, cpu_percent, in_flight, queued, active, .. } = round.total;
        assert_eq!((calls, calls_per_second, cpu_percent), (45, Some(15.0), Some(25.0)));
        assert_eq!((in_flight, queued, active), (Some(2), None, 2));
    }

    #[test]
    fn one_look_a_newcomer_and_a_counter_that_began_anew_have_no_rate() {
        let first = Round::first(&[plugin("a", 10, Some(0))]);
        assert_eq!((first.plugins[0].calls_per_second, first.total.calls_per_second), (None, None));
        let last = [plugin("a", 10, Some(9))];
        let now = [plugin("a", 3, Some(1)), plugin("new", 3, Some(1))];
        let round = Round::between(&last, &now, Duration::from_secs(1));
        assert!(round.plugins.iter().all(|row| row.calls_per_second.is_none() && row.cpu_percent.is_none()));
    }

    #[test]
    fn json_has_null_where_there_is_no_number() {
        let value = serde_json::to_value(Round::first(&[plugin("a", 10, None)])).unwrap();
        assert_eq!(value["plugins"][0]["name"], "a");
        assert!(value["plugins"][0]["cpu_percent"].is_null() && value["total"]["cpu_percent"].is_null());
    }
}
