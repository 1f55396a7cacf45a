//! Samples, and what is told of them.

use std::time::Duration;

/// The times of one round.
#[derive(Debug, Default, Clone)]
pub struct Samples(Vec<Duration>);

impl Samples {
    /// Takes one more.
    pub fn push(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// The time that so many per cent of the samples do not exceed, in microseconds; not a number for no samples.
    #[must_use]
    pub fn percentile(&mut self, percent: usize) -> f64 {
        self.0.sort_unstable();
        let last = self.0.len().saturating_sub(1);
        self.0.get(last * percent / 100).map_or(f64::NAN, |time| micros(*time))
    }
}

/// Microseconds.
#[must_use]
pub fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// The middle one; not a number for none.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A count as a factor.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "counts of a bench are far below 2^52")]
pub fn float(count: usize) -> f64 {
    count as f64
}

/// How often per second.
#[must_use]
pub fn rate(count: usize, time: Duration) -> f64 {
    float(count) / time.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_samples_and_none_of_none() {
        let mut samples = Samples::default();
        assert!(samples.percentile(50).is_nan());
        for time in [5, 1, 4, 2, 3] {
            samples.push(Duration::from_micros(time));
        }
        let all: Vec<f64> = [0, 50, 99, 100].into_iter().map(|percent| samples.percentile(percent)).collect();
        assert_eq!(format!("{all:.0?}"), "[1, 3, 4, 5]");
    }

    #[test]
    fn one_wild_round_does_not_move_the_median() {
        assert!((median(&[3.0, 900.0, 1.0, 2.0, 2.5]) - 2.5).abs() < 1e-9);
    }
}
