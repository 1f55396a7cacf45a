//! The signals by which a person or a service manager ends us.

use plugind_protocol::Error;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT, SIGTERM, SIGHUP and SIGQUIT, which do not end the process at once while this is listening.
pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    quit: Signal,
}

impl Interrupts {
    /// Listens from now on.
    pub(crate) fn listen() -> Result<Interrupts, Error> {
        let listen =
            |kind| signal(kind).map_err(|cause| Error::internal(format!("cannot wait for signals: {cause}")));
        Ok(Interrupts {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
            quit: listen(SignalKind::quit())?,
        })
    }

    /// The number of the next one.
    pub(crate) async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt().as_raw_value(),
            _ = self.terminate.recv() => SignalKind::terminate().as_raw_value(),
            _ = self.hangup.recv() => SignalKind::hangup().as_raw_value(),
            _ = self.quit.recv() => SignalKind::quit().as_raw_value(),
        }
    }
}

/// The exit code after that signal, as a shell gives it.
pub(crate) fn exit_code(number: i32) -> u8 {
    u8::try_from(128 + number).unwrap_or(u8::MAX)
}
