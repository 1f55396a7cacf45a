//! The command line. In service it is empty; `pluginctl run` and the tests pass a private connection.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use plugind_protocol::{Error, Kind};

/// How this process was started.
#[derive(Debug)]
pub(crate) struct Options {
    /// Connections instead of the session bus and the launcher's socket.
    pub(crate) private: Option<Private>,
    /// The state directory, instead of the user's.
    pub(crate) state: Option<PathBuf>,
}

/// Connections that the starting process made.
#[derive(Debug)]
pub(crate) struct Private {
    /// A peer-to-peer D-Bus connection.
    pub(crate) bus: UnixStream,
    /// The `SOCK_SEQPACKET` socket to a launcher.
    pub(crate) launcher: OwnedFd,
}

impl Options {
    /// Reads the arguments. Descriptors are passed as 0 and 1, so that they can be taken over safely.
    pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, Error> {
        let (mut bus, mut launcher, mut state) = (None, None, None);
        while let Some(option) = arguments.next() {
            let value = arguments.next().ok_or_else(|| usage(&format!("{option} needs a value")))?;
            match option.as_str() {
                "--bus-fd" => bus = Some(descriptor(&value)?),
                "--launcher-fd" => launcher = Some(descriptor(&value)?),
                "--state-dir" => state = Some(PathBuf::from(value)),
                _ => return Err(usage(&format!("unknown option {option}"))),
            }
        }
        let private = match (bus, launcher) {
            (Some(bus), Some(launcher)) => Some(Private { bus: bus.into(), launcher }),
            (None, None) => None,
            _ => return Err(usage("--bus-fd and --launcher-fd go together")),
        };
        Ok(Options { private, state })
    }
}

fn descriptor(number: &str) -> Result<OwnedFd, Error> {
    let taken = match number {
        "0" => std::io::stdin().as_fd().try_clone_to_owned(),
        "1" => std::io::stdout().as_fd().try_clone_to_owned(),
        _ => return Err(usage("descriptors are passed as 0 or 1")),
    };
    taken.map_err(|cause| usage(&format!("descriptor {number}: {cause}")))
}

fn usage(what: &str) -> Error {
    Error::new(
        Kind::InvalidArguments,
        what,
        "usage: plugind [--bus-fd 0 --launcher-fd 1] [--state-dir DIR]; without options it serves the session bus",
    )
}
