//! The way to the supervisor: whole lines, written at once where the socket takes them, and else by a task.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::socket::{Shutdown, shutdown};
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// How many bytes of requests may wait for the socket; the longest line fits always.
const WAITING_MAX: usize = 1 << 20;

/// How many lines one write takes.
const SLICES_MAX: usize = 64;

/// The stream takes no more lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Closed;

#[derive(Debug)]
pub(super) struct Writer {
    socket: OwnedWriteHalf,
    queue: Mutex<Queue>,
    /// The task has something to write.
    filled: Notify,
    /// The bytes that may still join the queue; whoever asks first is served first.
    room: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Queue {
    lines: VecDeque<Line>,
    /// How much of the first line is written.
    written: usize,
    closed: bool,
}

#[derive(Debug)]
struct Line {
    bytes: Vec<u8>,
    /// Given back once the line is written.
    _room: Option<OwnedSemaphorePermit>,
}

impl Writer {
    /// A writer of lines of up to `line_max` bytes.
    pub(super) fn new(socket: OwnedWriteHalf, line_max: usize) -> Writer {
        let room = Arc::new(Semaphore::new(WAITING_MAX.max(line_max)));
        Writer { socket, queue: Mutex::default(), filled: Notify::new(), room }
    }

    /// Sends a request, after waiting for its turn while too much waits already. Not waited to the end, nothing is
    /// sent.
    pub(super) async fn request(&self, line: Vec<u8>) -> Result<(), Closed> {
        let line = {
            let mut queue = self.lock();
            if queue.closed {
                return Err(Closed);
            }
            if queue.lines.is_empty() {
                return self.put(&mut queue, line, None);
            }
            line
        };
        let size = u32::try_from(line.len()).map_err(|_| Closed)?;
        let room = Arc::clone(&self.room).acquire_many_owned(size).await.map_err(|_| Closed)?;
        self.put(&mut self.lock(), line, Some(room))
    }

    /// Sends a notification. It never waits: there are few of them, since each belongs to a call or to a chunk that
    /// came in.
    pub(super) fn notification(&self, line: Vec<u8>) {
        // A channel that ended needs no notifications.
        let _ = self.put(&mut self.lock(), line, None);
    }

    /// Writes what waits, until the stream ends. Run as a task.
    pub(super) async fn run(&self) {
        loop {
            self.filled.notified().await;
            while !self.lock().lines.is_empty() {
                if self.socket.writable().await.is_err() {
                    self.close();
                    return;
                }
                self.write(&mut self.lock());
            }
        }
    }

    /// Ends both directions of the stream, so that the reader ends once it has read what is there.
    pub(super) fn close(&self) {
        self.end(&mut self.lock());
    }

    fn put(
        &self,
        queue: &mut Queue,
        line: Vec<u8>,
        room: Option<OwnedSemaphorePermit>,
    ) -> Result<(), Closed> {
        if queue.closed {
            return Err(Closed);
        }
        let idle = queue.lines.is_empty();
        queue.lines.push_back(Line { bytes: line, _room: room });
        if idle {
            self.write(queue);
            if !queue.lines.is_empty() {
                self.filled.notify_one();
            }
        }
        // Begun and broken off, it may have arrived all the same.
        Ok(())
    }

    /// Writes as much as the socket takes now.
    fn write(&self, queue: &mut Queue) {
        while !queue.lines.is_empty() {
            let rest = queue.lines.iter().take(SLICES_MAX).enumerate().map(|(index, line)| {
                let start = if index == 0 { queue.written } else { 0 };
                IoSlice::new(&line.bytes[start..])
            });
            let rest: Vec<IoSlice<'_>> = rest.collect();
            match self.socket.try_write_vectored(&rest) {
                Ok(length) => queue.advance(length),
                Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => return,
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return self.end(queue),
            }
        }
    }

    fn end(&self, queue: &mut Queue) {
        queue.closed = true;
        queue.lines.clear();
        self.room.close();
        // It may be shut down from the other side already.
        let _ = shutdown(self.socket.as_ref().as_raw_fd(), Shutdown::Both);
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // No code of ours panics while it holds the lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// So many bytes more were written.
    fn advance(&mut self, length: usize) {
        self.written += length;
        while let Some(first) = self.lines.front().filter(|line| line.bytes.len() <= self.written) {
            self.written -= first.bytes.len();
            self.lines.pop_front();
        }
    }
}
