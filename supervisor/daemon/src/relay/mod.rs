//! The wire to one running plugin: requests in any number, answers in any order, all of it bounded.
//!
//! Ids are ours alone: a caller never sees one, and a plugin can answer only what it was asked.

mod log;
mod reader;
mod stderr;
mod writer;

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plugind_protocol::envelope::{self, RpcError};
use plugind_protocol::{Error, Kind};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::net::unix::pipe;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

pub(crate) use log::PluginLog;

/// What a plugin wrote, fit for a message and cut to 1 KiB.
pub(crate) fn shown(text: &str) -> String {
    log::printable(text.as_bytes(), 1024)
}

/// Frames that wait for the plugin to read them: this many times `frame_max`, in bytes.
const QUEUE_FRAMES: usize = 4;

/// The bounds of one link, from the manifest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Bytes of a frame, both ways.
    pub(crate) frame_max: usize,
    /// Requests without an answer.
    pub(crate) in_flight: usize,
}

/// How a link ends by itself.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum End {
    /// The plugin's stdout is closed.
    Closed,
    /// The plugin wrote something that is not the protocol, or does not read.
    Violation(Box<Error>),
}

/// Why a request has no result.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The plugin's own answer.
    Plugin(RpcError),
    /// Ours.
    Ours(Box<Error>),
}

/// What a request comes to.
type Outcome = Result<Box<RawValue>, Failure>;

/// One plugin's stdin, stdout and stderr.
pub(crate) struct Link {
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
}

struct Shared {
    plugin: String,
    bounds: Bounds,
    state: Mutex<State>,
    /// The queue has something, or is closed.
    queued: Notify,
    ended: watch::Sender<Option<End>>,
    log: Arc<PluginLog>,
    log_drained: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    last_id: u64,
    pending: HashMap<u64, oneshot::Sender<Outcome>>,
    queue: VecDeque<Queued>,
    queued_bytes: usize,
    /// Set once: nothing is sent any more.
    closed: Option<Error>,
    /// stdin is to be closed once the queue is empty.
    finish: bool,
    /// Whether the handshake is done: before it, lines of junk are tolerated.
    attested: bool,
    /// Answers that nobody waits for: late, repeated or invented.
    stray_answers: u64,
}

struct Queued {
    /// The request that the frame carries, while it can still be taken back.
    id: Option<u64>,
    frame: Vec<u8>,
}

impl Link {
    /// Takes over a plugin's pipes.
    pub(crate) fn new(
        plugin: &str,
        bounds: Bounds,
        stdio: [OwnedFd; 3],
        log: Arc<PluginLog>,
    ) -> Result<Link, Error> {
        let failed =
            |cause: std::io::Error| Error::internal(format!("cannot watch the plugin's pipes: {cause}"));
        let [stdin, stdout, stderr] = stdio;
        let stdin = pipe::Sender::from_owned_fd(stdin).map_err(failed)?;
        let stdout = pipe::Receiver::from_owned_fd(stdout).map_err(failed)?;
        let stderr = pipe::Receiver::from_owned_fd(stderr).map_err(failed)?;
        let shared = Arc::new(Shared {
            plugin: plugin.to_owned(),
            bounds,
            state: Mutex::default(),
            queued: Notify::new(),
            ended: watch::channel(None).0,
            log,
            log_drained: watch::channel(false).0,
        });
        let tasks = vec![
            tokio::spawn(reader::run(Arc::clone(&shared), stdout)),
            tokio::spawn(writer::run(Arc::clone(&shared), stdin)),
            tokio::spawn(stderr::run(Arc::clone(&shared), stderr)),
        ];
        Ok(Link { shared, tasks })
    }

    /// Sends a request and waits for its answer until the deadline; then, or when the caller drops this future, the
    /// plugin is told with `$/cancel`.
    pub(crate) async fn request(
        &self,
        method: &str,
        params: &(impl Serialize + ?Sized),
        invocation: Option<&str>,
        deadline: Instant,
    ) -> Result<Box<RawValue>, Failure> {
        let (id, answer) = self
            .enqueue(method, params, invocation.is_some())
            .map_err(|error| Failure::Ours(Box::new(error)))?;
        let mut guard = Cancel { shared: &self.shared, id, invocation, reason: "caller gone", armed: true };
        match timeout_at(deadline, answer).await {
            Ok(Ok(outcome)) => {
                guard.armed = false;
                outcome
            }
            Ok(Err(_)) => {
                guard.armed = false;
                Err(Failure::Ours(Box::new(Error::internal("a request was forgotten"))))
            }
            Err(_) => {
                guard.reason = "timed out";
                Err(Failure::Ours(Box::new(
                    Error::new(
                        Kind::TimedOut,
                        format!("{} did not answer {method} in time", self.shared.plugin),
                        "give it more time with --timeout, up to the command's own timeout_ms; see its log for what it does",
                    )
                    .outcome_unknown(),
                )))
            }
        }
    }

    /// From now on a line of junk is a violation.
    pub(crate) fn attested(&self) {
        self.shared.lock().attested = true;
    }

