//! The floor: the same plugin, unsandboxed, behind a relay that only copies bytes.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use crate::Error;
use crate::client::Client;
use crate::programs::Programs;

/// A running relay with its plugin, and the client's end of it.
#[derive(Debug)]
pub struct Floor {
    /// The caller.
    pub client: Client,
    relay: Child,
}

impl Floor {
    /// Starts both.
    pub fn start(programs: &Programs) -> Result<Floor, Error> {
        let failed = || Error::io("cannot start the floor");
        let (ours, theirs) = UnixStream::pair().map_err(failed())?;
        let relay = Command::new(&programs.floor)
            .arg("relay")
            .arg(&programs.echo_plugin)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .spawn()
            .map_err(failed())?;
        Ok(Floor { client: Client::new(ours)?, relay })
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        // The plugin ends at the end of its input.
        let _ = self.relay.kill();
        let _ = self.relay.wait();
    }
}
