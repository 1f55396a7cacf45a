//! Hands a folder to the supervisor as a tar stream over a pipe.

use std::io::{self, BufWriter};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use plugind_protocol::{Error, Kind};
use tokio::sync::oneshot;

use super::walk::Folder;

/// Why an archive was not written to its end.
#[derive(Debug)]
pub(super) enum WriteError {
    /// The folder is not what it was, or breaks a rule.
    Refused(Error),
    /// Where it is written to took no more.
    Out(io::Error),
}

impl WriteError {
    pub(super) fn into_error(self) -> Error {
        match self {
            WriteError::Refused(error) => error,
            WriteError::Out(cause) => Error::new(
                Kind::Unavailable,
                format!("cannot write the bundle: {cause}"),
                "see whether the disk is full and the folder is writable",
            ),
        }
    }
}

/// The thread that writes the stream.
#[derive(Debug)]
pub(crate) struct Sender {
    outcome: Option<oneshot::Receiver<Option<Error>>>,
}

impl Sender {
    /// Nothing has to be written: the descriptor is the file itself.
    pub(super) fn idle() -> Sender {
        Sender { outcome: None }
    }

    /// What kept the folder from being sent whole, asked for once the supervisor has refused the stream: then this is
    /// the better explanation.
    pub(crate) async fn failure(self) -> Option<Error> {
        // The thread ends as soon as the reading end is closed; a reader that keeps it open must not hold us up.
        tokio::time::timeout(Duration::from_secs(1), self.outcome?).await.ok()?.ok()?
    }
}

/// The reading end of a pipe into which a thread writes the folder.
pub(super) fn send(folder: Folder) -> Result<(OwnedFd, Sender), Error> {
    let no_pipe = |cause: io::Error| Error::internal(format!("cannot make a pipe for the bundle: {cause}"));
    let (reader, writer) = io::pipe().map_err(no_pipe)?;
    let (report, outcome) = oneshot::channel();
    thread::Builder::new()
        .name("bundle".into())
        .spawn(move || {
            let failure = match folder.write(BufWriter::with_capacity(1 << 16, writer)) {
                Err(WriteError::Refused(error)) => Some(error),
                // The supervisor closed its end early, and says why itself.
                Err(WriteError::Out(_)) | Ok(_) => None,
            };
            // Nobody may be asking.
            let _ = report.send(failure);
        })
        .map_err(no_pipe)?;
    Ok((reader.into(), Sender { outcome: Some(outcome) }))
}
