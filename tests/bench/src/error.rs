//! Why something could not be measured.

use std::io;

/// A row that fails is skipped, and this is what is printed for it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused something.
    #[error("{what}: {cause}")]
    Io {
        /// What was tried.
        what: String,
        /// What the kernel says.
        cause: io::Error,
    },
    /// The bus, or who answers on it, refused something.
    #[error("{what}: {cause}")]
    Bus {
        /// What was tried.
        what: String,
        /// The answer.
        cause: Box<zbus::Error>,
    },
    /// A program that was started failed.
    #[error("{program} failed: {text}")]
    Program {
        /// Its command line.
        program: String,
        /// What it wrote.
        text: String,
    },
    /// An answer that is not the one that was asked for.
    #[error("a wrong answer: {0}")]
    Answer(String),
    /// Something that the bench needs is not there.
    #[error("{what}; {hint}")]
    Missing {
        /// What is missing.
        what: String,
        /// What to do.
        hint: &'static str,
    },
}

impl Error {
    /// For `map_err`: names what was tried.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        |cause| Error::Io { what: what.into(), cause }
    }

    /// For `map_err`: names what was asked for.
    pub fn bus(what: impl Into<String>) -> impl FnOnce(zbus::Error) -> Error {
        |cause| Error::Bus { what: what.into(), cause: Box::new(cause) }
    }
}
