//! One running instance: starting it up to the handshake, calling it, ending it (DESIGN §3, §6).

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use plugind_protocol::launch::{ExitStatus, Launched};
use plugind_protocol::{Error, Kind};
use serde_json::json;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

use super::attestation::Identity;
use super::preparation::{Surroundings, prepare};
use crate::contract::Contract;
use crate::launcher::{Launcher, Running};
use crate::registry::Record;
use crate::relay::{Bounds, End, Failure, Link, PluginLog, Pool, shown};

/// From the launch to the end of the handshake (DESIGN §9).
pub(crate) const START_DEADLINE: Duration = Duration::from_secs(15);

/// `shutdown` and SIGTERM each get this long (DESIGN §9).
const STOP_STEP: Duration = Duration::from_secs(5);

/// How long an exit status may take after the process itself is gone.
const EXIT_DEADLINE: Duration = Duration::from_secs(11);

/// From the end of a plugin's stdout to its exit.
const EXIT_GRACE: Duration = Duration::from_millis(500);

/// Nobody holds the plugin's stderr any more when its end is known: what is left in the pipe is read at once.
const DRAIN_DEADLINE: Duration = Duration::from_secs(1);

/// The lines of stderr that an error shows.
const TAIL: usize = 10;

/// A plugin that passed its handshake.
pub(crate) struct Session {
    pub(crate) instance: String,
    pub(crate) launched: Launched,
    pub(crate) link: Link,
    pidfd: AsyncFd<OwnedFd>,
    exit: Exit,
    launcher: Arc<Launcher>,
    log: Arc<PluginLog>,
    /// Where this instance's lines begin in the log.
    mark: u64,
    name: String,
}

/// The exit status, once the launcher has told it.
enum Exit {
    Waiting(oneshot::Receiver<ExitStatus>),
    Known(ExitStatus),
}

impl Exit {
    async fn status(&mut self) -> ExitStatus {
        let status = match self {
            Exit::Known(status) => *status,
            Exit::Waiting(receiver) => match timeout(EXIT_DEADLINE, receiver).await {
                Ok(Ok(status)) => status,
                _ => ExitStatus::Unknown,
            },
        };
        *self = Exit::Known(status);
        status
    }

    /// Resolves when the launcher told it, or is gone itself.
    async fn told(&mut self) -> Lost {
        if let Exit::Waiting(receiver) = self {
            let told = receiver.await;
            let lost = if told.is_ok() { Lost::Plugin } else { Lost::Launcher };
            *self = Exit::Known(told.unwrap_or(ExitStatus::Unknown));
            return lost;
        }
        Lost::Plugin
    }
}

/// What ended.
enum Lost {
    Plugin,
    Launcher,
}

/// Nobody else holds the plugin's pipes and its exit status: it is ended with its launcher.
fn launcher_gone(name: &str) -> Error {
    Error::new(
        Kind::Crashed,
        format!("{name} was ended because its launcher is gone"),
        "the next call starts it again; see why the launcher ended: journalctl --user -u plugind-launcher",
    )
}

