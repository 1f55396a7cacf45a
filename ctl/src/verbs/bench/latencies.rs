//! All latencies in bounded memory: counted in buckets that are at most 1/64 of their value wide.

use std::time::Duration;

/// Buckets of each power of two.
const STEPS: u64 = 64;
/// The values below this have a bucket each.
const EXACT: u64 = 2 * STEPS;

/// How often each latency was seen, in microseconds.
#[derive(Debug, Default)]
pub(super) struct Latencies {
    buckets: Vec<u64>,
    count: u64,
    max: u64,
}

impl Latencies {
    /// Counts one more.
    pub(super) fn add(&mut self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bucket = bucket(micros);
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.count += 1;
        self.max = self.max.max(micros);
    }

    /// The time within which so many percent of all were done, in microseconds; none where there is nothing.
    pub(super) fn percentile(&self, percent: u64) -> Option<u64> {
        let rank = (u128::from(self.count) * u128::from(percent)).div_ceil(100).max(1);
        let mut seen = 0_u128;
        let found = self.buckets.iter().position(|count| {
            seen += u128::from(*count);
            seen >= rank
        });
        found.map(|bucket| last_of(bucket).min(self.max))
    }

    /// The longest.
    pub(super) fn max(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max)
    }
}

/// The bucket of a value: of its power of two, the part that its next six bits tell.
fn bucket(value: u64) -> usize {
    let shift = value.max(EXACT / 2).ilog2() - (EXACT / 2).ilog2();
    let bucket = u64::from(shift) * STEPS + (value >> shift);
    usize::try_from(bucket).unwrap_or(usize::MAX)
}

/// The largest value of a bucket.
fn last_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < EXACT {
        return bucket;
    }
    let shift = bucket / STEPS - 1;
    let first = (bucket - shift * STEPS) << shift;
    first + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(micros: impl IntoIterator<Item = u64>) -> Latencies {
        let mut latencies = Latencies::default();
        micros.into_iter().for_each(|micros| latencies.add(Duration::from_micros(micros)));
        latencies
    }

    #[test]
    fn buckets_follow_each_other_and_are_narrow() {
        let mut next = 0_u64;
        for number in 0..=bucket(u64::MAX) {
            assert_eq!(bucket(next), number);
            let last = last_of(number);
            assert_eq!(bucket(last), number);
            assert!(last - next <= next / STEPS, "{next} to {last}");
            next = last.wrapping_add(1);
        }
        assert_eq!(next, 0);
    }

    #[test]
    fn percentiles_of_few_are_those_that_were_seen() {
        assert_eq!((of([]).percentile(50), of([]).max()), (None, None));
        let one = of([77]);
        assert_eq!((one.percentile(50), one.percentile(99), one.max()), (Some(77), Some(77), Some(77)));
        let hundred = of(1..=100);
        assert_eq!(
            (hundred.percentile(50), hundred.percentile(90), hundred.percentile(99)),
            (Some(50), Some(90), Some(99))
        );
    }

    #[test]
    fn percentiles_of_many_are_close_and_never_beyond_the_longest() {
        let many = of((0..100_000).map(|n| n * 10));
        for percent in [50, 90, 99] {
            let (found, exact) = (many.percentile(percent).unwrap(), percent * 10_000);
            assert!(found.abs_diff(exact) <= exact / STEPS, "{percent}: {found}");
        }
        assert_eq!(many.max(), Some(999_990));
        assert_eq!(of([1, 1_000_001]).percentile(99), Some(1_000_001));
        assert_eq!(of([u64::MAX]).percentile(50), Some(u64::MAX));
    }
}
