//! A plugin's stderr: always drained, cut into lines, made printable, bounded, and given to the journal.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::time::Instant;

use super::Shared;

/// A longer line is cut (bytes before escaping).
const LINE_MAX: usize = 2048;

/// What `logs` can show for each plugin.
const RING_LINES: usize = 1000;
const RING_BYTES: usize = 128 * 1024;

/// The journal gets this many lines a second from each plugin, with that burst; the ring keeps the newest of all.
const RATE: u32 = 100;
const BURST: u32 = 1000;

/// The newest lines of one plugin, over all its instances.
#[derive(Debug, Default)]
pub(crate) struct LogRing {
    lines: Mutex<(VecDeque<String>, usize)>,
}

impl LogRing {
    /// The newest `count` lines, oldest first.
    pub(crate) fn tail(&self, count: usize) -> Vec<String> {
        let guard = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = &guard.0;
        lines.iter().skip(lines.len().saturating_sub(count)).cloned().collect()
    }

    fn push(&self, line: String) {
        let mut guard = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let (lines, bytes) = &mut *guard;
        *bytes += line.len();
        lines.push_back(line);
        while lines.len() > RING_LINES || *bytes > RING_BYTES {
            let Some(oldest) = lines.pop_front() else { break };
            *bytes -= oldest.len();
        }
    }
}

/// Drains stderr until it is closed.
pub(super) async fn run(shared: Arc<Shared>, mut stderr: pipe::Receiver, ring: Arc<LogRing>) {
    let plugin = &shared.plugin;
    let mut line = Line::default();
    let mut rate = Rate::new();
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let length = stderr.read(&mut buffer).await.unwrap_or(0);
        if length == 0 {
            break;
        }
        for part in buffer[..length].split_inclusive(|&byte| byte == b'\n') {
            line.push(part);
            if part.ends_with(b"\n") {
                line.emit(plugin, &ring, &mut rate);
            }
        }
        // A plugin that writes without end must not starve the others of this thread.
        tokio::task::yield_now().await;
    }
    if !line.bytes.is_empty() {
        line.emit(plugin, &ring, &mut rate);
    }
    shared.log_drained.send_replace(true);
}

#[derive(Default)]
struct Line {
    bytes: Vec<u8>,
    cut: bool,
}

impl Line {
    fn push(&mut self, part: &[u8]) {
        let part = part.strip_suffix(b"\n").unwrap_or(part);
        let room = LINE_MAX - self.bytes.len();
        self.cut |= part.len() > room;
        self.bytes.extend_from_slice(&part[..part.len().min(room)]);
    }

    fn emit(&mut self, plugin: &str, ring: &LogRing, rate: &mut Rate) {
        let mut text = printable(self.bytes.strip_suffix(b"\r").unwrap_or(&self.bytes), LINE_MAX);
        if std::mem::take(&mut self.cut) {
            text.push('…');
        }
        self.bytes.clear();
        match rate.take() {
            Pass::Yes => tracing::info!(PLUGIND_PLUGIN = plugin, "{text}"),
            Pass::First => tracing::warn!(
                PLUGIND_PLUGIN = plugin,
                "its log is faster than {RATE} lines a second: the rest is left out here"
            ),
            Pass::No => {}
        }
        ring.push(text);
    }
}

enum Pass {
    Yes,
    /// The first line that is left out since some passed.
    First,
    No,
}

/// A token bucket.
struct Rate {
    tokens: u32,
    filled: Instant,
    quiet: bool,
}

impl Rate {
    fn new() -> Rate {
        Rate { tokens: BURST, filled: Instant::now(), quiet: false }
    }

    fn take(&mut self) -> Pass {
        let step = Duration::from_secs(1) / RATE;
        let steps = u32::try_from(self.filled.elapsed().as_nanos() / step.as_nanos()).unwrap_or(u32::MAX);
        if steps > 0 {
            self.tokens = self.tokens.saturating_add(steps).min(BURST);
            self.filled = Instant::now();
        }
        if self.tokens > 0 {
            self.tokens -= 1;
            self.quiet = false;
            return Pass::Yes;
        }
        if std::mem::replace(&mut self.quiet, true) { Pass::No } else { Pass::First }
    }
}

/// Text that can be shown on a terminal: control and direction characters and broken UTF-8 are escaped.
pub(super) fn printable(bytes: &[u8], max: usize) -> String {
    let mut text = String::with_capacity(bytes.len().min(max));
    for chunk in bytes[..bytes.len().min(max)].utf8_chunks() {
        for c in chunk.valid().chars() {
            if c == '\t' || !(c.is_control() || is_direction(c)) {
                text.push(c);
            } else {
                let _ = write!(text, "{}", c.escape_unicode());
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Characters that turn the direction of text, and so can make a line look like another.
fn is_direction(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_escape_cannot_pass() {
        assert_eq!(printable(b"a\x1b[2Jb", 99), "a\\u{1b}[2Jb");
        assert_eq!(printable(b"a\xff\xfeb", 99), "a\\xff\\xfeb");
        assert_eq!(printable("a\u{202e}b".as_bytes(), 99), "a\\u{202e}b");
        assert_eq!(printable("Grüße\t".as_bytes(), 99), "Grüße\t");
    }

    #[test]
    fn the_ring_keeps_the_newest_lines_within_its_bytes() {
        let ring = LogRing::default();
        for number in 0..5000 {
            ring.push(format!("{number} {}", "x".repeat(100)));
        }
        let lines = ring.tail(usize::MAX);
        assert!(lines.iter().map(String::len).sum::<usize>() <= RING_BYTES && lines.len() <= RING_LINES);
        assert!(lines.last().unwrap().starts_with("4999 "));
        assert_eq!(ring.tail(2).len(), 2);
    }

    #[tokio::test]
    async fn an_endless_line_is_cut_and_the_next_one_is_whole() {
        let mut line = Line::default();
        for _ in 0..1000 {
            line.push(&[b'x'; 4096]);
        }
        assert!(line.bytes.capacity() <= 2 * LINE_MAX);
        let ring = LogRing::default();
        let mut rate = Rate::new();
        line.emit("p", &ring, &mut rate);
        line.push(b"next\n");
        line.emit("p", &ring, &mut rate);
        let lines = ring.tail(9);
        assert!(lines[0].ends_with('…') && lines[1] == "next");
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_announced_once_and_ends_after_a_while() {
        let mut rate = Rate::new();
        let passes = (0..BURST).filter(|_| matches!(rate.take(), Pass::Yes)).count();
        assert_eq!(passes, BURST as usize);
        assert!(matches!(rate.take(), Pass::First));
        assert!(matches!(rate.take(), Pass::No));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(matches!(rate.take(), Pass::Yes));
    }
}
