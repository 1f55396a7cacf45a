//! The conversation with the supervisor.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, PoisonError};

use nix::sys::socket::{SockFlag, accept4};
use plugind_config::service;
use plugind_protocol::launch::{Action, Launch, Reply, Request};
use plugind_protocol::{Error, Kind};
use tokio::io::Interest;

use crate::instance::Instance;
use crate::launch::{Launcher, Started};
use crate::packet::{PacketSocket, nonblocking};

/// Serves one supervisor after the other.
pub(crate) async fn accept(launcher: &Arc<Launcher>, listener: OwnedFd) -> Result<(), Error> {
    let failed = |cause: std::io::Error| Error::internal(format!("cannot accept the supervisor: {cause}"));
    nonblocking(&listener).map_err(failed)?;
    let listener = crate::sys::watch(listener, Interest::READABLE).map_err(failed)?;
    service::ready();
    loop {
        let connection = listener
            .async_io(Interest::READABLE, |fd| Ok(accept4(fd, SockFlag::SOCK_CLOEXEC)?))
            .await
            .map_err(failed)?;
        match PacketSocket::new(connection) {
            Ok(socket) => serve(launcher, socket).await,
            Err(error) => tracing::warn!("{error}"),
        }
    }
}

/// Serves one supervisor until it is gone; then nothing of its plugins is left.
pub(crate) async fn serve(launcher: &Arc<Launcher>, socket: PacketSocket) {
    let socket = Arc::new(socket);
    loop {
        match socket.receive().await {
            Ok(Some(request)) => {
                let (launcher, socket) = (Arc::clone(launcher), Arc::clone(&socket));
                tokio::spawn(async move { handle(&launcher, &socket, request).await });
            }
            Ok(None) => break,
            Err(cause) => {
                tracing::error!("the supervisor's connection is broken: {cause}");
                break;
            }
        }
    }
    stop(launcher).await;
}

/// Kills every instance, all at once, and waits until each is gone.
pub(crate) async fn stop(launcher: &Arc<Launcher>) {
    let instances: Vec<_> =
        launcher.instances.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
    let kills = instances.iter().map(|instance| instance.kill());
    for error in futures_util::future::join_all(kills).await.into_iter().filter_map(Result::err) {
        tracing::error!("{error}");
    }
}

async fn handle(launcher: &Arc<Launcher>, socket: &Arc<PacketSocket>, request: Request) {
    let serial = request.serial;
    let outcome = match request.action {
        Action::Launch(launch) => return start(launcher, socket, serial, &launch).await,
        Action::CloseStdin { instance } => find(launcher, &instance).map(|instance| instance.close_stdin()),
        Action::Signal { instance, signal } => {
            find(launcher, &instance).and_then(|instance| instance.signal(signal))
        }
        // One that is gone already is dead enough.
        Action::Kill { instance } => match find(launcher, &instance) {
            Ok(instance) => instance.kill().await,
            Err(_) => Ok(()),
        },
    };
    let reply = match outcome {
        Ok(()) => Reply::Done { serial },
        Err(error) => Reply::Failed { serial, error: Box::new(error) },
    };
    send(socket, &reply, &[]).await;
}

async fn start(launcher: &Arc<Launcher>, socket: &Arc<PacketSocket>, serial: u64, launch: &Launch) {
    let started = match launcher.launch(launch).await {
        Ok(started) => started,
        Err(error) => return send(socket, &Reply::Failed { serial, error: Box::new(error) }, &[]).await,
    };
    let Started { launched, stdio, instance, bubblewrap } = started;
    launcher
        .instances
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(instance.id.clone(), Arc::clone(&instance));
    let reply = Reply::Launched { serial, launched: Box::new(launched) };
    let [stdin, stdout, stderr] = &stdio;
    send(socket, &reply, &[stdin.as_fd(), stdout.as_fd(), stderr.as_fd(), instance.pidfd()]).await;
    drop(stdio);
    let status = instance.watch(bubblewrap, &launcher.systemd).await;
    launcher.instances.lock().unwrap_or_else(PoisonError::into_inner).remove(&instance.id);
    send(socket, &Reply::Exited { instance: instance.id.clone(), status }, &[]).await;
}

fn find(launcher: &Launcher, id: &str) -> Result<Arc<Instance>, Error> {
    launcher.instances.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned().ok_or_else(|| {
        Error::new(Kind::Conflict, format!("no instance {id} is running"), "it has ended meanwhile")
    })
}

/// A supervisor that cannot be told is gone, and its end is noticed where its requests are read.
async fn send(socket: &PacketSocket, reply: &Reply, fds: &[std::os::fd::BorrowedFd<'_>]) {
    if let Err(cause) = socket.send(reply, fds).await {
        tracing::debug!("the supervisor was not told: {cause}");
    }
}
