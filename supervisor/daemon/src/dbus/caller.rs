//! Who calls: what the bus says of the sender, never what the arguments say.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use plugind_protocol::{Error, Kind};
use zbus::Connection;
use zbus::message::Header;
use zbus::names::BusName;

/// Unique names are never used twice, so what is known of one stays true; past this many, all are asked anew.
const KNOWN_MAX: usize = 1024;

/// Finds out callers, and remembers them.
#[derive(Debug, Default)]
pub(crate) struct Callers {
    known: Mutex<HashMap<String, Caller>>,
}

#[derive(Debug, Clone)]
struct Caller {
    uid: u32,
    text: String,
}

impl Callers {
    /// The caller in words, for `meta.caller`; refused if it is another user's process.
    pub(crate) async fn authorise(
        &self,
        connection: &Connection,
        header: &Header<'_>,
    ) -> Result<String, Error> {
        let caller = self.caller(connection, header).await?;
        if caller.uid != nix::unistd::geteuid().as_raw() {
            return Err(Error::new(
                Kind::PermissionDenied,
                format!("uid {} may not use the plugins of another user", caller.uid),
                "call the plugind of your own user",
            ));
        }
        Ok(caller.text)
    }

    async fn caller(&self, connection: &Connection, header: &Header<'_>) -> Result<Caller, Error> {
        let unknown = |cause: String| {
            Error::new(
                Kind::PermissionDenied,
                format!("the caller cannot be identified: {cause}"),
                "try again",
            )
        };
        let Some(sender) = header.sender() else {
            // A private connection has no bus: its peer made the socket and handed it to us.
            let peer = connection.peer_creds().await.map_err(|cause| unknown(cause.to_string()))?;
            let uid = peer.unix_user_id().ok_or_else(|| unknown("it has no uid".to_owned()))?;
            return Ok(Caller { uid, text: format!("uid:{uid}") });
        };
        let sender = sender.as_str();
        if let Some(caller) = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(sender) {
            return Ok(caller.clone());
        }
        let bus = zbus::fdo::DBusProxy::new(connection).await.map_err(|cause| unknown(cause.to_string()))?;
        let name = BusName::try_from(sender).map_err(|cause| unknown(cause.to_string()))?;
        let credentials =
            bus.get_connection_credentials(name).await.map_err(|cause| unknown(cause.to_string()))?;
        let uid = credentials.unix_user_id().ok_or_else(|| unknown("it has no uid".to_owned()))?;
        let pid = credentials.process_id().unwrap_or(0);
        let caller = Caller { uid, text: format!("uid:{uid} pid:{pid} bus:{sender}") };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(sender.to_owned(), caller.clone());
        Ok(caller)
    }
}
