//! The pipes of one instance: its stdin, stdout and stderr, and what plugind itself asks it.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plugind_protocol::envelope::{self, RpcError};
use plugind_protocol::{Error, Kind};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::net::unix::pipe;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::{Batch, Bounds, End, Failure, Outgoing, PluginLog, Pool, Stop, Stream, reader, stderr};

/// A plugin that takes in nothing for this long is wedged: the longest a default call may take.
const STALL: Duration = Duration::from_secs(30);

/// Frames that wait for the plugin to read them: beyond this many times `frame_max` nothing is added.
const OUT_FRAMES: usize = 4;

/// Numbers of calls, of our own requests and of links: never used twice, so that nothing is taken for another.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// A number that was not used before.
pub(super) fn next_number() -> u64 {
    NUMBERS.fetch_add(1, Ordering::Relaxed)
}

/// One instance's pipes; the tasks that serve them end with it.
pub(crate) struct Link {
    pub(super) wire: Arc<Wire>,
    tasks: Vec<JoinHandle<()>>,
}

/// What the tasks of a link share.
pub(super) struct Wire {
    /// Which link this is.
    pub(super) number: u64,
    pub(super) pool: Arc<Pool>,
    pub(super) out: Arc<Outgoing>,
    pub(super) log: Arc<PluginLog>,
    pub(super) log_drained: watch::Sender<bool>,
    own: Mutex<Own>,
    ended: watch::Sender<Option<End>>,
    /// Whether the handshake is done: before it, lines of junk are tolerated.
    attested: AtomicBool,
}

#[derive(Default)]
struct Own {
    pending: HashMap<u64, oneshot::Sender<Result<Box<RawValue>, Failure>>>,
    /// Set once: nothing is asked any more.
    closed: Option<Error>,
}

impl Link {
    /// Takes over an instance's pipes. Its stderr is drained by another event loop: a flood there holds up no answer.
    pub(crate) fn new(
        pool: &Arc<Pool>,
        stdio: [OwnedFd; 3],
        log: Arc<PluginLog>,
        drain: &Handle,
    ) -> Result<Link, Error> {
        let failed =
            |cause: std::io::Error| Error::internal(format!("cannot watch the plugin's pipes: {cause}"));
        let [stdin, stdout, stderr] = stdio;
        let stdin = pipe::Sender::from_owned_fd(stdin).map_err(failed)?;
        let stdout = pipe::Receiver::from_owned_fd(stdout).map_err(failed)?;
        let stderr = {
            // A pipe belongs to the event loop in which it is made.
            let _within = drain.enter();
            pipe::Receiver::from_owned_fd(stderr).map_err(failed)?
        };
        let wire = Arc::new(Wire {
            number: next_number(),
            pool: Arc::clone(pool),
            out: Outgoing::new(Stream::Pipe(stdin)),
            log,
            log_drained: watch::channel(false).0,
            own: Mutex::default(),
            ended: watch::channel(None).0,
            attested: AtomicBool::new(false),
        });
        let tasks = vec![
            tokio::spawn(reader::run(Arc::clone(&wire), stdout)),
            tokio::spawn(write(Arc::clone(&wire))),
            drain.spawn(stderr::run(Arc::clone(&wire), stderr)),
        ];
        Ok(Link { wire, tasks })
    }

    /// Asks the plugin something of our own and waits for its answer until the deadline.
    pub(crate) async fn request(
        &self,
        method: &str,
        params: &(impl Serialize + ?Sized),
        deadline: Instant,
    ) -> Result<Box<RawValue>, Failure> {
        let ours = |error: Error| Failure::Ours(Box::new(error));
        let number = next_number();
        let (sender, answer) = oneshot::channel();
        {
            let mut own = self.wire.own();
            if let Some(error) = &own.closed {
                return Err(ours(error.clone()));
            }
            own.pending.insert(number, sender);
        }
        let mut written = Ok(());
        self.wire.out.write(|frame| written = envelope::request(frame, number, method, params));
        self.wire.out.flush();
        let outcome = match written {
            Ok(()) => timeout_at(deadline, answer).await,
            Err(cause) => Ok(Ok(Err(ours(Error::internal(cause.to_string()))))),
        };
        self.wire.own().pending.remove(&number);
        match outcome {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(ours(Error::internal("a request was forgotten"))),
            Err(_) => Err(ours(
                Error::new(
                    Kind::TimedOut,
                    format!("{} did not answer {method} in time", self.wire.pool.plugin()),
                    "see its log for what it does",
                )
                .outcome_unknown(),
            )),
        }
    }