impl Session {
    /// Verifies, launches and attests; a failure leaves nothing running.
    pub(crate) async fn start(
        surroundings: &Surroundings,
        record: &Record,
        contract: &Contract,
        pool: &Arc<Pool>,
        log: Arc<PluginLog>,
    ) -> Result<Session, Error> {
        let instance = crate::identifier()?;
        let (launch, _verified) = prepare(surroundings, record, contract, &instance).await?;
        let deadline = Instant::now() + START_DEADLINE;
        let mark = log.mark();
        let running = surroundings.launcher.launch(launch).await?;
        let Running { launched, stdio, pidfd, exit } = running;
        let name = record.name.clone();
        let opened = Link::new(pool, stdio, Arc::clone(&log), &surroundings.stderr).and_then(|link| {
            crate::watch::watch(pidfd, Interest::READABLE)
                .map(|pidfd| (link, pidfd))
                .map_err(|cause| Error::internal(format!("cannot watch the plugin's process: {cause}")))
        });
        let (link, pidfd) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                let _ = surroundings.launcher.kill(&instance).await;
                return Err(error);
            }
        };
        let launcher = Arc::clone(&surroundings.launcher);
        let exit = Exit::Waiting(exit);
        let mut session = Session { instance, launched, link, pidfd, exit, launcher, log, mark, name };
        match session.handshake(contract, pool.bounds(), deadline).await {
            Ok(()) => {
                session.link.attested();
                Ok(session)
            }
            Err(error) => {
                let status = session.kill().await;
                Err(with_tail(error, status, &session.log.since(session.mark, TAIL)))
            }
        }
    }

    async fn handshake(
        &mut self,
        contract: &Contract,
        bounds: Bounds,
        deadline: Instant,
    ) -> Result<(), Error> {
        let manifest = &contract.manifest;
        let ours = Identity::of(manifest);
        let params = json!({
            "protocol": ours.protocol,
            "name": ours.name,
            "version": ours.version,
            "bundle_digest": contract.digest.to_string(),
            "commands_digest": ours.commands_digest,
            "limits": { "frame_max": bounds.frame_max, "in_flight": bounds.in_flight },
            "features": [],
        });
        let answer = tokio::select! {
            // An answer that was written before the end still counts.
            biased;
            answer = self.link.request("initialize", &params, deadline) => answer,
            end = self.link.ended() => return Err(self.ended_early(end).await),
        };
        match answer {
            Ok(theirs) => ours.compare(&theirs, &self.name),
            Err(Failure::Plugin(refusal)) => Err(Error::new(
                Kind::AttestationFailed,
                format!("{} refused the handshake: {}", self.name, shown(&refusal.message)),
                "its program is not the one that its manifest describes: install a bundle whose parts belong together",
            )),
            Err(Failure::Ours(error)) if error.kind == Kind::TimedOut => Err(Error::new(
                Kind::TimedOut,
                format!(
                    "{} did not answer `initialize` within {} s of its launch",
                    self.name,
                    START_DEADLINE.as_secs()
                ),
                "see its log; its program must read JSON lines from stdin and answer on stdout, unbuffered",
            )),
            Err(Failure::Ours(error)) => Err(*error),
        }
    }

    /// The link's end before the handshake was done.
    async fn ended_early(&mut self, end: End) -> Error {
        match end {
            End::Violation(error) => *error,
            End::Closed => {
                self.may_exit().await;
                let status = self.kill().await;
                Error::new(
                    Kind::Crashed,
                    format!("{} ended before its handshake ({status})", self.name),
                    "see its log: pluginctl logs",
                )
                .with_details(exit_details(status))
            }
        }
    }

    /// Resolves when the instance ends by itself, with the error that every call of it got.
    pub(crate) async fn ended(&mut self) -> Error {
        let end = tokio::select! {
            end = self.link.ended() => end,
            // The process is gone; what it wrote before is read until its stdout ends, which the launcher's kill brings.
            _ = self.pidfd.readable() => timeout(STOP_STEP, self.link.ended()).await.unwrap_or(End::Closed),
            lost = self.exit.told() => match lost {
                Lost::Plugin => timeout(STOP_STEP, self.link.ended()).await.unwrap_or(End::Closed),
                Lost::Launcher => End::Violation(Box::new(launcher_gone(&self.name))),
            },
        };
        if end == End::Closed {
            self.may_exit().await;
        }
        let status = self.kill().await;
        let error = match end {
            End::Violation(error) => *error,
            End::Closed => Error::new(
                Kind::Crashed,
                format!("{} ended ({status})", self.name),
                "the next call starts it again; see why it ended: pluginctl logs",
            ),
        };
        let error = with_tail(error, status, &self.log.since(self.mark, TAIL));
        self.link.fail_all(&error);
        error
    }

    /// `shutdown`, end of file, SIGTERM, the whole cgroup: each with its time.
    pub(crate) async fn stop(mut self) -> ExitStatus {
        self.link.retire();
        let asked = async {
            let deadline = Instant::now() + STOP_STEP;
            let _ = self.link.request("shutdown", &json!({}), deadline).await;
            let _ = timeout_at(deadline, self.pidfd.readable()).await;
        };
        asked.await;
        let gone = Error::new(
            Kind::Cancelled,
            format!("{} was stopped", self.name),
            "the next call starts it again",
        );
        self.link.fail_all(&gone);
        if !self.has_ended() {
            self.link.close_stdin();
            let _ = self.launcher.close_stdin(&self.instance).await;
            let _ = self.launcher.signal(&self.instance, nix::libc::SIGTERM).await;
            let _ = timeout(STOP_STEP, self.pidfd.readable()).await;
        }
        self.kill().await
    }

    /// Sends a signal to the plugin's own process.
    pub(crate) async fn signal(launcher: &Launcher, instance: &str, signal: i32) -> Result<(), Error> {
        launcher.signal(instance, signal).await
    }

    /// A program that closes its stdout is about to exit: how it does is worth a moment.
    async fn may_exit(&self) {
        let _ = timeout(EXIT_GRACE, self.pidfd.readable()).await;
    }

    fn has_ended(&self) -> bool {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        use std::os::fd::AsFd as _;
        let mut fds = [PollFd::new(self.pidfd.get_ref().as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    /// Kills whatever is left; how the plugin's program ended.
    async fn kill(&mut self) -> ExitStatus {
        // A launcher that is gone, or that has come back, knows nothing of the instance.
        let forgotten = matches!(self.exit, Exit::Known(ExitStatus::Unknown));
        let killed =
            if forgotten { Err(launcher_gone(&self.name)) } else { self.launcher.kill(&self.instance).await };
        if let Err(error) = killed {
            tracing::error!(PLUGIND_PLUGIN = self.name, "{error}");
            if let Err(cause) = crate::cgroup::kill(&self.launched.cgroup) {
                tracing::error!(PLUGIND_PLUGIN = self.name, "cannot kill {}: {cause}", self.launched.cgroup);
            }
            let _ = timeout(STOP_STEP, self.pidfd.readable()).await;
        }
        let status = self.exit.status().await;
        let _ = timeout(DRAIN_DEADLINE, self.link.log_drained()).await;
        status
    }
}

fn exit_details(status: ExitStatus) -> serde_json::Value {
    match status {
        ExitStatus::Code(code) => json!({ "exit_code": code }),
        ExitStatus::Signal(signal) => json!({ "signal": signal }),
        ExitStatus::Unknown => json!({}),
    }
}

/// Adds how the program ended and its last lines.
fn with_tail(mut error: Error, status: ExitStatus, lines: &[String]) -> Error {
    let mut details = match error.details.take() {
        serde_json::Value::Object(details) => details,
        _ => serde_json::Map::new(),
    };
    if let serde_json::Value::Object(exit) = exit_details(status) {
        details.extend(exit);
    }
    let from = lines.len().saturating_sub(TAIL);
    details.insert("stderr".to_owned(), json!(lines[from..]));
    error.with_details(details.into())
}
