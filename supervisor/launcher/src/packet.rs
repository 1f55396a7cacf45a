//! The `SOCK_SEQPACKET` socket to the supervisor: one JSON object a packet, descriptors beside it.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::sys::socket::{ControlMessage, MsgFlags, getsockopt, recv, sendmsg, sockopt};
use plugind_protocol::launch::{PACKET_MAX, Reply, Request};
use plugind_protocol::{Error, Kind};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// One connected supervisor.
pub(crate) struct PacketSocket {
    fd: AsyncFd<OwnedFd>,
}

impl PacketSocket {
    /// Takes a connected socket whose peer must be of our own user.
    pub(crate) fn new(fd: OwnedFd) -> Result<PacketSocket, Error> {
        let peer = getsockopt(&fd, sockopt::PeerCredentials).map_err(|cause| {
            Error::internal(format!("the supervisor's socket has no peer credentials: {cause}"))
        })?;
        if peer.uid() != nix::unistd::geteuid().as_raw() {
            return Err(Error::new(
                Kind::PermissionDenied,
                format!("a process of uid {} connected to the launcher", peer.uid()),
                "only the supervisor of the same user may",
            ));
        }
        nonblocking(&fd)
            .and_then(|()| crate::sys::watch(fd, Interest::READABLE | Interest::WRITABLE))
            .map(|fd| PacketSocket { fd })
            .map_err(|cause| Error::internal(format!("cannot watch the supervisor's socket: {cause}")))
    }

    /// The next request; `None` when the supervisor is gone.
    pub(crate) async fn receive(&self) -> io::Result<Option<Request>> {
        let mut buffer = vec![0; PACKET_MAX];
        let length = self
            .fd
            .async_io(Interest::READABLE, |fd| {
                Ok(recv(fd.as_raw_fd(), &mut buffer, MsgFlags::MSG_CMSG_CLOEXEC)?)
            })
            .await?;
        if length == 0 {
            return Ok(None);
        }
        serde_json::from_slice(&buffer[..length]).map(Some).map_err(io::Error::other)
    }

    /// Sends a reply with descriptors.
    pub(crate) async fn send(&self, reply: &Reply, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let text = serde_json::to_vec(reply).map_err(io::Error::other)?;
        let numbers: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        self.fd
            .async_io(Interest::WRITABLE, |fd| {
                let rights = [ControlMessage::ScmRights(&numbers)];
                let control = if numbers.is_empty() { &[] } else { &rights[..] };
                sendmsg::<()>(fd.as_raw_fd(), &[IoSlice::new(&text)], control, MsgFlags::MSG_NOSIGNAL, None)?;
                Ok(())
            })
            .await
    }
}

/// Sets `O_NONBLOCK`.
pub(crate) fn nonblocking(fd: &OwnedFd) -> io::Result<()> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}