    /// The handshake is done: calls may be sent here, and a line of junk is a violation from now on.
    pub(crate) fn attested(&self) {
        self.wire.attested.store(true, Ordering::Relaxed);
    }

    /// Calls come here from now on.
    pub(crate) fn open(&self) {
        self.wire.pool.add(&self.wire);
    }

    /// No further call comes here; those that are here go on.
    pub(crate) fn retire(&self) {
        self.wire.pool.retire(self.wire.number);
    }

    /// Closes the plugin's stdin after what is queued.
    pub(crate) fn close_stdin(&self) {
        self.wire.out.finish();
    }

    /// Resolves when the link ends by itself.
    pub(crate) async fn ended(&self) -> End {
        let mut ended = self.wire.ended.subscribe();
        match ended.wait_for(Option::is_some).await {
            Ok(end) => end.clone().unwrap_or(End::Closed),
            Err(_) => End::Closed,
        }
    }

    /// Resolves when everything that the plugin wrote to its stderr is in the log.
    pub(crate) async fn log_drained(&self) {
        // The sender lives as long as this link.
        let _ = self.wire.log_drained.subscribe().wait_for(|drained| *drained).await;
    }

    /// Answers every call and request that is here with this error, and asks nothing any more.
    pub(crate) fn fail_all(&self, error: &Error) {
        self.wire.pool.remove(self.wire.number, error);
        let mut own = self.wire.own();
        own.closed = Some(error.clone());
        for (_, answer) in own.pending.drain() {
            let _ = answer.send(Err(Failure::Ours(Box::new(error.clone().outcome_unknown()))));
        }
        drop(own);
        self.wire.out.close();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let gone = Error::new(Kind::Cancelled, "the instance was given up", "try again");
        self.wire.pool.remove(self.wire.number, &gone);
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Wire {
    pub(super) fn bounds(&self) -> Bounds {
        self.pool.bounds()
    }

    pub(super) fn is_attested(&self) -> bool {
        self.attested.load(Ordering::Relaxed)
    }

    /// Whether the plugin reads fast enough for another call.
    pub(super) fn has_room(&self) -> bool {
        self.out.waiting() < self.bounds().frame_max
    }

    /// Adds a small frame that is not a call, unless the plugin lets too much pile up.
    pub(super) fn say(&self, batch: &mut Batch, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), Error> {
        if self.out.waiting() > OUT_FRAMES * self.bounds().frame_max {
            return Err(Error::new(
                Kind::ProtocolViolation,
                format!("{} asks without reading the answers", self.pool.plugin()),
                "a plugin must go on reading while it works",
            ));
        }
        self.out.write(write);
        batch.touch(&self.out);
        Ok(())
    }

    /// Gives an answer to one of our own requests; whether it was one.
    pub(super) fn answer(&self, number: u64, outcome: &Result<&RawValue, RpcError>) -> bool {
        let Some(waiting) = self.own().pending.remove(&number) else { return false };
        let outcome = match outcome {
            Ok(result) => Ok((*result).to_owned()),
            Err(error) => Err(Failure::Plugin(error.clone())),
        };
        let _ = waiting.send(outcome);
        true
    }

    /// The link ends by itself. Not to be called by the pool, which this calls.
    pub(super) fn end(&self, end: End) {
        // What is sent to an instance that has ended is lost, and its caller could not know how far it came.
        self.pool.retire(self.number);
        self.note_end(end);
    }

    /// The same, said by the pool itself.
    pub(super) fn note_end(&self, end: End) {
        self.ended.send_if_modified(|current| {
            let first = current.is_none();
            if first {
                *current = Some(end);
            }
            first
        });
    }

    pub(super) fn violation(&self, error: Error) {
        self.end(End::Violation(Box::new(error)));
    }

    fn own(&self) -> MutexGuard<'_, Own> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Feeds the plugin's stdin while it is full.
async fn write(wire: Arc<Wire>) {
    let stop = wire.out.run(STALL, || wire.pool.pump(&mut Batch::default())).await;
    if stop == Stop::Stalled {
        wire.violation(Error::new(
            Kind::ProtocolViolation,
            format!("{} has not read its stdin for {} s", wire.pool.plugin(), STALL.as_secs()),
            "a plugin must go on reading while it works",
        ));
    }
    // Otherwise the plugin closed its stdin or is gone: its stdout tells which.
}
