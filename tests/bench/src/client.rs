//! A caller that costs as little as one can: the same for plugind's channel and for the floor.

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use memchr::memmem;

use crate::Error;
use crate::sample::Samples;

/// A call that takes longer is a failure, not a sample.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where calls have become so slow that a round takes longer, it is cut short.
const ROUND_MAX: Duration = Duration::from_secs(2);

/// Ten digits at every time, so that all frames of a run have one length.
const FIRST_ID: u64 = 1_000_000_000;
const ID_DIGITS: usize = 10;

/// An id and `"result"` stand within so many first bytes of an answer.
const HEAD: usize = 96;

/// A request that is sent again and again, with only its id changed.
#[derive(Debug, Clone)]
pub struct Frame {
    bytes: Vec<u8>,
    id_at: usize,
    payload: usize,
}

impl Frame {
    /// `command/invoke` with these arguments.
    #[must_use]
    pub fn invoke(plugin: &str, command: &str, arguments: &str) -> Frame {
        let head = r#"{"jsonrpc":"2.0","id":"#;
        let line = format!(
            r#"{head}{FIRST_ID},"method":"command/invoke","params":{{"plugin":"{plugin}","command":"{command}","arguments":{arguments}}}}}"#
        );
        let mut bytes = line.into_bytes();
        bytes.push(b'\n');
        Frame { bytes, id_at: head.len(), payload: arguments.len() }
    }

    /// An `echo` whose line has so many bytes, its end included.
    #[must_use]
    pub fn echo(plugin: &str, line: usize) -> Frame {
        let empty = Frame::echo_of(plugin, 0).bytes.len();
        Frame::echo_of(plugin, line.saturating_sub(empty))
    }

    /// An `echo` of so many bytes of text.
    #[must_use]
    pub fn echo_of(plugin: &str, text: usize) -> Frame {
        Frame::invoke(plugin, "echo", &format!(r#"{{"text":"{}"}}"#, "x".repeat(text)))
    }

    /// The length of its line.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no frame is empty")]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    fn with_id(&mut self, id: u64) -> &[u8] {
        let mut rest = id;
        for digit in self.bytes[self.id_at..self.id_at + ID_DIGITS].iter_mut().rev() {
            *digit = b"0123456789"[usize::try_from(rest % 10).unwrap_or(0)];
            rest /= 10;
        }
        &self.bytes
    }
}

/// The lines of a stream.
#[derive(Debug)]
pub struct Lines {
    stream: UnixStream,
    buffer: Vec<u8>,
    start: usize,
    scanned: usize,
    end: usize,
}

impl Lines {
    /// Of a blocking stream.
    #[must_use]
    pub fn new(stream: UnixStream) -> Lines {
        Lines { stream, buffer: vec![0; 64 << 10], start: 0, scanned: 0, end: 0 }
    }

    /// The next line that was read already.
    pub fn take(&mut self) -> Option<&[u8]> {
        self.find().map(|end| self.cut(end))
    }

    /// The next line, waited for.
    pub fn wait(&mut self) -> Result<&[u8], Error> {
        loop {
            if let Some(end) = self.find() {
                return Ok(self.cut(end));
            }
            self.read()?;
        }
    }

    fn find(&mut self) -> Option<usize> {
        let offset = memchr::memchr(b'\n', &self.buffer[self.scanned..self.end]);
        let end = offset.map(|offset| self.scanned + offset);
        self.scanned = end.unwrap_or(self.end);
        end
    }

    fn cut(&mut self, end: usize) -> &[u8] {
        let start = self.start;
        self.start = end + 1;
        self.scanned = self.start;
        &self.buffer[start..end]
    }

    /// Reads once.
    pub fn read(&mut self) -> Result<(), Error> {
        if self.start == self.end {
            (self.start, self.scanned, self.end) = (0, 0, 0);
        } else if self.start > 0 && self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            self.scanned -= self.start;
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        match self.stream.read(&mut self.buffer[self.end..]) {
            Ok(0) => Err(Error::Answer("the stream ended".to_owned())),
            Ok(length) => {
                self.end += length;
                Ok(())
            }
            Err(cause) => Err(Error::io("cannot read an answer")(cause)),
        }
    }
}

/// One end of a channel, or of the floor.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    lines: Lines,
    next_id: u64,
}

