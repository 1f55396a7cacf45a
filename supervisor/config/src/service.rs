//! What both daemons do as services: start as a user, turn one event loop, end in order.

use std::process::ExitCode;

use plugind_protocol::Error;
use sd_notify::NotifyState;
use tokio::signal::unix::{SignalKind, signal};

use crate::{SettingsError, log};

/// sysexits(3): a configuration that must be mended first. The units do not start a daemon again that ends so.
const EX_CONFIG: u8 = 78;

/// Threads for hashing, unpacking and long schema checks.
const BLOCKING_MAX: usize = 32;

/// Runs a daemon to its end; its error is logged with its hint.
pub fn run<F>(identifier: &str, daemon: impl FnOnce() -> Result<F, Error>) -> ExitCode
where
    F: Future<Output = Result<(), Error>>,
{
    log::start(identifier);
    let code = match turn(daemon) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(hint = %error.hint, "{error}");
            let is_configuration = error.details.get(SettingsError::FILE).is_some();
            if is_configuration { ExitCode::from(EX_CONFIG) } else { ExitCode::FAILURE }
        }
    };
    log::flush();
    code
}

fn turn<F>(daemon: impl FnOnce() -> Result<F, Error>) -> Result<(), Error>
where
    F: Future<Output = Result<(), Error>>,
{
    let daemon = daemon()?;
    if nix::unistd::geteuid().is_root() {
        return Err(crate::refuse_root());
    }
    raise_open_files();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_MAX)
        .build()
        .map_err(|cause| Error::internal(format!("cannot start the event loop: {cause}")))?;
    let outcome = runtime.block_on(daemon);
    // A blocking task may still read from somebody's pipe: it is not waited for.
    runtime.shutdown_background();
    outcome
}

/// Each plugin takes some descriptors, and the soft limit of 1024 is for programs that use select(2). Plugins have a
/// limit of their own.
fn raise_open_files() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(cause) = raised {
        tracing::warn!("the limit on open files stays as it is: {cause}");
    }
}

/// Tells systemd that the daemon serves now.
pub fn ready() {
    tell(NotifyState::Ready);
}

/// Tells systemd that the daemon ends now.
pub fn stopping() {
    tell(NotifyState::Stopping);
}

/// Without a service manager there is nobody to tell.
fn tell(state: NotifyState<'_>) {
    let _ = sd_notify::notify(&[state]);
}

/// Resolves on SIGTERM or SIGINT.
pub async fn stop_signal() {
    let (Ok(mut term), Ok(mut int)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
}

/// Tells systemd from the real event loop that it turns; never resolves.
pub async fn watchdog() {
    let Some(period) = sd_notify::watchdog_enabled() else { return std::future::pending().await };
    let mut ticks = tokio::time::interval(period / 2);
    loop {
        ticks.tick().await;
        tell(NotifyState::Watchdog);
    }
}
