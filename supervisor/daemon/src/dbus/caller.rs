//! Who calls: what the bus says of the sender, never what the arguments say.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::StreamExt as _;
use plugind_protocol::{Error, Kind};
use tokio::sync::watch;
use zbus::Connection;
use zbus::fdo::DBusProxy;
use zbus::message::Header;
use zbus::names::BusName;

use crate::supervisor::Caller;

/// Callers that are connected at the same time.
const KNOWN_MAX: usize = 4096;

/// Finds out callers, and remembers them until they leave the bus.
#[derive(Debug, Default)]
pub(crate) struct Callers {
    known: Mutex<HashMap<String, Known>>,
}

#[derive(Debug)]
struct Known {
    uid: u32,
    caller: Caller,
    /// Dropped when the caller leaves the bus.
    here: watch::Sender<()>,
}

/// A caller that may do what it asks for.
pub(crate) struct Authorised {
    pub(crate) caller: Caller,
    here: watch::Receiver<()>,
}

impl Authorised {
    /// Resolves when the caller has left the bus.
    pub(crate) async fn gone(&mut self) {
        while self.here.changed().await.is_ok() {}
    }
}

impl Callers {
    /// Who calls; refused if it is another user's process.
    pub(crate) async fn authorise(
        &self,
        connection: &Connection,
        header: &Header<'_>,
    ) -> Result<Authorised, Error> {
        // A private connection has no bus: its peer made the socket and handed it to us.
        let name = header.sender().map_or("", |sender| sender.as_str());
        let known = self.find(name);
        let (uid, authorised) = match known {
            Some(known) => known,
            None => self.ask(connection, name).await?,
        };
        if uid != nix::unistd::geteuid().as_raw() {
            return Err(Error::new(
                Kind::PermissionDenied,
                format!("uid {uid} may not use the plugins of another user"),
                "call the plugind of your own user",
            ));
        }
        Ok(authorised)
    }

    /// Forgets callers as they leave the bus; for as long as the connection lives.
    pub(crate) async fn watch(self: Arc<Self>, connection: Connection) -> zbus::Result<()> {
        let bus = DBusProxy::new(&connection).await?;
        let mut left = bus.receive_name_owner_changed_with_args(&[(2, "")]).await?;
        while let Some(signal) = left.next().await {
            if let Ok(arguments) = signal.args() {
                self.lock().remove(arguments.name().as_str());
            }
        }
        Ok(())
    }

    fn find(&self, name: &str) -> Option<(u32, Authorised)> {
        let known = self.lock();
        let found = known.get(name)?;
        Some((found.uid, Authorised { caller: found.caller.clone(), here: found.here.subscribe() }))
    }

    async fn ask(&self, connection: &Connection, name: &str) -> Result<(u32, Authorised), Error> {
        let unknown = |cause: String| {
            Error::new(
                Kind::PermissionDenied,
                format!("the caller cannot be identified: {cause}"),
                "try again",
            )
        };
        let (uid, who) = if name.is_empty() {
            let peer = connection.peer_creds().await.map_err(|cause| unknown(cause.to_string()))?;
            let uid = peer.unix_user_id().ok_or_else(|| unknown("it has no uid".to_owned()))?;
            (uid, format!("uid:{uid}"))
        } else {
            let bus = DBusProxy::new(connection).await.map_err(|cause| unknown(cause.to_string()))?;
            let on_bus = BusName::try_from(name).map_err(|cause| unknown(cause.to_string()))?;
            let credentials =
                bus.get_connection_credentials(on_bus).await.map_err(|cause| unknown(cause.to_string()))?;
            let uid = credentials.unix_user_id().ok_or_else(|| unknown("it has no uid".to_owned()))?;
            let pid = credentials.process_id().unwrap_or(0);
            (uid, format!("uid:{uid} pid:{pid} bus:{name}"))
        };
        let mut known = self.lock();
        if known.len() >= KNOWN_MAX {
            // Some may have left between their answer and our note of it.
            known.retain(|_, caller| caller.here.receiver_count() > 0);
        }
        if known.len() >= KNOWN_MAX {
            return Err(Error::new(
                Kind::Busy,
                format!("{KNOWN_MAX} callers are connected already"),
                "try again when some have left the bus",
            ));
        }
        let found = known.entry(name.to_owned()).or_insert_with(|| Known {
            uid,
            caller: Caller::new(who),
            here: watch::channel(()).0,
        });
        Ok((found.uid, Authorised { caller: found.caller.clone(), here: found.here.subscribe() }))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
