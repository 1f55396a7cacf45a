//! The chunks of one call: in which order they go, and how many of them may.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::failure::{Failure, code};

/// What a call may still send in chunks.
#[derive(Debug)]
pub(crate) struct Stream {
    /// Whether the caller takes chunks at all.
    wanted: bool,
    /// The number of the next chunk; held while one is sent, so that chunks of several threads keep their order.
    next: Mutex<u64>,
    credit: Mutex<Credit>,
    changed: Condvar,
}

#[derive(Debug)]
struct Credit {
    left: u64,
    /// Why no more will come.
    closed: Option<Closed>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closed {
    /// The call was taken back: what is left of the credit is of no use either.
    Cancelled,
    /// The input ended. What is left may be used.
    InputEnded,
}

impl Stream {
    pub(crate) fn new(credit: u64) -> Stream {
        Stream {
            wanted: credit > 0,
            next: Mutex::default(),
            credit: Mutex::new(Credit { left: credit, closed: None }),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// The caller takes so many more.
    pub(crate) fn add(&self, chunks: u64) {
        let mut credit = lock(&self.credit);
        credit.left = credit.left.saturating_add(chunks);
        self.changed.notify_all();
    }

    /// No more credit comes; the first reason stays unless it is a weaker one.
    pub(crate) fn close(&self, why: Closed) {
        let mut credit = lock(&self.credit);
        if credit.closed != Some(Closed::Cancelled) {
            credit.closed = Some(why);
        }
        self.changed.notify_all();
    }

    /// Sends one chunk: `line` is given its number and makes its frame, `write` writes it once there is credit.
    pub(crate) fn send<L>(
        &self,
        deadline: Instant,
        line: impl FnOnce(u64) -> Result<L, Failure>,
        write: impl FnOnce(L),
    ) -> Result<(), Failure> {
        if !self.wanted {
            return Err(Failure::new("the caller takes no chunks: see Call::takes_chunks"));
        }
        let mut next = lock(&self.next);
        let line = line(*next)?;
        self.take(deadline)?;
        write(line);
        *next += 1;
        Ok(())
    }

    /// Takes credit for one chunk, as soon as there is any.
    fn take(&self, deadline: Instant) -> Result<(), Failure> {
        let mut credit = lock(&self.credit);
        loop {
            let time = deadline.saturating_duration_since(Instant::now());
            match credit.closed {
                Some(Closed::Cancelled) => return Err(Failure::cancelled()),
                _ if time.is_zero() => {
                    let message = "the deadline passed before the last chunk";
                    return Err(Failure::of(code::CANCELLED, message));
                }
                _ if credit.left > 0 => break,
                Some(Closed::InputEnded) => {
                    return Err(Failure::of(code::CANCELLED, "nobody is left to take chunks"));
                }
                None => {}
            }
            let waited = self.changed.wait_timeout(credit, time);
            (credit, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        credit.left -= 1;
        Ok(())
    }
}

/// Neither number is ever half changed, so a panic elsewhere leaves them whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
