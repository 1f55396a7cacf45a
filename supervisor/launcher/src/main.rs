//! The only parent of plugins: stub, scope, gate, bubblewrap.
//!
//! It parses nothing that a plugin wrote. Each request of the supervisor is checked anew against the store, the
//! operator's configuration and the names that are ours (see [`check`]).

mod bubblewrap;
mod cgroup;
mod check;
mod content;
mod instance;
mod launch;
mod orphans;
mod packet;
mod refusal;
mod report;
mod scope;
mod server;
mod sys;
mod systemd;

use std::os::fd::{IntoRawFd as _, OwnedFd, RawFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use nix::sys::socket::{SockType, getsockopt, sockopt};
use plugind_config::{Directories, Settings, service};
use plugind_protocol::{Error, Kind};
use tokio::signal::unix::{SignalKind, signal};

use crate::launch::Launcher;
use crate::packet::PacketSocket;
use crate::systemd::Systemd;

/// How this process was started.
struct Options {
    /// A connected socket, instead of the ones that systemd passes.
    connection: Option<RawFd>,
    /// The state directory, instead of the user's.
    state: Option<PathBuf>,
}

fn main() -> ExitCode {
    service::run("plugind-launcher", || Ok(serve(Options::parse(std::env::args().skip(1))?)))
}

async fn serve(options: Options) -> Result<(), Error> {
    // Ignored, as a careless parent may have left it, it would take the exit statuses of children away.
    let _child = signal(SignalKind::child())
        .map_err(|cause| Error::internal(format!("cannot wait for children: {cause}")))?;
    let directories = match options.state {
        Some(state) => Directories::at(state),
        None => Directories::of_user()?,
    };
    let settings = Settings::load()?;
    let systemd = Systemd::connect().await?;
    let bus_gone = systemd.closed();
    let launcher = Arc::new(Launcher::new(directories, settings, systemd)?);
    let work = async {
        if let Some(raw) = options.connection {
            let socket = PacketSocket::new(sys::adopt(raw))?;
            server::serve(&launcher, socket).await;
            return Ok(());
        }
        orphans::end(&launcher.systemd).await;
        server::accept(&launcher, activated_socket()?).await
    };
    tokio::select! {
        done = work => done,
        () = bus_gone => Err(Error::new(Kind::Unavailable, "the user manager's bus went away", "systemd starts the launcher again once the bus is back")),
        () = service::watchdog() => Ok(()),
        () = service::stop_signal() => { server::stop(&launcher).await; Ok(()) }
    }
}

/// The listening socket of `plugind-launcher.socket`.
fn activated_socket() -> Result<OwnedFd, Error> {
    use libsystemd::activation::{IsType as _, receive_descriptors};
    let not_activated = |why: String| {
        Error::new(
            Kind::Unavailable,
            format!("no listening socket was passed: {why}"),
            "start it through plugind-launcher.socket: systemctl --user start plugind-launcher.socket",
        )
    };
    let mut descriptors = receive_descriptors(true).map_err(|cause| not_activated(cause.to_string()))?;
    let socket = match (descriptors.pop(), descriptors.is_empty()) {
        (Some(descriptor), true) if descriptor.is_unix() => sys::adopt(descriptor.into_raw_fd()),
        _ => return Err(not_activated("one AF_UNIX socket is expected".to_owned())),
    };
    match getsockopt(&socket, sockopt::SockType) {
        Ok(SockType::SeqPacket) => Ok(socket),
        _ => Err(not_activated("a SOCK_SEQPACKET socket is expected".to_owned())),
    }
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, Error> {
        let usage = |what: String| {
            Error::new(
                Kind::InvalidArguments,
                what,
                "usage: plugind-launcher [--connection-fd N] [--state-dir DIR]; without options it is started by its socket unit",
            )
        };
        let mut options = Options { connection: None, state: None };
        while let Some(option) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| usage(format!("{option} needs a value")));
            match option.as_str() {
                "--connection-fd" => {
                    let text = value()?;
                    options.connection =
                        Some(text.parse().map_err(|_| usage(format!("not a file descriptor: {text}")))?);
                }
                "--state-dir" => options.state = Some(value()?.into()),
                _ => return Err(usage(format!("unknown option {option}"))),
            }
        }
        Ok(options)
    }
}
