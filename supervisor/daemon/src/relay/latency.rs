//! How long calls take: a histogram of the last one to two minutes.

use std::time::Duration;

use tokio::time::Instant;

/// Each power of two is cut in this many parts: a figure is at most an eighth too high.
const PARTS: usize = 8;

/// From a microsecond to 2^29 of them, which is longer than any call may take.
const POWERS: usize = 29;

const BUCKETS: usize = POWERS * PARTS;

/// After this time the older half is forgotten.
const HALF: Duration = Duration::from_secs(60);

/// Two halves: the one that is filled now and the one before it. Nothing is kept before the first call.
#[derive(Debug, Default)]
pub(super) struct Latency {
    halves: Option<Box<Halves>>,
}

#[derive(Debug)]
struct Halves {
    now: [u32; BUCKETS],
    before: [u32; BUCKETS],
    began: Instant,
}

impl Latency {
    /// A call took this long.
    pub(super) fn add(&mut self, taken: Duration, now: Instant) {
        let halves = self
            .halves
            .get_or_insert_with(|| Box::new(Halves { now: [0; BUCKETS], before: [0; BUCKETS], began: now }));
        halves.turn(now);
        let count = &mut halves.now[bucket(taken)];
        *count = count.saturating_add(1);
    }

    /// The time in microseconds that this share of the calls did not exceed, to an eighth; `None` without calls.
    pub(super) fn quantile(&mut self, share: f64, now: Instant) -> Option<u64> {
        let halves = self.halves.as_mut()?;
        halves.turn(now);
        let counts = || halves.now.iter().zip(&halves.before).map(|(a, b)| u64::from(*a) + u64::from(*b));
        let total: u64 = counts().sum();
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count of calls times a share of it"
        )]
        let rank = ((total as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        let at = counts().position(|count| {
            seen += count;
            seen >= rank
        })?;
        Some(upper_end(at))
    }
}

impl Halves {
    fn turn(&mut self, now: Instant) {
        let age = now.saturating_duration_since(self.began);
        if age < HALF {
            return;
        }
        self.before = if age < 2 * HALF { self.now } else { [0; BUCKETS] };
        self.now = [0; BUCKETS];
        self.began = now;
    }
}

/// Below eight microseconds each has a bucket; above, a power of two has eight.
fn bucket(taken: Duration) -> usize {
    let micros = usize::try_from(taken.as_micros()).unwrap_or(usize::MAX).max(1);
    if micros < PARTS {
        return micros;
    }
    let power = micros.ilog2() as usize;
    let part = (micros >> (power - 3)) & (PARTS - 1);
    ((power - 2) * PARTS + part).min(BUCKETS - 1)
}

fn upper_end(bucket: usize) -> u64 {
    if bucket < PARTS {
        return bucket as u64;
    }
    let (power, part) = (bucket / PARTS + 2, bucket % PARTS);
    (((PARTS + part + 1) as u64) << (power - 3)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_shown_at_most_an_eighth_too_high() {
        for micros in (1..5000).chain([65_536, 1_000_000, 29_999_999, 300_000_000]) {
            let shown = upper_end(bucket(Duration::from_micros(micros)));
            assert!(shown >= micros && shown <= micros + micros / 8, "{micros}: {shown}");
        }
        assert_eq!(bucket(Duration::from_secs(100_000)), BUCKETS - 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_older_than_two_minutes_is_forgotten() {
        let mut latency = Latency::default();
        assert_eq!(latency.quantile(0.5, Instant::now()), None);
        for micros in 1..=100 {
            latency.add(Duration::from_micros(micros), Instant::now());
        }
        assert_eq!(latency.quantile(0.5, Instant::now()), Some(51));
        assert_eq!(latency.quantile(0.99, Instant::now()), Some(103));
        tokio::time::advance(Duration::from_secs(61)).await;
        latency.add(Duration::from_millis(5), Instant::now());
        assert_eq!(latency.quantile(0.5, Instant::now()), Some(51), "the minute before still counts");
        tokio::time::advance(Duration::from_secs(61)).await;
        assert_eq!(latency.quantile(0.5, Instant::now()), Some(5119));
        tokio::time::advance(Duration::from_secs(200)).await;
        assert_eq!(latency.quantile(0.5, Instant::now()), None);
    }
}
