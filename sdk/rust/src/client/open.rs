//! The way to a channel: the supervisor's `OpenChannel` on the session bus.

use std::collections::HashMap;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use plugind_protocol::{Error, Kind};
use zbus::proxy::CacheProperties;
use zbus::{Connection, Variant, connection};

use super::channel::Channel;
use super::fault;

/// How long reaching the bus itself may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long `OpenChannel` may take: the bus may have to start plugind, for which it has 25 s.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

#[zbus::proxy(
    interface = "org.plugind1.Manager",
    default_service = "org.plugind1",
    default_path = "/org/plugind1"
)]
trait Manager {
    async fn open_channel(
        &self,
        plugins: &[&str],
        options: &HashMap<&str, Variant<'_>>,
    ) -> zbus::Result<(zbus::OwnedFd, u32)>;
}

impl Channel {
    /// Opens a channel to these plugins, 64 at most, by way of the session bus, which starts plugind where it does not
    /// run.
    pub async fn open(plugins: &[&str]) -> Result<Channel, Error> {
        let connection = within(CONNECT_TIMEOUT, connection::Builder::session().build()).await?;
        Channel::open_on(&connection, plugins).await
    }

    /// Opens a channel by way of a connection that is there already. The channel does not need it afterwards.
    pub async fn open_on(connection: &Connection, plugins: &[&str]) -> Result<Channel, Error> {
        let asked = async {
            let manager =
                ManagerProxy::builder(connection).cache_properties(CacheProperties::No).build().await?;
            manager.open_channel(plugins, &HashMap::new()).await
        };
        let (socket, frame_max) = within(OPEN_TIMEOUT, asked).await?;
        Channel::from_stream(
            UnixStream::from(OwnedFd::from(socket)),
            usize::try_from(frame_max).unwrap_or(usize::MAX),
        )
    }
}

async fn within<T>(time: Duration, answer: impl Future<Output = zbus::Result<T>>) -> Result<T, Error> {
    match tokio::time::timeout(time, answer).await {
        Ok(answer) => answer.map_err(fault::from_zbus),
        Err(_) => Err(Error::new(
            Kind::TimedOut,
            format!("no channel was opened within {} s", time.as_secs()),
            "see what plugind does with `systemctl --user status plugind`",
        )),
    }
}
