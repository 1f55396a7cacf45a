//! The calls of one plugin: the only owner of those that wait and of those that its instances work on.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasherDefault;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use plugind_protocol::envelope::{self, RpcError};
use plugind_protocol::{Error, Kind};
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::calls::{Call, Invocation, NewCall, Place, Request};
use super::link::{Wire, next_number};
use super::queue::{self, Capacity, Queue};
use super::spread::Spread;
use super::stream::{Credit, Misstep, Pace};
use super::{Batch, Bounds, Counters, End, Sink, plugin_error};

/// Calls that wait for a plugin, whatever their size.
const WAITING_MAX: usize = 1024;

/// Bytes of calls that wait: this many times `frame_max`.
const WAITING_FRAMES: usize = 4;

/// A call waits for a start or for its turn this long at most: a start has 15 s, and twice that for a machine under load.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// All calls of one plugin.
pub(crate) struct Pool {
    plugin: String,
    bounds: Bounds,
    counters: Arc<Counters>,
    state: Mutex<State>,
    /// A call waits and no instance is there.
    wanted: Notify,
    /// The first deadline may have changed.
    sooner: Arc<Notify>,
    reaper: Mutex<Option<JoinHandle<()>>>,
}

/// Why a call is not taken, and who is to be told.
type Refused = (Error, Arc<dyn Sink>);

/// Calls by number.
type Calls = HashMap<u64, Call, BuildHasherDefault<Spread>>;

#[derive(Default)]
struct State {
    calls: Calls,
    /// Numbers whose arguments are still being checked.
    expected: HashSet<u64>,
    queue: Queue,
    /// No call's deadline is before this.
    next_look: Option<Instant>,
    links: Vec<Slot>,
    /// Why nothing is taken.
    refusal: Option<Error>,
}

/// An instance that takes calls.
struct Slot {
    wire: Arc<Wire>,
    in_flight: usize,
    /// It finishes what it has and gets nothing new.
    retired: bool,
}

/// The caller's hold on its call.
#[derive(Clone)]
pub(crate) struct Ticket {
    pool: Weak<Pool>,
    number: u64,
}

impl Ticket {
    /// Takes the call back: it is answered with `Cancelled`, and the plugin is told why.
    pub(crate) fn cancel(&self, reason: &str, batch: &mut Batch) {
        if let Some(pool) = self.pool.upgrade() {
            pool.cancel(self.number, reason, batch);
        }
    }

    /// The caller takes `more` further chunks.
    pub(crate) fn credit(&self, more: u64, batch: &mut Batch) {
        if let Some(pool) = self.pool.upgrade() {
            pool.credit(self.number, more, batch);
        }
    }
}

impl Pool {
    pub(crate) fn new(plugin: &str, bounds: Bounds, counters: Arc<Counters>) -> Arc<Pool> {
        let sooner = Arc::new(Notify::new());
        let pool = Arc::new(Pool {
            plugin: plugin.to_owned(),
            bounds,
            counters,
            state: Mutex::default(),
            wanted: Notify::new(),
            sooner: Arc::clone(&sooner),
            reaper: Mutex::default(),
        });
        let reaper = tokio::spawn(reap(Arc::downgrade(&pool), sooner));
        *pool.reaper.lock().unwrap_or_else(PoisonError::into_inner) = Some(reaper);
        pool
    }

    pub(crate) fn plugin(&self) -> &str {
        &self.plugin
    }

    pub(crate) fn bounds(&self) -> Bounds {
        self.bounds
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Calls at the plugin's instances, and calls that wait.
    pub(crate) fn load(&self) -> (usize, usize) {
        let state = self.lock();
        (state.calls.len() - state.queue.len(), state.queue.len())
    }

    /// Resolves when a call waits and no instance is there to take it.
    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Whether any call waits.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.lock().queue.is_empty()
    }

    /// From now on every call gets this error; with `None`, calls are taken.
    pub(crate) fn refuse(&self, refusal: Option<Error>) {
        self.lock().refusal = refusal;
    }

    /// A hold on a call that is to be submitted.
    pub(crate) fn ticket(self: &Arc<Pool>) -> Ticket {
        Ticket { pool: Arc::downgrade(self), number: next_number() }
    }

    /// A call comes later, once its arguments are checked: it can be cancelled meanwhile.
    pub(crate) fn expect(&self, ticket: &Ticket) {
        self.lock().expected.insert(ticket.number);
    }

    /// The check is done; `false` if the call was cancelled meanwhile.
    pub(crate) fn arrived(&self, ticket: &Ticket) -> bool {
        self.lock().expected.remove(&ticket.number)
    }

    /// Takes a call in. Its sink gets the answer in any case.
    pub(crate) fn submit(&self, ticket: &Ticket, call: NewCall<'_>, batch: &mut Batch) {
        if let Err((error, sink)) = self.admit(ticket.number, call, batch) {
            sink.done(Err(error), batch);
        }
    }