impl Client {
    /// Speaks on this stream.
    pub fn new(stream: UnixStream) -> Result<Client, Error> {
        let failed = || Error::io("cannot prepare a socket");
        // A passed descriptor may come from an event loop.
        stream.set_nonblocking(false).map_err(failed())?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed())?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(failed())?;
        let lines = Lines::new(stream.try_clone().map_err(failed())?);
        Ok(Client { stream, lines, next_id: FIRST_ID })
    }

    /// One call of a plugin that sends more than its answer.
    pub fn noisy_call(&mut self, frame: &mut Frame) -> Result<(), Error> {
        let id = self.send(frame)?;
        loop {
            let line = self.lines.wait()?;
            if !is_notification(line) {
                return expect(line, Some(id), 0);
            }
        }
    }

    /// So many calls, one at a time.
    pub fn one_at_a_time(&mut self, frame: &mut Frame, calls: usize) -> Result<Samples, Error> {
        let mut samples = Samples::default();
        let begin = Instant::now();
        for _ in 0..calls {
            let start = Instant::now();
            if start - begin > ROUND_MAX {
                break;
            }
            let id = self.send(frame)?;
            let line = self.lines.wait()?;
            samples.push(start.elapsed());
            expect(line, Some(id), frame.payload)?;
        }
        Ok(samples)
    }

    /// So many calls with `window` of them in flight, refilled as answers come.
    pub fn pipelined(&mut self, frame: &mut Frame, calls: usize, window: usize) -> Result<Duration, Error> {
        let start = Instant::now();
        let mut batch = Vec::with_capacity(window * frame.len());
        let (mut sent, mut answered, mut room) = (0, 0, window);
        while answered < calls {
            batch.clear();
            while room > 0 && sent < calls {
                batch.extend_from_slice(frame.with_id(self.next_id));
                self.next_id += 1;
                sent += 1;
                room -= 1;
            }
            self.stream.write_all(&batch).map_err(Error::io("cannot send requests"))?;
            self.lines.read()?;
            while let Some(line) = self.lines.take() {
                expect(line, None, frame.payload)?;
                answered += 1;
                room += 1;
            }
        }
        Ok(start.elapsed())
    }

    /// The same for frames that a socket does not hold: one thread writes while another reads.
    pub fn streamed(&mut self, frame: &mut Frame, calls: usize, window: usize) -> Result<Duration, Error> {
        let start = Instant::now();
        let mut stream = self.stream.try_clone().map_err(Error::io("cannot prepare a socket"))?;
        let first = self.next_id;
        self.next_id += u64::try_from(calls).unwrap_or(u64::MAX);
        let last = self.next_id;
        let payload = frame.payload;
        let (give, credit) = mpsc::channel();
        for _ in 0..window {
            let _ = give.send(());
        }
        thread::scope(|scope| {
            let writer = scope.spawn(move || {
                for id in first..last {
                    if credit.recv().is_err() {
                        break;
                    }
                    stream.write_all(frame.with_id(id)).map_err(Error::io("cannot send a request"))?;
                }
                Ok(())
            });
            let read = (first..last).try_for_each(|_| {
                expect(self.lines.wait()?, None, payload)?;
                // The writer needs no credit for what it does not send.
                let _ = give.send(());
                Ok(())
            });
            drop(give);
            let written = writer.join().unwrap_or_else(|_| Err(Error::Answer("the writer ended".to_owned())));
            read.and(written)
        })?;
        Ok(start.elapsed())
    }

    /// Sends one request; its id.
    pub fn send(&mut self, frame: &mut Frame) -> Result<u64, Error> {
        let id = self.next_id;
        self.next_id += 1;
        self.stream.write_all(frame.with_id(id)).map_err(Error::io("cannot send a request"))?;
        Ok(id)
    }

    /// Takes in what has come; each answer is counted.
    pub fn receive(&mut self, frame: &Frame) -> Result<usize, Error> {
        self.lines.read()?;
        let mut answers = 0;
        while let Some(line) = self.lines.take() {
            expect(line, None, frame.payload)?;
            answers += 1;
        }
        Ok(answers)
    }

    /// Sends requests until nobody takes them any more, and reads no answer.
    pub fn stuff(&mut self, frame: &mut Frame) -> Result<(), Error> {
        let failed = || Error::io("cannot stuff a channel");
        self.stream.set_write_timeout(Some(Duration::from_millis(200))).map_err(failed())?;
        loop {
            let id = self.next_id;
            self.next_id += 1;
            match self.stream.write_all(frame.with_id(id)) {
                Ok(()) => {}
                Err(cause) if cause.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
                Err(cause) => return Err(failed()(cause)),
            }
        }
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn is_notification(line: &[u8]) -> bool {
    memmem::find(&line[..line.len().min(HEAD)], b"\"method\"").is_some()
}

/// Whether a line is a result of the right size, for the right request where that is known.
fn expect(line: &[u8], id: Option<u64>, payload: usize) -> Result<(), Error> {
    let head = &line[..line.len().min(HEAD)];
    let ours = id.is_none_or(|id| memmem::find(head, id.to_string().as_bytes()).is_some());
    if ours && line.len() > payload && memmem::find(head, b"\"result\"").is_some() {
        return Ok(());
    }
    Err(Error::Answer(String::from_utf8_lossy(&line[..line.len().min(600)]).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_the_asked_length_whatever_its_id() {
        let mut frame = Frame::echo("bench", 200);
        assert_eq!(frame.len(), 200);
        let line = String::from_utf8(frame.with_id(9_876_543_210).to_vec()).unwrap();
        assert_eq!(line.len(), 200);
        assert!(line.contains(r#""id":9876543210,"#), "{line}");
        assert!(line.ends_with("\"}}}\n"), "{line}");
    }

    #[test]
    fn an_error_and_an_answer_to_another_request_are_no_samples() {
        assert!(expect(br#"{"jsonrpc":"2.0","id":1000000007,"result":{}}"#, Some(1_000_000_007), 2).is_ok());
        assert!(expect(br#"{"jsonrpc":"2.0","id":1000000007,"result":{}}"#, Some(1_000_000_008), 2).is_err());
        assert!(expect(br#"{"jsonrpc":"2.0","id":1000000007,"error":{}}"#, None, 2).is_err());
    }
}
