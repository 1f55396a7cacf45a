//! The calls that were accepted and not answered yet.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::stream::{Closed, Stream};

/// What is known of one call.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) invocation: String,
    pub(crate) caller: String,
    pub(crate) dry_run: bool,
    pub(crate) deadline: Instant,
    pub(crate) cancelled: AtomicBool,
    pub(crate) stream: Stream,
}

impl State {
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
        self.stream.close(Closed::Cancelled);
    }
}

/// The accepted calls, for `$/cancel`, for the bound on them, and for an orderly end.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    calls: Mutex<Vec<Arc<State>>>,
    emptied: Condvar,
}

impl Pending {
    /// Takes a call in, unless `limit` calls are in already.
    pub(crate) fn admit(&self, call: &Arc<State>, limit: usize) -> bool {
        let mut calls = self.lock();
        if calls.len() >= limit {
            return false;
        }
        calls.push(Arc::clone(call));
        true
    }

    /// The call was answered.
    pub(crate) fn done(&self, call: &Arc<State>) {
        let mut calls = self.lock();
        calls.retain(|other| !Arc::ptr_eq(other, call));
        if calls.is_empty() {
            self.emptied.notify_all();
        }
    }

    /// Marks the calls of that invocation.
    pub(crate) fn cancel(&self, invocation: &str) {
        self.lock().iter().filter(|call| call.invocation == invocation).for_each(|call| call.cancel());
    }

    /// Lets the calls of that invocation send so many more chunks.
    pub(crate) fn credit(&self, invocation: &str, chunks: u64) {
        let calls = self.lock();
        calls.iter().filter(|call| call.invocation == invocation).for_each(|call| call.stream.add(chunks));
    }

    /// The input ended: whoever waits for credit waits for nothing.
    pub(crate) fn end_credit(&self) {
        self.lock().iter().for_each(|call| call.stream.close(Closed::InputEnded));
    }

    /// Marks every call.
    pub(crate) fn cancel_all(&self) {
        self.lock().iter().for_each(|call| call.cancel());
    }

    /// Waits until every call was answered, but not past `limit`.
    pub(crate) fn wait_until_empty(&self, limit: Instant) {
        let time = limit.saturating_duration_since(Instant::now());
        // The caller goes on either way.
        let _ = self.emptied.wait_timeout_while(self.lock(), time, |calls| !calls.is_empty());
    }

    /// When the last of the calls must have been answered; now, without any.
    pub(crate) fn last_deadline(&self) -> Instant {
        self.lock().iter().map(|call| call.deadline).max().unwrap_or_else(Instant::now)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<State>>> {
        // No code of ours panics while it holds the lock, so the list is whole.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