    fn admit(&self, number: u64, new: NewCall<'_>, batch: &mut Batch) -> Result<(), Refused> {
        let (credit, lent) = Credit::new(new.credit);
        let NewCall { caller, who, command, arguments, dry_run, time, until, sink, .. } = new;
        let mut state = self.lock();
        if let Some(refusal) = &state.refusal {
            return Err((refusal.clone(), sink));
        }
        let (who, command) = (Cow::Borrowed(who), Cow::Borrowed(command));
        let request = Request { who, command, arguments, dry_run, lent, time, until };
        let now = batch.now();
        let slot = if state.queue.is_empty() { state.free_slot(self.bounds.in_flight) } else { None };
        let mut put_out = Vec::new();
        let longest = now + WAIT_MAX;
        let mut deadline = until.map_or(longest, |until| until.min(longest));
        let place = if let Some(at) = slot {
            deadline = request.deadline(now);
            let left = deadline.saturating_duration_since(now);
            if let Err(error) = self.send(&mut state.links[at], number, &request, left, batch) {
                return Err((error, sink));
            }
            Place::Sent(state.links[at].wire.number)
        } else {
            // What can never be sent is not queued for it.
            if request.arguments.get().len() > self.bounds.frame_max {
                return Err((self.too_large(request.arguments.get().len()), sink));
            }
            let capacity = Capacity { calls: WAITING_MAX, bytes: WAITING_FRAMES * self.bounds.frame_max };
            match state.queue.push(caller, number, request.size(), capacity) {
                queue::Place::Full => return Err((self.busy(), sink)),
                queue::Place::Waits { put_out: gone } => put_out = gone,
            }
            if state.links.is_empty() {
                self.wanted.notify_one();
            }
            Place::Waits(Box::new(request.into_owned()))
        };
        self.look_at(&mut state, deadline);
        state.calls.insert(number, Call { caller, deadline, sink, credit, pace: Pace::default(), place });
        let put_out: Vec<Call> = put_out.into_iter().filter_map(|call| state.take(call)).collect();
        drop(state);
        for call in put_out {
            call.sink.done(Err(self.busy()), batch);
        }
        Ok(())
    }

    fn send(
        &self,
        slot: &mut Slot,
        number: u64,
        request: &Request<'_>,
        left: Duration,
        batch: &mut Batch,
    ) -> Result<(), Error> {
        let size = slot.wire.out.write(|frame| request.write(frame, number, left));
        if size > self.bounds.frame_max + 1 {
            slot.wire.out.take_back(size);
            return Err(self.too_large(size - 1));
        }
        self.counters.bytes_in.fetch_add(size as u64, Ordering::Relaxed);
        slot.in_flight += 1;
        batch.touch(&slot.wire.out);
        Ok(())
    }

    /// Sends what waits, as far as there is room.
    pub(super) fn pump(&self, batch: &mut Batch) {
        loop {
            let mut state = self.lock();
            if state.queue.is_empty() {
                return;
            }
            let Some(at) = state.free_slot(self.bounds.in_flight) else { return };
            let Some(number) = state.queue.pop() else { return };
            let State { calls, links, .. } = &mut *state;
            let Some(call) = calls.get_mut(&number) else { continue };
            let Place::Waits(request) = &call.place else { continue };
            let deadline = request.deadline(batch.now());
            let left = deadline.saturating_duration_since(batch.now());
            match self.send(&mut links[at], number, request, left, batch) {
                Ok(()) => {
                    call.place = Place::Sent(links[at].wire.number);
                    call.deadline = deadline;
                    self.look_at(&mut state, deadline);
                }
                Err(error) => {
                    let call = state.take(number);
                    drop(state);
                    if let Some(call) = call {
                        call.sink.done(Err(error), batch);
                    }
                }
            }
        }
    }

    /// An instance answered; whether the call was its own.
    pub(super) fn answer(
        &self,
        link: u64,
        number: u64,
        outcome: &Result<&RawValue, RpcError>,
        batch: &mut Batch,
    ) -> bool {
        let mut state = self.lock();
        if !state.is_at(link, number) {
            return false;
        }
        let Some(call) = state.take(number) else { return false };
        let more = !state.queue.is_empty();
        drop(state);
        match outcome {
            Ok(result) => call.sink.done(Ok(result), batch),
            Err(error) => call.sink.done(Err(plugin_error(error)), batch),
        }
        if more {
            self.pump(batch);
        }
        true
    }

