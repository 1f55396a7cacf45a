//! A private supervisor and launcher for one command: no daemon, no bus name, nothing left behind.
//!
//! Two socket pairs carry everything: the supervisor's standard input is a peer-to-peer D-Bus connection with us, and
//! its standard output is its connection with the launcher's standard input. Whoever dies, the others see the end of
//! a stream and stop: the supervisor its plugins, the launcher its scopes.

mod children;
mod state;

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use plugind_protocol::{Error, Kind};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use zbus::connection;

use crate::bus::Client;
use crate::interrupts::{self, Interrupts};
use children::Children;
use state::StateDir;

/// How long the private supervisor may take until it answers the handshake.
const START_TIMEOUT: Duration = Duration::from_secs(15);

/// Does some work with a private supervisor, and ends it whatever becomes of the work.
///
/// SIGINT, SIGTERM, SIGHUP and SIGQUIT end the work early with `Cancelled`; the clean-up is the same.
pub(crate) async fn with<T>(
    deadline: Duration,
    verbose: bool,
    work: impl AsyncFnOnce(&Client) -> Result<T, Error>,
) -> Result<T, Error> {
    check_user()?;
    let mut interrupts = Interrupts::listen()?;
    // Ignored, as a careless parent may have left it, SIGCHLD would take the exit statuses of our children away.
    let _child = signal(SignalKind::child())
        .map_err(|cause| Error::internal(format!("cannot wait for signals: {cause}")))?;
    let state = StateDir::make()?;
    let (ours, theirs) = UnixStream::pair().map_err(|cause| no_pair(&cause))?;
    let children = Children::spawn(theirs, state.path(), verbose)?;

    let mut client = None;
    let outcome = tokio::select! {
        outcome = async {
            let client = client.insert(connect(ours, deadline).await?);
            work(client).await
        } => outcome,
        number = interrupts.next() => Err(interrupted(number)),
    };

    if let Some(client) = client {
        client.close().await;
    }
    let ended = children.end().await;
    outcome.map_err(|error| ended.explain(error))
}

/// The exit code of a work that a signal ended, as a shell gives it.
pub(crate) fn interrupted_code(error: &Error) -> Option<u8> {
    let number = error.details.get("interrupted_by")?.as_i64()?;
    Some(interrupts::exit_code(i32::try_from(number).ok()?))
}

/// What both would refuse anyway, said before they are started.
fn check_user() -> Result<(), Error> {
    if nix::unistd::geteuid().is_root() {
        return Err(plugind_config::refuse_root());
    }
    plugind_config::directories::runtime()?;
    plugind_config::Settings::load()?;
    Ok(())
}

async fn connect(stream: UnixStream, deadline: Duration) -> Result<Client, Error> {
    let building = connection::Builder::unix_stream(stream).p2p().build();
    match tokio::time::timeout(START_TIMEOUT, building).await {
        Ok(Ok(connection)) => Client::over(connection, deadline).await,
        Ok(Err(cause)) => Err(not_started(&cause.to_string())),
        Err(_) => Err(not_started("it does not answer")),
    }
}

fn not_started(cause: &str) -> Error {
    Error::new(
        Kind::Unavailable,
        format!("the private supervisor did not start: {cause}"),
        "its log is below; `pluginctl doctor -v` tells more",
    )
}

fn no_pair(cause: &io::Error) -> Error {
    Error::new(
        Kind::Unavailable,
        format!("cannot make a socket pair: {cause}"),
        "see `ulimit -n` and how many files are open",
    )
}

fn interrupted(number: i32) -> Error {
    Error::new(Kind::Cancelled, format!("interrupted by signal {number}"), "nothing is left behind")
        .outcome_unknown()
        .with_details(json!({ "interrupted_by": number }))
}
