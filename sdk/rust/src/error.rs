//! Why a plugin stops serving.

use std::{fmt, io};

use plugind_protocol::ManifestError;

/// Why a plugin does not serve. Returned from `main`, it is printed and the program exits with 1.
pub enum Error {
    /// The compiled-in manifest breaks a rule.
    Manifest(ManifestError),
    /// Commands of the manifest and commands given to [`Plugin::command`](crate::Plugin::command) differ.
    Commands(String),
    /// The supervisor expects another program: which values differ.
    Attestation(String),
    /// stdin or stdout failed, or no thread could be started.
    Io(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Manifest(cause) => write!(f, "the compiled-in manifest: {cause}"),
            Error::Commands(cause) => f.write_str(cause),
            Error::Attestation(differences) => write!(f, "attestation failed: {differences}"),
            Error::Io(cause) => write!(f, "the connection to the supervisor: {cause}"),
        }
    }
}

/// The text of `Display`: `main` prints its error by this.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}

impl From<ManifestError> for Error {
    fn from(cause: ManifestError) -> Error {
        Error::Manifest(cause)
    }
}

impl From<io::Error> for Error {
    fn from(cause: io::Error) -> Error {
        Error::Io(cause)
    }
}
