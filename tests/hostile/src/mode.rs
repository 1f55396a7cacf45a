//! What the plugin does wrong while it starts: the word in its bundle's file `mode`.

use std::fs;
use std::process;
use std::thread;

use serde_json::{Value, json};

use crate::misbehave;
use crate::own::Own;
use crate::sys;
use crate::wire::Wire;

/// A misbehaviour of the start. `Normal` is that of a bundle without the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "NAMES describes each")]
pub enum Mode {
    Normal,
    Exit,
    ExitCode7,
    Hang,
    Nothing,
    CloseStdout,
    FloodStdout,
    FloodStderr,
    JunkLines,
    JunkEndless,
    HalfLineThenExit,
    EndlessLine,
    Bom,
    Nul,
    InvalidUtf8,
    Crlf,
    Array,
    Scalar,
    Brackets,
    Nested,
    Lsp,
    WrongId,
    StringId,
    RepeatedId,
    WrongVersion,
    WrongName,
    WrongDigest,
    WrongProtocol,
    Refuse,
    Stubborn,
}

/// Each mode's word, and what it does.
pub const NAMES: &[(&str, Mode, &str)] = &[
    ("normal", Mode::Normal, "behaves"),
    ("exit", Mode::Exit, "exits with 0 at once"),
    ("exit-code-7", Mode::ExitCode7, "says why on stderr and exits with 7 at once"),
    ("hang", Mode::Hang, "reads nothing, writes nothing, waits for ever"),
    ("nothing", Mode::Nothing, "reads everything and answers nothing, until EOF"),
    ("close-stdout", Mode::CloseStdout, "closes stdout and waits for ever"),
    ("flood-stdout", Mode::FloodStdout, "writes valid `log` frames without end"),
    ("flood-stderr", Mode::FloodStderr, "behaves, and writes stderr without end beside it"),
    ("junk-lines", Mode::JunkLines, "writes five lines of text, then behaves"),
    ("junk-endless", Mode::JunkEndless, "writes lines of text without end"),
    ("half-line-then-exit", Mode::HalfLineThenExit, "answers with half a frame and exits with 0"),
    ("endless-line", Mode::EndlessLine, "answers with a line of 1 GiB that has no end"),
    ("bom", Mode::Bom, "answers rightly, after a byte order mark"),
    ("nul", Mode::Nul, "answers rightly, with a NUL before the line's end"),
    ("invalid-utf8", Mode::InvalidUtf8, "answers with a frame that is not UTF-8"),
    ("crlf", Mode::Crlf, "behaves, with CRLF"),
    ("array", Mode::Array, "answers `[]`"),
    ("scalar", Mode::Scalar, "answers `7`"),
    ("brackets", Mode::Brackets, "answers with 200,000 brackets"),
    ("nested", Mode::Nested, "answers with a frame that holds 200,000 brackets"),
    ("lsp", Mode::Lsp, "answers rightly, in LSP's Content-Length framing"),
    ("wrong-id", Mode::WrongId, "answers rightly, to another id"),
    ("string-id", Mode::StringId, "answers rightly, to the id as a string"),
    ("repeated-id", Mode::RepeatedId, "answers twice, then behaves"),
    ("wrong-version", Mode::WrongVersion, "attests to version 99.0.0"),
    ("wrong-name", Mode::WrongName, "attests to another name"),
    ("wrong-digest", Mode::WrongDigest, "attests to other descriptors"),
    ("wrong-protocol", Mode::WrongProtocol, "attests to plugind/0"),
    ("refuse", Mode::Refuse, "answers that the attestation failed, and exits with 1"),
    ("stubborn", Mode::Stubborn, "behaves, but ignores shutdown, EOF, SIGTERM, SIGINT and SIGHUP"),
];

const BRACKETS: usize = 200_000;
const GIB: u64 = 1 << 30;

impl Mode {
    /// Reads the file `mode` of the working directory.
    pub fn read() -> Result<Mode, String> {
        match fs::read_to_string("mode") {
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Ok(Mode::Normal),
            Err(cause) => Err(format!("mode: {cause}")),
            Ok(text) => Mode::named(text.trim()).ok_or_else(|| format!("mode: `{}` is none", text.trim())),
        }
    }

