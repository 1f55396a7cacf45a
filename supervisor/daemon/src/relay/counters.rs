//! What is counted of one plugin, from the supervisor's start on.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use plugind_protocol::Kind;
use tokio::time::Instant;

use super::latency::Latency;

/// Counters of one plugin, over all its instances.
#[derive(Debug)]
pub(crate) struct Counters {
    calls: AtomicU64,
    errors: [AtomicU64; Kind::ALL.len()],
    /// Bytes of frames to the plugin.
    pub(super) bytes_in: AtomicU64,
    /// Bytes of frames from it.
    pub(super) bytes_out: AtomicU64,
    /// Answers, chunks and progress that nobody waits for: late, repeated or invented.
    pub(super) strays: AtomicU64,
    /// Progress that was too fast, or that its caller had no room for.
    pub(super) progress_dropped: AtomicU64,
    latency: Mutex<Latency>,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            calls: AtomicU64::new(0),
            errors: std::array::from_fn(|_| AtomicU64::new(0)),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            strays: AtomicU64::new(0),
            progress_dropped: AtomicU64::new(0),
            latency: Mutex::default(),
        }
    }
}

impl Counters {
    /// A call that came in at `began` has its answer now, with an error of that kind.
    pub(crate) fn answered(&self, error: Option<Kind>, began: Instant, now: Instant) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if let Some(kind) = error {
            self.errors[kind as usize].fetch_add(1, Ordering::Relaxed);
        }
        self.latency
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .add(now.saturating_duration_since(began), now);
    }

    /// Calls that were answered.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Calls whose answer was an error.
    pub(crate) fn errors(&self) -> u64 {
        self.errors.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// The same by kind; kinds without any are left out.
    pub(crate) fn errors_by_kind(&self) -> BTreeMap<&'static str, u64> {
        Kind::ALL
            .iter()
            .map(|kind| (kind.name(), self.errors[*kind as usize].load(Ordering::Relaxed)))
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    /// Bytes of frames to the plugin.
    pub(crate) fn bytes_in(&self) -> u64 {
        self.bytes_in.load(Ordering::Relaxed)
    }

    /// Bytes of frames from the plugin.
    pub(crate) fn bytes_out(&self) -> u64 {
        self.bytes_out.load(Ordering::Relaxed)
    }

    /// What the plugin sent and nobody waited for.
    pub(crate) fn strays(&self) -> u64 {
        self.strays.load(Ordering::Relaxed)
    }

    /// Progress that was left out.
    pub(crate) fn progress_dropped(&self) -> u64 {
        self.progress_dropped.load(Ordering::Relaxed)
    }

    /// The time in microseconds that this share of the recent calls did not exceed.
    pub(crate) fn latency(&self, share: f64) -> Option<u64> {
        self.latency.lock().unwrap_or_else(PoisonError::into_inner).quantile(share, Instant::now())
    }
}
