//! The way out to a plugin or a caller: frames in one buffer, written at once where the other side has room, and
//! otherwise by a task that waits for it.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::unix::{OwnedWriteHalf, pipe};
use tokio::sync::Notify;
use tokio::time::timeout;

/// What an idle stream keeps.
const IDLE: usize = 4 << 10;

/// Written bytes in front of the buffer are worth moving the rest when they are this many.
const WORTH_MOVING: usize = 256 << 10;

/// What is written to.
pub(crate) enum Stream {
    /// A plugin's stdin.
    Pipe(pipe::Sender),
    /// A caller's channel.
    Socket(OwnedWriteHalf),
}

/// Why the writing ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// All was written, as [`Outgoing::finish`] asked for, or [`Outgoing::close`] was called.
    Finished,
    /// Nobody reads there any more.
    Broken,
    /// The other side took in nothing for the whole time.
    Stalled,
}

/// Frames on their way out. Whoever writes bounds them by [`Outgoing::waiting`].
pub(crate) struct Outgoing {
    stream: Stream,
    state: Mutex<State>,
    /// There is something to wait for, or an end.
    wake: Notify,
}

#[derive(Default)]
struct State {
    bytes: Vec<u8>,
    /// How many of `bytes` are written.
    written: usize,
    finish: bool,
    broken: bool,
}

impl State {
    fn waiting(&self) -> usize {
        self.bytes.len() - self.written
    }
}

impl Outgoing {
    pub(crate) fn new(stream: Stream) -> Arc<Outgoing> {
        Arc::new(Outgoing { stream, state: Mutex::default(), wake: Notify::new() })
    }

    /// Bytes that the other side has not taken yet.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().waiting()
    }

    /// Adds what `write` appends, a frame; returns its size. `write` must only append. A closed stream takes nothing.
    pub(crate) fn write(&self, write: impl FnOnce(&mut Vec<u8>)) -> usize {
        let mut state = self.lock();
        if state.finish || state.broken {
            return 0;
        }
        // Each byte is moved once at most.
        if state.written >= WORTH_MOVING.max(state.waiting()) {
            let written = std::mem::take(&mut state.written);
            state.bytes.drain(..written);
        }
        let before = state.bytes.len();
        write(&mut state.bytes);
        state.bytes.len() - before
    }

    /// Takes back the last `length` bytes, which were just written and not flushed.
    pub(crate) fn take_back(&self, length: usize) {
        let mut state = self.lock();
        let keep = state.bytes.len().saturating_sub(length).max(state.written);
        state.bytes.truncate(keep);
    }

    /// Writes what fits now; the rest is left to [`Outgoing::run`].
    pub(crate) fn flush(&self) {
        let mut state = self.lock();
        while state.waiting() > 0 && !state.broken {
            match self.try_write(&state.bytes[state.written..]) {
                Ok(length) => state.written += length,
                Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => state.broken = true,
            }
        }
        let unfinished = state.waiting() > 0 || state.finish;
        if state.waiting() == 0 {
            state.bytes.clear();
            state.written = 0;
        }
        drop(state);
        if unfinished {
            self.wake.notify_one();
        }
    }

    /// Writes whenever the other side has room again, and calls `room` after each time; until the end. A side that
    /// takes in nothing for `stall` is given up.
    pub(crate) async fn run(&self, stall: Duration, mut room: impl FnMut()) -> Stop {
        loop {
            loop {
                {
                    let state = self.lock();
                    match (state.broken, state.waiting(), state.finish) {
                        (true, ..) => return Stop::Broken,
                        (_, 0, true) => return Stop::Finished,
                        (_, 0, false) => break,
                        _ => {}
                    }
                }
                match timeout(stall, self.writable()).await {
                    Err(_) => return Stop::Stalled,
                    Ok(Err(_)) => return Stop::Broken,
                    Ok(Ok(())) => self.flush(),
                }
                room();
            }
            self.wake.notified().await;
            room();
        }
    }

    /// Lets [`Outgoing::run`] call its `room` once more, soon.
    pub(crate) fn nudge(&self) {
        self.wake.notify_one();
    }

    /// Nothing more is taken; what waits is still written.
    pub(crate) fn finish(&self) {
        self.lock().finish = true;
        self.wake.notify_one();
    }

    /// Nothing more is taken, and what waits is thrown away.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.finish = true;
        state.bytes = Vec::new();
        state.written = 0;
        drop(state);
        self.wake.notify_one();
    }

    /// Gives back what a large frame or a burst needed; whether there is more than an idle stream needs.
    pub(crate) fn rest(&self) {
        let mut state = self.lock();
        if state.waiting() == 0 && state.bytes.capacity() > IDLE {
            state.bytes = Vec::new();
        }
    }

    /// Whether [`Outgoing::rest`] would give memory back.
    pub(crate) fn is_roomy(&self) -> bool {
        let state = self.lock();
        state.waiting() == 0 && state.bytes.capacity() > IDLE
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match &self.stream {
            Stream::Pipe(pipe) => pipe.try_write(bytes),
            Stream::Socket(socket) => socket.try_write(bytes),
        }
    }

    async fn writable(&self) -> io::Result<()> {
        match &self.stream {
            Stream::Pipe(pipe) => pipe.writable().await,
            Stream::Socket(socket) => socket.writable().await,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
