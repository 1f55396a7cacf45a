//! Numbers as people read and write them, in systemd's manner.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A span such as `30s`, `500ms`, `1min 30s`, or a plain number of seconds; more than zero, at most a day.
pub(crate) fn parse_span(text: &str) -> Result<Duration, String> {
    let mut total = Duration::ZERO;
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err("a span of time, such as 30s or 2min, is missing".into());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let number: u64 = number.parse().map_err(|_| format!("`{rest}` does not begin with a number"))?;
        let letters = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let milliseconds = match unit {
            "ms" | "msec" => 1,
            "" | "s" | "sec" => 1000,
            "m" | "min" => 60 * 1000,
            "h" | "hr" => 3600 * 1000,
            _ => return Err(format!("`{unit}` is no unit of time: use ms, s, min or h")),
        };
        total = total.saturating_add(Duration::from_millis(number.saturating_mul(milliseconds)));
        rest = tail.trim_start();
    }
    if total.is_zero() || total > Duration::from_secs(24 * 3600) {
        return Err("the span must be more than zero and at most 24h".into());
    }
    Ok(total)
}

/// A span as systemd shows it, the two largest units: `3min 2s`, `12ms`, `1d 4h`.
pub(crate) fn span(duration: Duration) -> String {
    const UNITS: [(&str, u128); 6] = [
        ("d", 24 * 3600 * 1_000_000),
        ("h", 3600 * 1_000_000),
        ("min", 60 * 1_000_000),
        ("s", 1_000_000),
        ("ms", 1000),
        ("us", 1),
    ];
    let mut rest = duration.as_micros();
    let mut parts = Vec::new();
    for (unit, size) in UNITS {
        let count = rest / size;
        // Below a second the next smaller unit says nothing.
        if count > 0 {
            parts.push(format!("{count}{unit}"));
            rest %= size;
        }
        if parts.len() == 2 || (!parts.is_empty() && size <= 1_000_000) {
            break;
        }
    }
    if parts.is_empty() { "0".into() } else { parts.join(" ") }
}

/// How long something took, in microseconds, with three digits: `37us`, `1.25ms`, `12.5ms`, `1.25s`.
pub(crate) fn latency(micros: u64) -> String {
    // What does not fit is cut off: rounding could reach the next unit.
    let three = |unit: u64, name: &str| match micros / unit {
        whole if whole < 10 => format!("{whole}.{:02}{name}", micros % unit * 100 / unit),
        whole if whole < 100 => format!("{whole}.{}{name}", micros % unit * 10 / unit),
        whole => format!("{whole}{name}"),
    };
    match micros {
        0..1000 => format!("{micros}us"),
        1000..1_000_000 => three(1000, "ms"),
        _ => three(1_000_000, "s"),
    }
}

/// A rate or a share: two decimals below ten, one below a hundred, none above.
pub(crate) fn decimal(number: f64) -> String {
    let digits = match number {
        _ if number < 9.995 => 2,
        _ if number < 99.95 => 1,
        _ => 0,
    };
    format!("{number:.digits$}")
}

/// Bytes as systemd shows them: `512.0K`, `1.2M`, `37B`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)];
    for (unit, size) in UNITS {
        if count >= size {
            return format!("{}.{}{unit}", count / size, count % size * 10 / size);
        }
    }
    format!("{count}B")
}

/// A moment, in microseconds since 1970, as `Mon 2026-11-30 20:05:11 UTC; 3min 2s ago`.
pub(crate) fn moment(micros: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let then = Duration::from_micros(micros);
    match now.checked_sub(then) {
        Some(past) if past < Duration::from_secs(1) => format!("{}; just now", date(micros)),
        Some(past) => format!("{}; {} ago", date(micros), span(Duration::from_secs(past.as_secs()))),
        None => date(micros),
    }
}

/// The date in UTC: the zone's name is there, so that nobody takes it for local time.
fn date(micros: u64) -> String {
    const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    let seconds = micros / 1_000_000;
    let days = seconds / 86_400;
    let weekday = WEEKDAYS.iter().cycle().nth(usize::try_from(days % 7).unwrap_or(0)).unwrap_or(&"");
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{weekday} {year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// Days since 1970-01-01 as a date of the Gregorian calendar. Years are counted from March, so that the leap day is
/// the last of its year, in eras of 400 years (146 097 days).
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_as_systemd_reads_them() {
        for (text, milliseconds) in [
            ("30s", 30_000),
            ("500ms", 500),
            ("2min", 120_000),
            ("1min 30s", 90_000),
            ("1h30m", 5_400_000),
            ("5", 5000),
        ] {
            assert_eq!(parse_span(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in
            ["", "0", "0s", "s", "-1s", "1x", "1.5s", "25h", "99999999999999999999s", "18446744073709551615h"]
        {
            assert!(parse_span(text).is_err(), "{text}");
        }
    }

    #[test]
    fn spans_show_their_two_largest_units() {
        for (milliseconds, text) in [
            (0, "0"),
            (12, "12ms"),
            (1_500, "1s"),
            (182_000, "3min 2s"),
            (3_600_000, "1h"),
            (100_800_000, "1d 4h"),
        ] {
            assert_eq!(span(Duration::from_millis(milliseconds)), text);
        }
        assert_eq!(span(Duration::from_micros(7)), "7us");
    }

    #[test]
    fn latencies_and_rates_have_three_digits() {
        for (micros, text) in [
            (0, "0us"),
            (999, "999us"),
            (1000, "1.00ms"),
            (1254, "1.25ms"),
            (12_599, "12.5ms"),
            (999_999, "999ms"),
            (1_250_000, "1.25s"),
            (75_000_000, "75.0s"),
            (3_600_000_000, "3600s"),
        ] {
            assert_eq!(latency(micros), text);
        }
        for (number, text) in
            [(0.0, "0.00"), (9.994, "9.99"), (9.996, "10.0"), (99.96, "100"), (12_345.6, "12346")]
        {
            assert_eq!(decimal(number), text);
        }
    }

    #[test]
    fn bytes_have_one_decimal() {
        assert_eq!(bytes(0), "0B");
        assert_eq!(bytes(1023), "1023B");
        assert_eq!(bytes(1024), "1.0K");
        assert_eq!(bytes(512 << 20), "512.0M");
        assert_eq!(bytes((1 << 30) + (1 << 29)), "1.5G");
        assert!(bytes(u64::MAX).ends_with('T'));
    }

    #[test]
    fn dates_are_the_calendars() {
        assert_eq!(date(0), "Thu 1970-01-01 00:00:00 UTC");
        assert_eq!(date(951_782_400_000_000), "Tue 2000-02-29 00:00:00 UTC");
        assert_eq!(date(1_796_069_111_000_000), "Mon 2026-11-30 20:05:11 UTC");
        assert_eq!(date(4_107_542_399_000_000), "Sun 2100-02-28 23:59:59 UTC");
        assert_eq!(date(4_107_542_400_000_000), "Mon 2100-03-01 00:00:00 UTC");
    }
}
