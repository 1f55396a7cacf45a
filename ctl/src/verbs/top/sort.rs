//! The order of the rows, and the keys that change it.

use std::cmp::Ordering;

use super::rates::Row;
use crate::cli::SortKey;

/// The letter of each key, and its word in the footer.
pub(super) const LETTERS: [(char, &str, SortKey); 9] = [
    ('n', "name", SortKey::Name),
    ('c', "calls", SortKey::Calls),
    ('e', "errors", SortKey::Errors),
    ('l', "latency", SortKey::Latency),
    ('f', "in flight", SortKey::InFlight),
    ('u', "queued", SortKey::Queued),
    ('b', "bytes", SortKey::Bytes),
    ('p', "CPU", SortKey::Cpu),
    ('m', "memory", SortKey::Memory),
];

/// The key that a letter asks for; as a capital, too.
pub(super) fn by_letter(letter: char) -> Option<SortKey> {
    let letter = letter.to_ascii_lowercase();
    LETTERS.into_iter().find(|(own, _, _)| *own == letter).map(|(_, _, key)| key)
}

/// How a key is called.
pub(super) fn word(key: SortKey) -> &'static str {
    LETTERS.into_iter().find(|(_, _, own)| *own == key).map_or("", |(_, word, _)| word)
}

/// Sorts; equals, and what has no number, go by their names.
pub(super) fn sort(rows: &mut [Row], key: SortKey) {
    rows.sort_by(|a, b| down(key, a, b).then_with(|| a.name.cmp(&b.name)));
}

/// The largest first, and those that have no number last.
fn down(key: SortKey, a: &Row, b: &Row) -> Ordering {
    match key {
        SortKey::Name => Ordering::Equal,
        // Between two rates that are the same, the older counter tells who did more.
        SortKey::Calls => float(a.calls_per_second, b.calls_per_second).then(b.calls.cmp(&a.calls)),
        SortKey::Errors => float(a.errors_per_second, b.errors_per_second).then(b.errors.cmp(&a.errors)),
        SortKey::Latency => b.latency_p99_us.cmp(&a.latency_p99_us),
        SortKey::InFlight => b.in_flight.cmp(&a.in_flight),
        SortKey::Queued => b.queued.cmp(&a.queued),
        SortKey::Bytes => float(bytes(a), bytes(b)),
        SortKey::Cpu => float(a.cpu_percent, b.cpu_percent),
        SortKey::Memory => b.memory_current.cmp(&a.memory_current),
    }
}

/// Rates are never negative, so that -1 is less than all of them.
fn float(a: Option<f64>, b: Option<f64>) -> Ordering {
    b.unwrap_or(-1.0).total_cmp(&a.unwrap_or(-1.0))
}

fn bytes(row: &Row) -> Option<f64> {
    Some(row.bytes_in_per_second? + row.bytes_out_per_second?)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    fn rows() -> Vec<Row> {
        let row = |name: &str, rate, calls, memory| Row {
            name: name.into(),
            calls_per_second: rate,
            calls,
            memory_current: memory,
            ..Row::default()
        };
        vec![
            row("b", Some(1.5), 3, None),
            row("d", None, 9, Some(1)),
            row("a", Some(1.5), 3, Some(7)),
            row("c", Some(1.5), 4, Some(70)),
        ]
    }

    fn sorted(key: SortKey) -> String {
        let mut rows = rows();
        sort(&mut rows, key);
        rows.iter().map(|row| row.name.as_str()).collect()
    }

    #[test]
    fn numbers_go_down_and_names_up_and_the_unknown_is_last() {
        assert_eq!(sorted(SortKey::Name), "abcd");
        assert_eq!(sorted(SortKey::Calls), "cabd");
        assert_eq!(sorted(SortKey::Memory), "cadb");
        assert_eq!(sorted(SortKey::Cpu), "abcd");
    }

    #[test]
    fn every_key_has_a_letter_of_its_own_that_does_not_quit() {
        let mut letters: Vec<char> = LETTERS.iter().map(|(letter, _, _)| *letter).collect();
        letters.sort_unstable();
        letters.dedup();
        assert_eq!(letters.len(), SortKey::value_variants().len());
        assert!(!letters.contains(&'q'));
        for key in SortKey::value_variants() {
            assert!(!word(*key).is_empty());
        }
        assert_eq!((by_letter('M'), by_letter('x')), (Some(SortKey::Memory), None));
    }
}
