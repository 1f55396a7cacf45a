//! A terminal that is drawn on and read key by key, and left as it was found.

use std::collections::VecDeque;
use std::env;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};

use nix::sys::termios::{self, LocalFlags, SetArg, SpecialCharacterIndices, Termios};
use plugind_protocol::{Error, Kind};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The alternate screen, without a cursor; lines too long are cut by the terminal.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
/// To the first place, where the drawing begins.
const HOME: &str = "\x1b[H";
/// Clears the rest of a line, and the rest of the screen.
const LINE_REST: &str = "\x1b[K";
const SCREEN_REST: &str = "\x1b[J";

/// Lines that are drawn where the terminal does not tell its size.
const DEFAULT_HEIGHT: usize = 24;

/// A key that was pressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    Letter(char),
    /// Ctrl-C, or Ctrl-\.
    Interrupt,
}

/// Standard output as a screen, and standard input as its keys where it is a terminal, too. Dropped, both are as they
/// were.
#[derive(Debug)]
pub(crate) struct Screen {
    keys: Option<Keys>,
}

impl Screen {
    /// Whether standard output is a terminal whose cursor can be moved.
    pub(crate) fn is_possible() -> bool {
        io::stdout().is_terminal() && env::var_os("TERM").is_none_or(|term| term != "dumb")
    }

    /// Takes the terminal over.
    pub(crate) fn enter() -> Result<Screen, Error> {
        let keys = if io::stdin().is_terminal() { Some(Keys::read()?) } else { None };
        let screen = Screen { keys };
        write(ENTER)?;
        Ok(screen)
    }

    /// How many lines there are.
    pub(crate) fn height() -> usize {
        let rows = rustix::termios::tcgetwinsize(io::stdout()).map_or(0, |size| usize::from(size.ws_row));
        if rows == 0 { DEFAULT_HEIGHT } else { rows }
    }

    /// Draws these lines, at most as many as there is room for, over what was there.
    #[expect(clippy::unused_self, reason = "only who holds the screen draws on it")]
    pub(crate) fn draw(&self, lines: &[String]) -> Result<(), Error> {
        write(&frame(lines, Screen::height()))
    }

    /// Whether keys can be read.
    pub(crate) fn has_keys(&self) -> bool {
        self.keys.is_some()
    }

    /// The next key; never, where there are none.
    pub(crate) async fn key(&mut self) -> Result<Key, Error> {
        match &mut self.keys {
            Some(keys) => keys.next().await.map_err(|cause| broken(&cause)),
            None => std::future::pending().await,
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoring. The keys restore themselves.
        let _ = write(LEAVE);
    }
}

/// One write, so that the screen is never seen half drawn.
fn frame(lines: &[String], height: usize) -> String {
    let mut text = String::from(HOME);
    for (count, line) in lines.iter().take(height).enumerate() {
        // A line end behind the last line would scroll.
        text.push_str(if count == 0 { "" } else { "\r\n" });
        // Cleared first: behind a line as long as the window the last character would be cleared.
        text.push_str(LINE_REST);
        text.push_str(line);
    }
    text.push_str(SCREEN_REST);
    text
}

fn write(text: &str) -> Result<(), Error> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(|cause| broken(&cause))
}

fn broken(cause: &io::Error) -> Error {
    Error::new(
        Kind::Unavailable,
        format!("the terminal cannot be used: {cause}"),
        "take the answer from a pipe: pluginctl top | cat",
    )
}

/// Standard input without echo and without waiting for line ends.
#[derive(Debug)]
struct Keys {
    input: AsyncFd<OwnedFd>,
    /// Read, and not asked for yet.
    ahead: VecDeque<Key>,
    found: Termios,
}

impl Keys {
    fn read() -> Result<Keys, Error> {
        let stdin = io::stdin();
        let input = stdin.as_fd().try_clone_to_owned().and_then(watch).map_err(|cause| broken(&cause))?;
        let found = termios::tcgetattr(&stdin).map_err(|cause| broken(&cause.into()))?;
        let mut wanted = found.clone();
        // Ctrl-C and Ctrl-Z come as keys, so that neither leaves the shell a terminal in this state.
        wanted
            .local_flags
            .remove(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG | LocalFlags::IEXTEN);
        // A read never blocks: the file may be shared with the shell, so it cannot be made non-blocking itself.
        wanted.control_chars[SpecialCharacterIndices::VMIN as usize] = 0;
        wanted.control_chars[SpecialCharacterIndices::VTIME as usize] = 0;
        termios::tcsetattr(&stdin, SetArg::TCSADRAIN, &wanted).map_err(|cause| broken(&cause.into()))?;
        Ok(Keys { input, ahead: VecDeque::new(), found })
    }

    async fn next(&mut self) -> io::Result<Key> {
        loop {
            if let Some(key) = self.ahead.pop_front() {
                return Ok(key);
            }
            let mut ready = self.input.readable().await?;
            let mut bytes = [0; 64];
            let count = nix::unistd::read(&self.input, &mut bytes)?;
            ready.clear_ready();
            self.ahead.extend(keys(&bytes[..count]));
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        // Keys that nobody waited for are thrown away: the shell must not take them for commands.
        let _ = termios::tcsetattr(self.input.get_ref(), SetArg::TCSAFLUSH, &self.found);
    }
}

#[expect(
    deprecated,
    reason = "unsound only for types whose descriptor can change under it; an OwnedFd's cannot"
)]
fn watch(input: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(input, Interest::READABLE)
}

/// The keys of what one read brought. Arrows and the like come as an escape sequence, whose letters are no keys.
fn keys(bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut bytes = bytes.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            0x1b if matches!(bytes.next(), Some(b'[' | b'O')) => {
                bytes.find(|byte| matches!(byte, b'@'..=b'~'));
            }
            0x03 | 0x1c => keys.push(Key::Interrupt),
            byte if byte.is_ascii_alphabetic() => keys.push(Key::Letter(char::from(*byte))),
            _ => {}
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_fits_the_window_and_clears_what_was_there() {
        let lines: Vec<String> = ["one", "two", "three"].map(String::from).into();
        assert_eq!(frame(&lines, 2), "\x1b[H\x1b[Kone\r\n\x1b[Ktwo\x1b[J");
        assert_eq!(frame(&[], 2), "\x1b[H\x1b[J");
    }

    #[test]
    fn letters_are_keys_and_arrows_are_not() {
        assert_eq!(keys(b"qM"), [Key::Letter('q'), Key::Letter('M')]);
        assert_eq!(keys(b"\x1b[A\x1a\x1bOB\x1b[1;5Cx\x03"), [Key::Letter('x'), Key::Interrupt]);
        for bytes in [&b""[..], b"\x1b", b"\x1b[", b"\x1bq", b"\n", "ü".as_bytes()] {
            assert_eq!(keys(bytes), [], "{bytes:?}");
        }
    }
}
