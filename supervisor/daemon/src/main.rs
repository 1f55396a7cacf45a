//! The supervisor: registry, permissions and relay.
//!
//! It never forks and never executes: whatever it reads from plugins and callers, there is nothing here that could be
//! made to run. Plugins are started by the launcher.

mod cgroup;
mod channel;
mod contract;
mod dbus;
mod doctor;
mod launcher;
mod options;
mod plugin;
mod registry;
mod relay;
mod side_loop;
mod store;
mod supervisor;
mod tree;
mod watch;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use plugind_config::{Directories, Settings, directories, service};
use plugind_protocol::{Error, Kind};
use zbus::Connection;

use crate::channel::Channels;
use crate::launcher::{Launcher, Place};
use crate::options::{Options, Private};
use crate::plugin::Surroundings;
use crate::side_loop::SideLoop;
use crate::store::Store;
use crate::supervisor::Supervisor;

/// How long the bus may take to accept us.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    service::run("plugind", || Ok(serve(Options::parse(std::env::args().skip(1))?)))
}

async fn serve(options: Options) -> Result<(), Error> {
    let directories = match options.state {
        Some(state) => Directories::at(state),
        None => Directories::of_user()?,
    };
    let (place, bus) = match options.private {
        Some(Private { bus, launcher }) => {
            (Place::Connected(std::sync::Mutex::new(Some(launcher))), Some(bus))
        }
        None => (Place::Socket(directories::launcher_socket()?), None),
    };
    let drain = SideLoop::start("stderr")?;
    let surroundings = Surroundings {
        store: Store::open(&directories)?,
        launcher: Arc::new(Launcher::new(place)),
        settings: Arc::new(Settings::load()?),
        directories,
        stderr: drain.handle(),
    };
    let supervisor = Supervisor::load(surroundings)?;
    let callers = Arc::<dbus::Callers>::default();
    let beside = SideLoop::start("channels")?;
    let channels = Channels::new(beside.handle());
    let connection = tokio::time::timeout(CONNECT_DEADLINE, connect(bus, &supervisor, &callers, channels))
        .await
        .map_err(|_| no_bus("it did not answer within 10 s"))?
        .map_err(|cause| no_bus(&cause.to_string()))?;
    dbus::first_objects(&connection, &supervisor).await?;
    let is_private = !connection.is_bus();
    if !is_private {
        connection.request_name(dbus::NAME).await.map_err(|cause| no_bus(&cause.to_string()))?;
    }
    let leavers = (!is_private).then(|| tokio::spawn(callers.watch(connection.clone())));
    service::ready();
    let objects = tokio::spawn(dbus::keep_objects(connection.clone(), Arc::clone(&supervisor)));
    let closed = connection.clone();
    let outcome = tokio::select! {
        () = service::stop_signal() => Ok(()),
        () = closed.closed() => if is_private { Ok(()) } else { Err(no_bus("it went away")) },
        () = service::watchdog() => Ok(()),
    };
    service::stopping();
    objects.abort();
    if let Some(leavers) = leavers {
        leavers.abort();
    }
    supervisor.stop_all().await;
    outcome
}

async fn connect(
    bus: Option<std::os::unix::net::UnixStream>,
    supervisor: &Arc<Supervisor>,
    callers: &Arc<dbus::Callers>,
    channels: Channels,
) -> zbus::Result<Connection> {
    let (manager, object_manager) = dbus::manager(supervisor, callers, channels);
    let builder = match bus {
        Some(stream) => zbus::connection::Builder::unix_stream(stream).server(zbus::Guid::generate()).p2p(),
        None => zbus::connection::Builder::session(),
    };
    builder.serve_at(dbus::PATH, object_manager).serve_at(dbus::PATH, manager).build().await
}

fn no_bus(cause: &str) -> Error {
    Error::new(
        Kind::Unavailable,
        format!("cannot use the session bus: {cause}"),
        "check `systemctl --user status dbus`; DBUS_SESSION_BUS_ADDRESS must name the bus of your session",
    )
}

/// Eight random hexadecimal digits.
fn identifier() -> Result<String, Error> {
    use std::io::Read as _;
    let mut bytes = [0; 4];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|cause| Error::internal(format!("/dev/urandom: {cause}")))?;
    Ok(plugind_protocol::digest::hex(&bytes))
}