    /// An instance says how a call goes; whether the call was its own.
    pub(super) fn progress(&self, link: u64, number: u64, data: &RawValue, batch: &mut Batch) -> bool {
        let mut state = self.lock();
        if !state.is_at(link, number) {
            return false;
        }
        let Some(call) = state.calls.get_mut(&number) else { return false };
        let passed = call.pace.allows(batch.now()) && call.sink.progress(data, batch);
        if !passed {
            self.counters.progress_dropped.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// An instance sends a part of an answer; whether the call was its own. One that it may not send ends the call.
    pub(super) fn chunk(
        &self,
        wire: &Wire,
        number: u64,
        seq: Option<u64>,
        data: &RawValue,
        batch: &mut Batch,
    ) -> bool {
        let mut state = self.lock();
        if !state.is_at(wire.number, number) {
            return false;
        }
        let Some(call) = state.calls.get_mut(&number) else { return false };
        let misstep = match seq {
            None => "a chunk has no seq".to_owned(),
            Some(seq) => match call.credit.take(seq) {
                Ok(()) => {
                    call.sink.chunk(seq, data, batch);
                    lend(wire, number, call, batch);
                    return true;
                }
                Err(Misstep::NoCredit) => "it sent a chunk without credit".to_owned(),
                Err(Misstep::WrongNumber { expected }) => {
                    format!("it sent chunk {seq} where {expected} comes next")
                }
            },
        };
        let call = state.take(number);
        tell_cancel(wire, number, "protocol violation", batch);
        drop(state);
        if let Some(call) = call {
            let error = Error::new(
                Kind::ProtocolViolation,
                format!("{} broke the rules of streams: {misstep}", self.plugin),
                "report it to the plugin's author: chunks are numbered from 0, and each needs credit",
            );
            call.sink.done(Err(error.outcome_unknown()), batch);
        }
        self.pump(batch);
        true
    }

    fn credit(&self, number: u64, more: u64, batch: &mut Batch) {
        let mut state = self.lock();
        let State { calls, links, .. } = &mut *state;
        let Some(call) = calls.get_mut(&number) else { return };
        call.credit.give(more);
        if let Place::Sent(link) = call.place
            && let Some(slot) = links.iter().find(|slot| slot.wire.number == link)
        {
            lend(&slot.wire, number, call, batch);
        }
    }

    fn cancel(&self, number: u64, reason: &str, batch: &mut Batch) {
        let mut state = self.lock();
        if state.expected.remove(&number) {
            return;
        }
        let wire = state.wire_of(number);
        let Some(call) = state.take(number) else { return };
        let mut error = cancelled("the call was taken back");
        if let Some(wire) = wire {
            tell_cancel(&wire, number, reason, batch);
            error = error.outcome_unknown();
        }
        drop(state);
        call.sink.done(Err(error), batch);
        self.pump(batch);
    }

    /// Ends calls whose time is over; when to look again.
    fn expire(&self, now: Instant) -> Option<Instant> {
        let mut batch = Batch::default();
        let mut state = self.lock();
        if state.next_look.is_none_or(|next| next > now) {
            return state.next_look;
        }
        let late: Vec<u64> =
            state.calls.iter().filter(|(_, call)| call.deadline <= now).map(|(number, _)| *number).collect();
        let mut ended = Vec::new();
        for number in late {
            let wire = state.wire_of(number);
            let Some(call) = state.take(number) else { continue };
            if let Some(wire) = &wire {
                tell_cancel(wire, number, "timed out", &mut batch);
            }
            ended.push((call, wire.is_some()));
        }
        let next = state.calls.values().map(|call| call.deadline).min();
        state.next_look = next;
        drop(state);
        for (call, was_sent) in ended {
            call.sink.done(Err(self.late(was_sent)), &mut batch);
        }
        self.pump(&mut batch);
        next
    }

    /// Looks for late calls at that time, if not before.
    fn look_at(&self, state: &mut State, deadline: Instant) {
        if state.next_look.is_none_or(|next| deadline < next) {
            state.next_look = Some(deadline);
            self.sooner.notify_one();
        }
    }

    fn late(&self, was_sent: bool) -> Error {
        if was_sent {
            return Error::new(
                Kind::TimedOut,
                format!("{} did not answer in time", self.plugin),
                "give it more time with --timeout, up to the command's own timeout_ms; see its log for what it does",
            )
            .outcome_unknown();
        }
        Error::new(
            Kind::TimedOut,
            format!("{} did not come to the call in time", self.plugin),
            "it is busy with other calls, or starting: give it more time with --timeout",
        )
    }

    /// An instance takes calls from now on.
    pub(super) fn add(&self, wire: &Arc<Wire>) {
        self.lock().links.push(Slot { wire: Arc::clone(wire), in_flight: 0, retired: false });
        self.pump(&mut Batch::default());
    }

    /// An instance gets no further calls.
    pub(super) fn retire(&self, link: u64) {
        for slot in &mut self.lock().links {
            slot.retired |= slot.wire.number == link;
        }
    }

    /// An instance is gone: its calls get this error.
    pub(super) fn remove(&self, link: u64, error: &Error) {
        let mut batch = Batch::default();
        let mut state = self.lock();
        state.links.retain(|slot| slot.wire.number != link);
        let lost: Vec<u64> = state
            .calls
            .iter()
            .filter(|(_, call)| matches!(call.place, Place::Sent(at) if at == link))
            .map(|(number, _)| *number)
            .collect();
        let lost: Vec<Call> = lost.into_iter().filter_map(|number| state.take(number)).collect();
        let unserved = state.links.is_empty() && !state.queue.is_empty();
        drop(state);
        for call in lost {
            call.sink.done(Err(error.clone().outcome_unknown()), &mut batch);
        }
        if unserved {
            self.wanted.notify_one();
        }
    }

    /// Answers every call that waits with this error.
    pub(crate) fn fail_waiting(&self, error: &Error) {
        let mut batch = Batch::default();
        let mut state = self.lock();
        let waiting: Vec<u64> = std::iter::from_fn(|| state.queue.pop()).collect();
        let waiting: Vec<Call> = waiting.into_iter().filter_map(|number| state.take(number)).collect();
        drop(state);
        for call in waiting {
            call.sink.done(Err(error.clone()), &mut batch);
        }
    }

    fn busy(&self) -> Error {
        Error::new(
            Kind::Busy,
            format!("as many calls wait for {} as may", self.plugin),
            "try again when some have ended, or raise resources.in_flight in its manifest",
        )
    }

    fn too_large(&self, size: usize) -> Error {
        Error::new(
            Kind::FrameTooLarge,
            format!(
                "the call is {size} bytes long, and {} takes frames up to {}",
                self.plugin, self.bounds.frame_max
            ),
            "send less at once, or raise resources.frame_max in the manifest (16M at most)",
        )
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Some(reaper) = self.reaper.get_mut().unwrap_or_else(PoisonError::into_inner) {
            reaper.abort();
        }
    }
}

impl State {
    /// The instance with the least to do, if it can take one more.
    fn free_slot(&self, in_flight: usize) -> Option<usize> {
        self.links
            .iter()
            .enumerate()
            .filter(|(_, slot)| !slot.retired && slot.in_flight < in_flight && slot.wire.has_room())
            .min_by_key(|(_, slot)| slot.in_flight)
            .map(|(at, _)| at)
    }

    fn is_at(&self, link: u64, number: u64) -> bool {
        self.calls.get(&number).is_some_and(|call| matches!(call.place, Place::Sent(at) if at == link))
    }

    /// Takes a call out of everything.
    fn take(&mut self, number: u64) -> Option<Call> {
        let call = self.calls.remove(&number)?;
        match call.place {
            Place::Waits(_) => self.queue.remove(call.caller, number),
            Place::Sent(link) => {
                if let Some(slot) = self.links.iter_mut().find(|slot| slot.wire.number == link) {
                    slot.in_flight -= 1;
                }
            }
        }
        Some(call)
    }

    /// Where a call was sent to.
    fn wire_of(&self, number: u64) -> Option<Arc<Wire>> {
        let Place::Sent(link) = self.calls.get(&number)?.place else { return None };
        self.links.iter().find(|slot| slot.wire.number == link).map(|slot| Arc::clone(&slot.wire))
    }
}

/// Passes credit on, as far as the caller has room.
fn lend(wire: &Wire, number: u64, call: &mut Call, batch: &mut Batch) {
    if !call.sink.has_room() {
        return;
    }
    let Some(n) = call.credit.due() else { return };
    tell(wire, "$/credit", &serde_json::json!({ "invocation": Invocation(number), "n": n }), batch);
}

fn tell_cancel(wire: &Wire, number: u64, reason: &str, batch: &mut Batch) {
    let params = serde_json::json!({ "invocation": Invocation(number), "reason": reason });
    tell(wire, "$/cancel", &params, batch);
}

fn tell(wire: &Wire, method: &str, params: &serde_json::Value, batch: &mut Batch) {
    let said = wire.say(batch, |frame| {
        // Strings and numbers serialise always.
        let _ = envelope::notification(frame, method, params);
    });
    if let Err(error) = said {
        wire.note_end(End::Violation(Box::new(error)));
    }
}

fn cancelled(message: &str) -> Error {
    Error::new(Kind::Cancelled, message, "call again if the answer is wanted after all")
}

/// Ends calls at their deadlines.
async fn reap(pool: Weak<Pool>, sooner: Arc<Notify>) {
    loop {
        let Some(next) = pool.upgrade().map(|pool| pool.expire(Instant::now())) else { return };
        let wait = async {
            match next {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = wait => {}
            () = sooner.notified() => {}
        }
    }
}
