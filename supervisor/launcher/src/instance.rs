//! One running plugin, from the launcher's side: who it is, and how it ends.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use plugind_protocol::launch::ExitStatus;
use plugind_protocol::{Error, Kind};
use tokio::process::Child;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::cgroup::Cgroup;
use crate::scope::{JOB_DEADLINE, ServiceManager};
use crate::sys;

/// How long a cgroup may take to become empty after everything in it was killed (DESIGN §9).
pub(crate) const KILL_DEADLINE: Duration = Duration::from_secs(5);

/// How long bubblewrap may take to pass an exit status on.
const STATUS_GRACE: Duration = Duration::from_secs(1);

/// bubblewrap reports a plugin that a signal killed as this plus the signal's number.
const SIGNAL_BASE: i32 = 128;

/// A plugin's process, its scope, and our copies of its descriptors.
pub(crate) struct Instance {
    pub(crate) id: String,
    pub(crate) unit: String,
    pub(crate) cgroup: Cgroup,
    pidfd: OwnedFd,
    /// Kept so that the plugin outlives the supervisor's own copies.
    stdin: Mutex<Option<OwnedFd>>,
    _outputs: [OwnedFd; 2],
    ended: watch::Sender<Option<ExitStatus>>,
}

impl Instance {
    pub(crate) fn new(
        id: String,
        unit: String,
        cgroup: Cgroup,
        pidfd: OwnedFd,
        stdio: [OwnedFd; 3],
    ) -> Instance {
        let [stdin, stdout, stderr] = stdio;
        Instance {
            id,
            unit,
            cgroup,
            pidfd,
            stdin: Mutex::new(Some(stdin)),
            _outputs: [stdout, stderr],
            ended: watch::channel(None).0,
        }
    }

    /// Closes our copy of the plugin's stdin.
    pub(crate) fn close_stdin(&self) {
        self.stdin.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Sends a signal to the plugin's own process; one that has ended already is no error.
    pub(crate) fn signal(&self, signal: i32) -> Result<(), Error> {
        match sys::pidfd_send_signal(self.pidfd.as_fd(), signal) {
            Err(cause) if cause.raw_os_error() != Some(nix::libc::ESRCH) => {
                Err(Error::internal(format!("cannot signal {}: {cause}", self.unit)))
            }
            _ => Ok(()),
        }
    }

    /// Kills everything in the cgroup and waits until it is empty and its end is known.
    pub(crate) async fn kill(&self) -> Result<(), Error> {
        let mut ended = self.ended.subscribe();
        if self.has_exited() {
            // bubblewrap is about to tell the exit status; killed with the rest, it could not.
            let _ = timeout(STATUS_GRACE, ended.wait_for(Option::is_some)).await;
        }
        self.cgroup
            .kill()
            .map_err(|cause| Error::internal(format!("cannot kill the cgroup of {}: {cause}", self.unit)))?;
        // The watcher itself takes up to one deadline to see the cgroup empty.
        match timeout(2 * KILL_DEADLINE, ended.wait_for(Option::is_some)).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(still_alive(&self.unit)),
        }
    }

    fn has_exited(&self) -> bool {
        let mut fds = [PollFd::new(self.pidfd.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    /// Waits for the plugin's end, and makes sure that nothing of it is left; then tells everybody who waits.
    pub(crate) async fn watch<M: ServiceManager>(&self, mut bubblewrap: Child, manager: &M) -> ExitStatus {
        let status = match bubblewrap.wait().await {
            Ok(status) => translate(status),
            Err(_) => ExitStatus::Unknown,
        };
        // Grandchildren survive bubblewrap: without --die-with-parent its init waits for them.
        if let Err(cause) = self.cgroup.kill() {
            tracing::warn!(unit = self.unit, "cannot kill the cgroup: {cause}; stopping the unit instead");
            let _ = timeout(JOB_DEADLINE, manager.stop_unit(&self.unit)).await;
        }
        if !self.cgroup.empty_within(KILL_DEADLINE).await {
            tracing::error!(
                unit = self.unit,
                "processes are left {} s after SIGKILL",
                KILL_DEADLINE.as_secs()
            );
            let _ = timeout(JOB_DEADLINE, manager.stop_unit(&self.unit)).await;
        }
        self.ended.send_replace(Some(status));
        status
    }

    /// The plugin's pidfd.
    pub(crate) fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

pub(crate) fn translate(status: std::process::ExitStatus) -> ExitStatus {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) if code > SIGNAL_BASE && code <= SIGNAL_BASE + 64 => {
            ExitStatus::Signal(code - SIGNAL_BASE)
        }
        (Some(code), _) => ExitStatus::Code(code),
        (None, Some(signal)) => ExitStatus::Signal(signal),
        (None, None) => ExitStatus::Unknown,
    }
}

fn still_alive(unit: &str) -> Error {
    Error::new(
        Kind::TimedOut,
        format!("processes of {unit} are alive {} s after SIGKILL", 2 * KILL_DEADLINE.as_secs()),
        format!("they hang in the kernel: systemd-cgls --unit {unit}, and see `cat /proc/<pid>/stack`"),
    )
    .outcome_unknown()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn a_signal_that_bubblewrap_reports_as_an_exit_code_is_a_signal() {
        let exit = |code: i32| translate(std::process::ExitStatus::from_raw(code << 8));
        assert_eq!(exit(0), ExitStatus::Code(0));
        assert_eq!(exit(137), ExitStatus::Signal(9));
        assert_eq!(exit(255), ExitStatus::Code(255));
        assert_eq!(translate(std::process::ExitStatus::from_raw(9)), ExitStatus::Signal(9));
    }
}