    /// Closes the plugin's stdin after what is queued.
    pub(crate) fn close_stdin(&self) {
        self.shared.lock().finish = true;
        self.shared.queued.notify_one();
    }

    /// Resolves when the link ends by itself.
    pub(crate) async fn ended(&self) -> End {
        let mut ended = self.shared.ended.subscribe();
        match ended.wait_for(Option::is_some).await {
            Ok(end) => end.clone().unwrap_or(End::Closed),
            Err(_) => End::Closed,
        }
    }

    /// Resolves when everything that the plugin wrote to its stderr is in the log.
    pub(crate) async fn log_drained(&self) {
        // The sender lives as long as this link.
        let _ = self.shared.log_drained.subscribe().wait_for(|drained| *drained).await;
    }

    /// Answers every request with this error, now and from now on.
    pub(crate) fn fail_all(&self, error: &Error) {
        let mut state = self.shared.lock();
        state.closed = Some(error.clone());
        state.queue.clear();
        state.queued_bytes = 0;
        for (_, answer) in state.pending.drain() {
            let _ = answer.send(Err(Failure::Ours(Box::new(error.clone().outcome_unknown()))));
        }
        drop(state);
        self.shared.queued.notify_one();
    }

    /// Answers that nobody waited for.
    #[cfg(test)]
    pub(crate) fn stray_answers(&self) -> u64 {
        self.shared.lock().stray_answers
    }

    fn enqueue(
        &self,
        method: &str,
        params: &(impl Serialize + ?Sized),
        is_call: bool,
    ) -> Result<(u64, oneshot::Receiver<Outcome>), Error> {
        let Bounds { frame_max, in_flight } = self.shared.bounds;
        let mut state = self.shared.lock();
        if let Some(error) = &state.closed {
            return Err(error.clone());
        }
        // Our own requests, `shutdown` above all, must reach a plugin that is busy.
        if is_call && state.pending.len() >= in_flight {
            return Err(Error::new(
                Kind::Busy,
                format!(
                    "{} has {in_flight} calls in flight, as many as its manifest allows",
                    self.shared.plugin
                ),
                "try again when one has ended, or raise resources.in_flight in its manifest",
            ));
        }
        let id = state.last_id + 1;
        let mut frame = Vec::new();
        envelope::request(&mut frame, id, method, params)
            .map_err(|cause| Error::internal(cause.to_string()))?;
        if frame.len() > frame_max {
            return Err(Error::new(
                Kind::FrameTooLarge,
                format!(
                    "the call is {} bytes long, and {} takes frames up to {frame_max}",
                    frame.len(),
                    self.shared.plugin
                ),
                "send less at once, or raise resources.frame_max in the manifest (16M at most)",
            ));
        }
        if state.queued_bytes + frame.len() > QUEUE_FRAMES * frame_max {
            return Err(Error::new(
                Kind::Busy,
                format!(
                    "{} does not read fast enough: {} bytes wait for it",
                    self.shared.plugin, state.queued_bytes
                ),
                "try again when it has caught up",
            ));
        }
        state.last_id = id;
        let (sender, receiver) = oneshot::channel();
        state.pending.insert(id, sender);
        state.push(Queued { id: Some(id), frame });
        drop(state);
        self.shared.queued.notify_one();
        Ok((id, receiver))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, end: End) {
        self.ended.send_if_modified(|current| {
            let first = current.is_none();
            if first {
                *current = Some(end);
            }
            first
        });
    }

    fn violation(&self, error: Error) {
        self.end(End::Violation(Box::new(error)));
    }
}

impl State {
    fn push(&mut self, queued: Queued) {
        self.queued_bytes += queued.frame.len();
        self.queue.push_back(queued);
    }

    fn pop(&mut self) -> Option<Queued> {
        let queued = self.queue.pop_front()?;
        self.queued_bytes -= queued.frame.len();
        Some(queued)
    }

    /// Takes back a request that was not sent yet.
    fn take_back(&mut self, id: u64) -> bool {
        let Some(at) = self.queue.iter().position(|queued| queued.id == Some(id)) else { return false };
        if let Some(queued) = self.queue.remove(at) {
            self.queued_bytes -= queued.frame.len();
        }
        true
    }
}

/// Takes a request back when nobody waits for it any more.
struct Cancel<'a> {
    shared: &'a Shared,
    id: u64,
    invocation: Option<&'a str>,
    reason: &'static str,
    armed: bool,
}

impl Drop for Cancel<'_> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let mut state = self.shared.lock();
        state.pending.remove(&self.id);
        if state.take_back(self.id) || state.closed.is_some() {
            return;
        }
        let Some(invocation) = self.invocation else { return };
        let mut frame = Vec::new();
        let params = serde_json::json!({ "invocation": invocation, "reason": self.reason });
        if envelope::notification(&mut frame, "$/cancel", &params).is_ok() {
            state.push(Queued { id: None, frame });
            drop(state);
            self.shared.queued.notify_one();
        }
    }
}

#[cfg(test)]
mod tests;
