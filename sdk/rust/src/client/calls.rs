//! The calls that are open on a channel.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use plugind_protocol::Error;
use serde_json::value::RawValue;

use super::events::{Event, Events, Wanted};
use super::fault;

/// The open calls by their ids; what is addressed to none of them is ignored.
#[derive(Debug, Default)]
pub(super) struct Calls {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    open: HashMap<u64, Events>,
    /// Why no more calls are taken.
    ended: Option<Error>,
}

impl Calls {
    /// Opens a call.
    pub(super) fn open(&self, wanted: Wanted) -> Result<u64, Error> {
        let mut table = self.lock();
        if let Some(ended) = &table.ended {
            return Err(fault::not_sent(ended));
        }
        let id = table.next;
        table.next += 1;
        table.open.insert(id, Events::new(wanted));
        Ok(id)
    }

    /// Forgets a call; whether it was still without its end.
    pub(super) fn close(&self, id: u64) -> bool {
        let events = self.lock().open.remove(&id);
        events.is_some_and(|events| !events.is_done())
    }

    /// Whether the call has no end yet.
    pub(super) fn is_running(&self, id: u64) -> bool {
        self.lock().open.get(&id).is_some_and(|events| !events.is_done())
    }

    /// The next event of a call with the credit to give back; `None` for a call whose end was taken.
    pub(super) fn poll(&self, id: u64, context: &Context<'_>) -> Poll<Option<(Event, u32)>> {
        let mut table = self.lock();
        let Some(events) = table.open.get_mut(&id) else { return Poll::Ready(None) };
        let Some((event, back)) = events.take() else {
            events.wake(context.waker());
            return Poll::Pending;
        };
        if matches!(event, Event::Done(_)) {
            table.open.remove(&id);
        }
        Poll::Ready(Some((event, back)))
    }

    /// A call was answered.
    pub(super) fn done(&self, id: u64, result: Result<Box<RawValue>, Error>) {
        wake(self.with(id, |events| events.done(result)));
    }

    /// A call told how far it is.
    pub(super) fn progress(&self, id: u64, data: &RawValue) {
        wake(self.with(id, |events| events.progress(data)));
    }

    /// A call brought a chunk. `false` where that broke a rule: the call is over here, and is to be cancelled there.
    pub(super) fn chunk(&self, id: u64, seq: u64, data: &RawValue) -> bool {
        let mut fine = true;
        wake(self.with(id, |events| {
            events.chunk(seq, data).unwrap_or_else(|cause| {
                fine = false;
                events.done(Err(cause))
            })
        }));
        fine
    }

    /// Ends every call, and those that will be asked for.
    pub(super) fn end(&self, cause: &Error) {
        let mut table = self.lock();
        let ended = table.ended.get_or_insert_with(|| cause.clone()).clone();
        let wakers: Vec<Waker> =
            table.open.values_mut().filter_map(|events| events.done(Err(ended.clone()))).collect();
        drop(table);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Why the channel ended, if it did.
    pub(super) fn ended(&self) -> Option<Error> {
        self.lock().ended.clone()
    }

    fn with(&self, id: u64, change: impl FnOnce(&mut Events) -> Option<Waker>) -> Option<Waker> {
        self.lock().open.get_mut(&id).and_then(change)
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // No code of ours panics while it holds the lock.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes a reader, with no lock held.
fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
