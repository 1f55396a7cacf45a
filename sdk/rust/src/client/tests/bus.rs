//! A channel that is opened by way of D-Bus.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use serde_json::json;
use tokio::sync::mpsc;
use zbus::{Guid, OwnedVariant, connection};

use super::peer::Peer;
use super::{FRAME_MAX, assert_alive};
use crate::client::{Channel, Error, Kind};

/// The supervisor's end of what was opened, and for which plugins.
type Opened = (UnixStream, Vec<String>);

struct Manager {
    opened: mpsc::UnboundedSender<Opened>,
}

#[zbus::interface(name = "org.plugind1.Manager")]
impl Manager {
    fn open_channel(
        &self,
        plugins: Vec<String>,
        options: HashMap<String, OwnedVariant>,
    ) -> zbus::fdo::Result<(zbus::OwnedFd, u32)> {
        if plugins.is_empty() || options.into_keys().next().is_some() {
            return Err(zbus::fdo::Error::AccessDenied("no plugins".to_owned()));
        }
        let (ours, theirs) = UnixStream::pair().unwrap();
        self.opened.send((ours, plugins)).unwrap();
        Ok((OwnedFd::from(theirs).into(), u32::try_from(FRAME_MAX).unwrap()))
    }
}

async fn connections() -> (zbus::Connection, zbus::Connection, mpsc::UnboundedReceiver<Opened>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (sender, opened) = mpsc::unbounded_channel();
    let server = connection::Builder::unix_stream(theirs)
        .server(Guid::generate())
        .p2p()
        .serve_at("/org/plugind1", Manager { opened: sender });
    let client = connection::Builder::unix_stream(ours).p2p();
    let (server, client) = tokio::join!(server.build(), client.build());
    (server.unwrap(), client.unwrap(), opened)
}

#[tokio::test]
async fn a_channel_outlives_the_connection_that_opened_it() {
    let (server, client, mut opened) = connections().await;
    let channel = Channel::open_on(&client, &["textstats", "other"]).await.unwrap();
    client.close().await.unwrap();
    drop(server);
    let (stream, plugins) = opened.recv().await.unwrap();
    assert_eq!(plugins, ["textstats", "other"]);
    let mut peer = Peer::over(stream);
    assert_alive(&channel, &mut peer).await;
    let too_much = json!("x".repeat(FRAME_MAX));
    let error: Result<(), Error> = channel.call("textstats", "count", &too_much).await;
    assert_eq!(error.unwrap_err().kind, Kind::FrameTooLarge);
}

#[tokio::test]
async fn a_refusal_says_why() {
    let (_server, client, _opened) = connections().await;
    let Err(error) = Channel::open_on(&client, &[]).await else { panic!("a channel to no plugin") };
    assert_eq!(error.kind, Kind::PermissionDenied);
    assert!(error.message.contains("no plugins"), "{error}");
}
