//! One caller of the soak: one thread sends, another checks what comes.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::random::{Random, checksum};
use crate::Error;
use crate::client::Lines;

/// Calls in flight; all callers' together stay below what the plugins take at once.
const WINDOW: usize = 16;
/// An answer that takes longer is lost.
const PATIENCE: Duration = Duration::from_secs(60);
/// After all answers: whatever comes before its own answer came for nobody.
const PING: &str = "{\"jsonrpc\":\"2.0\",\"id\":\"last\",\"method\":\"ping\",\"params\":{}}\n";

/// What came of the calls.
#[derive(Debug, Default)]
pub(super) struct Count {
    pub(super) answered: u64,
    pub(super) bytes: u64,
    pub(super) lost: u64,
    pub(super) stray: u64,
    pub(super) wrong: u64,
    pub(super) failed: u64,
    /// The first thing that was wrong.
    pub(super) example: Option<String>,
}

impl Count {
    pub(super) fn add(&mut self, other: Count) {
        self.answered += other.answered;
        self.bytes += other.bytes;
        self.lost += other.lost;
        self.stray += other.stray;
        self.wrong += other.wrong;
        self.failed += other.failed;
        self.example = self.example.take().or(other.example);
    }

    pub(super) fn fail(&mut self, example: String) {
        self.failed += 1;
        self.example.get_or_insert(example);
    }
}

/// What the answer to a request must be.
#[derive(Debug, Clone, Copy)]
struct Expected {
    checksum: u64,
    length: usize,
}

#[derive(Debug, Default)]
struct Pending {
    calls: Mutex<HashMap<String, Expected>>,
    room: Condvar,
    /// No answer will come any more.
    ended: AtomicBool,
}

pub(super) struct Caller<'a> {
    stream: UnixStream,
    plugins: &'a [&'a str],
    calls: u64,
    random: Random,
    pending: Pending,
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Echo<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
    #[serde(borrow)]
    text: &'a RawValue,
}

impl<'a> Caller<'a> {
    pub(super) fn new(
        stream: UnixStream,
        plugins: &'a [&'a str],
        calls: u64,
        seed: u64,
    ) -> Result<Caller<'a>, Error> {
        let failed = || Error::io("cannot prepare a socket");
        stream.set_nonblocking(false).map_err(failed())?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed())?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(failed())?;
        Ok(Caller { stream, plugins, calls, random: Random::new(seed), pending: Pending::default() })
    }

    /// Does all calls.
    pub(super) fn run(self) -> Result<Count, Error> {
        let Caller { stream, plugins, calls, random, pending } = self;
        let mut lines = Lines::new(stream.try_clone().map_err(Error::io("cannot prepare a socket"))?);
        let mut count = Count::default();
        let sent = thread::scope(|scope| {
            let writer = scope.spawn(|| send(&stream, plugins, calls, random, &pending));
            receive(&mut lines, calls, &pending, &mut count);
            // A writer that waits for room that will not come is woken by the end of the stream.
            if count.answered < calls {
                let _ = stream.shutdown(std::net::Shutdown::Both);
                pending.give_up();
            }
            writer.join().unwrap_or_else(|_| Err(Error::Answer("the writer panicked".to_owned())))
        });
        if count.answered == calls {
            sent?;
            (&stream).write_all(PING.as_bytes()).map_err(Error::io("cannot send a ping"))?;
            receive_rest(&mut lines, &mut count)?;
        }
        let left = pending.lock().len();
        count.lost += u64::try_from(left).unwrap_or(u64::MAX);
        Ok(count)
    }
}

impl Pending {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Expected>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a request once there is room for it.
    fn add(&self, id: &str, expected: Expected) {
        let mut calls = self.lock();
        while calls.len() >= WINDOW && !self.ended.load(Ordering::SeqCst) {
            calls = self.room.wait(calls).unwrap_or_else(PoisonError::into_inner);
        }
        calls.insert(id.to_owned(), expected);
    }

    fn remove(&self, id: &str) -> Option<Expected> {
        let expected = self.lock().remove(id);
        self.room.notify_one();
        expected
    }

    /// Makes room for a writer that is to find its stream closed; what was pending stays counted.
    fn give_up(&self) {
        let calls = self.lock();
        self.ended.store(true, Ordering::SeqCst);
        drop(calls);
        self.room.notify_all();
    }
}

fn send(
    mut stream: &UnixStream,
    plugins: &[&str],
    calls: u64,
    mut random: Random,
    pending: &Pending,
) -> Result<(), Error> {
    let (mut id, mut text, mut line) = (String::new(), String::new(), String::new());
    for number in 0..calls {
        name(&mut id, number);
        text.clear();
        text.push('"');
        let size = random.size();
        random.text(&mut text, size);
        text.push('"');
        line.clear();
        let plugin = plugins[usize::try_from(random.below(4)).unwrap_or(0) % plugins.len()];
        // Writing to a string cannot fail.
        let _ = writeln!(
            line,
            r#"{{"jsonrpc":"2.0","id":{id},"method":"command/invoke","params":{{"plugin":"{plugin}","command":"echo","arguments":{{"id":{id},"text":{text}}}}}}}"#
        );
        pending.add(&id, Expected { checksum: checksum(&text), length: text.len() });
        stream.write_all(line.as_bytes()).map_err(Error::io("cannot send a request"))?;
    }
    Ok(())
}

/// Every kind of id that a caller may choose.
fn name(id: &mut String, number: u64) {
    id.clear();
    let _ = match number % 5 {
        0 => write!(id, "{number}"),
        1 => write!(id, "-{number}"),
        2 => write!(id, "{}", (1_u64 << 53) + 1 + number),
        3 => write!(id, "\"call {number}\""),
        _ => write!(id, "\"\\u0063\\\"é {number}\""),
    };
}

fn receive(lines: &mut Lines, calls: u64, pending: &Pending, count: &mut Count) {
    while count.answered < calls {
        match lines.wait() {
            Ok(line) => check(line, pending, count),
            Err(cause) => return count.fail(cause.to_string()),
        }
    }
}

fn check(line: &[u8], pending: &Pending, count: &mut Count) {
    let shown = || String::from_utf8_lossy(&line[..line.len().min(400)]).into_owned();
    let Ok(answer) = serde_json::from_slice::<Answer>(line) else {
        return count.fail(shown());
    };
    let Some(expected) = pending.remove(answer.id.get()) else {
        count.stray += 1;
        count.example.get_or_insert_with(shown);
        return;
    };
    count.answered += 1;
    let Some(result) = answer.result else { return count.fail(shown()) };
    let is_its_own = serde_json::from_str::<Echo>(result.get()).is_ok_and(|echo| {
        let text = echo.text.get();
        echo.id.get() == answer.id.get()
            && text.len() == expected.length
            && checksum(text) == expected.checksum
    });
    if is_its_own {
        count.bytes += u64::try_from(expected.length).unwrap_or(0);
    } else {
        count.wrong += 1;
        count.example.get_or_insert_with(shown);
    }
}

/// Nothing but the ping's answer may come.
fn receive_rest(lines: &mut Lines, count: &mut Count) -> Result<(), Error> {
    loop {
        let line = lines.wait()?;
        let answer = serde_json::from_slice::<Answer>(line);
        if answer.is_ok_and(|answer| answer.id.get() == "\"last\"") {
            return Ok(());
        }
        count.stray += 1;
        let shown = String::from_utf8_lossy(&line[..line.len().min(400)]).into_owned();
        count.example.get_or_insert(shown);
    }
}