    /// The mode of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Mode> {
        NAMES.iter().find(|(known, ..)| *known == name).map(|(_, mode, _)| *mode)
    }

    /// Misbehaves before anything is read. Comes back only where the plugin goes on to read.
    pub fn before_reading(self, wire: Wire) {
        match self {
            Mode::Exit => process::exit(0),
            Mode::ExitCode7 => {
                eprintln!("hostile: leaving with 7");
                process::exit(7);
            }
            Mode::Hang => wait_for_ever(),
            Mode::CloseStdout => {
                let _ = nix::unistd::close(1);
                wait_for_ever();
            }
            Mode::FloodStdout => loop {
                wire.frame(&json!({"jsonrpc": "2.0", "method": "log",
                                   "params": {"level": "info", "message": "flood"}}));
            },
            Mode::FloodStderr => {
                thread::spawn(|| misbehave::flood_stderr(u64::MAX));
            }
            Mode::JunkLines => {
                wire.raw(b"Welcome to hostile 1.0!\n\nLoading\t[##########]\n\x1b[31mred\x1b[0m\nready.\n");
            }
            Mode::JunkEndless => loop {
                wire.raw(b"this is no frame\n");
            },
            Mode::Stubborn => sys::ignore_polite_signals(),
            _ => {}
        }
    }

    /// Answers `initialize` with id `id`, rightly or wrongly.
    pub fn initialize(self, wire: Wire, id: &Value, own: &Own) {
        let mut result = json!({
            "protocol": own.protocol, "name": own.name, "version": own.version,
            "commands_digest": own.commands_digest,
        });
        match self {
            Mode::WrongVersion => result["version"] = json!("99.0.0"),
            Mode::WrongName => result["name"] = json!(format!("{}-other", own.name)),
            Mode::WrongDigest => result["commands_digest"] = json!("0".repeat(64)),
            Mode::WrongProtocol => result["protocol"] = json!("plugind/0"),
            _ => {}
        }
        let right = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
        let brackets = "[".repeat(BRACKETS) + &"]".repeat(BRACKETS);
        match self {
            Mode::Nothing => {}
            Mode::HalfLineThenExit => {
                wire.raw(&right.as_bytes()[..right.len() / 2]);
                process::exit(0);
            }
            Mode::EndlessLine => misbehave::endless_line(wire, GIB),
            Mode::Bom => wire.raw(format!("\u{feff}{right}\n").as_bytes()),
            Mode::Nul => wire.raw(format!("{right}\0\n").as_bytes()),
            Mode::InvalidUtf8 => wire.raw(b"{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":\"\xff\xfe\"}\n"),
            Mode::Array => wire.raw(b"[]\n"),
            Mode::Scalar => wire.raw(b"7\n"),
            Mode::Brackets => wire.raw(format!("{brackets}\n").as_bytes()),
            Mode::Nested => {
                let nested = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{brackets}}}\n");
                wire.raw(nested.as_bytes());
            }
            Mode::Lsp => wire.raw(format!("Content-Length: {}\r\n\r\n{right}", right.len()).as_bytes()),
            Mode::WrongId => wire.result(&json!(id.as_u64().unwrap_or(0) + 1000), &result),
            Mode::StringId => wire.result(&json!(id.to_string()), &result),
            Mode::RepeatedId => {
                wire.result(id, &result);
                wire.result(id, &result);
            }
            Mode::Refuse => {
                wire.error(id, -32001, "attestation failed: this program is somebody else");
                process::exit(1);
            }
            _ => wire.result(id, &result),
        }
    }
}

/// Waits for a signal that ends the program.
pub(crate) fn wait_for_ever() -> ! {
    loop {
        thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        for (name, mode, _) in NAMES {
            assert_eq!(Mode::named(name), Some(*mode));
        }
        assert_eq!(Mode::named("no-such-mode"), None);
    }
}
