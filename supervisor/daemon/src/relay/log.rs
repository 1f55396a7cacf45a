//! A plugin's log: the lines of its stderr and its `log` messages, made printable, bounded, kept for `logs`, and given to
//! the journal at a bounded rate.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tracing::Level;

/// A longer line is cut (bytes before escaping).
pub(super) const LINE_MAX: usize = 2048;

/// What `logs` can show for each plugin.
const LINES: usize = 1000;
const BYTES: usize = 128 * 1024;

/// The journal gets this many lines a second from each plugin, with that burst; `logs` has the newest of all.
const RATE: u32 = 100;
const BURST: u32 = 1000;

/// Where a line came from: the journal must tell a plugin's words from ours.
#[derive(Debug, Clone, Copy)]
pub(super) enum Source {
    Stderr,
    Log,
}

/// The newest lines of one plugin, over all its instances.
#[derive(Debug)]
pub(crate) struct PluginLog {
    plugin: String,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    lines: VecDeque<String>,
    bytes: usize,
    /// Lines ever added.
    added: u64,
    rate: Rate,
}

impl PluginLog {
    /// An empty log.
    pub(crate) fn new(plugin: &str) -> PluginLog {
        let state = State { lines: VecDeque::new(), bytes: 0, added: 0, rate: Rate::new() };
        PluginLog { plugin: plugin.to_owned(), state: Mutex::new(state) }
    }

    /// The newest `count` lines, oldest first.
    pub(crate) fn tail(&self, count: usize) -> Vec<String> {
        let lines = &self.lock().lines;
        lines.iter().skip(lines.len().saturating_sub(count)).cloned().collect()
    }

    /// How many lines there have been, to find those that come later.
    pub(crate) fn mark(&self) -> u64 {
        self.lock().added
    }

    /// The newest `count` lines of those that came after `mark`.
    pub(crate) fn since(&self, mark: u64, count: usize) -> Vec<String> {
        let later = usize::try_from(self.mark().saturating_sub(mark)).unwrap_or(usize::MAX);
        self.tail(count.min(later))
    }

    /// Adds a line as the plugin wrote it; `cut` says that there was more of it.
    pub(super) fn add(&self, source: Source, level: Level, line: &[u8], cut: bool) {
        let mut text = printable(line, LINE_MAX);
        if cut || line.len() > LINE_MAX {
            text.push('…');
        }
        let mut state = self.lock();
        let pass = state.rate.take();
        state.keep(text.clone());
        drop(state);
        let plugin = &self.plugin;
        let source = match source {
            Source::Stderr => "stderr",
            Source::Log => "log",
        };
        match (pass, level) {
            (Pass::Yes, Level::ERROR) => {
                tracing::error!(PLUGIND_PLUGIN = plugin, PLUGIND_SOURCE = source, "{text}");
            }
            (Pass::Yes, Level::WARN) => {
                tracing::warn!(PLUGIND_PLUGIN = plugin, PLUGIND_SOURCE = source, "{text}");
            }
            (Pass::Yes, Level::INFO) => {
                tracing::info!(PLUGIND_PLUGIN = plugin, PLUGIND_SOURCE = source, "{text}");
            }
            (Pass::Yes, _) => tracing::debug!(PLUGIND_PLUGIN = plugin, PLUGIND_SOURCE = source, "{text}"),
            (Pass::First, _) => tracing::warn!(
                PLUGIND_PLUGIN = plugin,
                "the log of {plugin} is faster than {RATE} lines a second: the rest is left out here"
            ),
            (Pass::No, _) => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn keep(&mut self, line: String) {
        self.bytes += line.len();
        self.added += 1;
        self.lines.push_back(line);
        while self.lines.len() > LINES || self.bytes > BYTES {
            let Some(oldest) = self.lines.pop_front() else { break };
            self.bytes -= oldest.len();
        }
    }
}

enum Pass {
    Yes,
    /// The first line that is left out since some passed.
    First,
    No,
}

/// A token bucket.
#[derive(Debug)]
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
        // Within a flood every line starts the wait anew, so that it ends with the flood and not in the midst of it.
        if steps > 0 || self.quiet {
            self.tokens = self.tokens.saturating_add(steps).min(BURST);
            self.filled = Instant::now();
        }
        if self.quiet && self.tokens < RATE {
            return Pass::No;
        }
        self.quiet = self.tokens == 0;
        if self.quiet {
            return Pass::First;
        }
        self.tokens -= 1;
        Pass::Yes
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

    #[tokio::test]
    async fn the_newest_lines_are_kept_within_their_bytes() {
        let log = PluginLog::new("p");
        for number in 0..5000 {
            log.add(Source::Stderr, Level::INFO, format!("{number} {}", "x".repeat(100)).as_bytes(), false);
        }
        let lines = log.tail(usize::MAX);
        assert!(lines.iter().map(String::len).sum::<usize>() <= BYTES && lines.len() <= LINES);
        assert!(lines.last().unwrap().starts_with("4999 "));
        assert_eq!(log.tail(2).len(), 2);
        let mark = log.mark();
        assert!(log.since(mark, 9).is_empty(), "nothing came later");
        log.add(Source::Log, Level::INFO, b"later", false);
        assert_eq!(log.since(mark, 9), ["later"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_announced_once_and_ends_after_a_while() {
        let mut rate = Rate::new();
        let passes = (0..BURST).filter(|_| matches!(rate.take(), Pass::Yes)).count();
        assert_eq!(passes, BURST as usize);
        assert!(matches!(rate.take(), Pass::First));
        for _ in 0..10_000 {
            tokio::time::advance(Duration::from_millis(5)).await;
            assert!(matches!(rate.take(), Pass::No), "the notice comes once in a flood");
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(matches!(rate.take(), Pass::Yes));
    }
}
