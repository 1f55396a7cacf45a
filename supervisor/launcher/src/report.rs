//! What the helper inside the sandbox says before it becomes the plugin.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, setsockopt, socketpair,
    sockopt,
};
use plugind_protocol::{Error, Kind};
use serde::Deserialize;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

const MESSAGE_MAX: usize = 4096;

/// The launcher's end of the helper's report socket.
pub(crate) struct ReportSocket {
    fd: AsyncFd<OwnedFd>,
}

/// One packet, with the sender's process as *this* PID namespace numbers it.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) pid: u32,
    pub(crate) message: Message,
}

/// What the helper may say.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Message {
    /// Every layer but seccomp is on; the program comes next.
    Ready(Layers),
    /// A layer is missing; nothing was executed.
    Failed(Failure),
}

/// The layers inside.
#[derive(Debug, Deserialize)]
pub(crate) struct Layers {
    pub(crate) landlock_abi: u32,
    pub(crate) landlock_not_handled: Vec<String>,
}

/// Why the helper stopped.
#[derive(Debug, Deserialize)]
pub(crate) struct Failure {
    pub(crate) step: String,
    pub(crate) message: String,
}

impl ReportSocket {
    /// A pair: ours, and the one that the helper inherits.
    pub(crate) fn pair() -> io::Result<(ReportSocket, OwnedFd)> {
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        setsockopt(&ours, sockopt::PassCred, &true)?;
        crate::packet::nonblocking(&ours)?;
        Ok((ReportSocket { fd: crate::sys::watch(ours, Interest::READABLE)? }, theirs))
    }

    /// The next report; `None` when every copy of the other end is closed.
    pub(crate) async fn next(&self) -> io::Result<Option<Report>> {
        let mut buffer = [0; MESSAGE_MAX];
        let (length, pid) = self.fd.async_io(Interest::READABLE, |fd| receive(fd, &mut buffer)).await?;
        if length == 0 {
            return Ok(None);
        }
        let message = serde_json::from_slice(&buffer[..length]).map_err(io::Error::other)?;
        let pid = pid.ok_or_else(|| io::Error::other("the report names no sender"))?;
        Ok(Some(Report { pid, message }))
    }
}

fn receive(fd: &OwnedFd, buffer: &mut [u8]) -> io::Result<(usize, Option<u32>)> {
    let mut space = nix::cmsg_space!(nix::sys::socket::UnixCredentials);
    let mut slices = [IoSliceMut::new(buffer)];
    let message = recvmsg::<()>(fd.as_raw_fd(), &mut slices, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
    let pid = message.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::ScmCredentials(credentials) => u32::try_from(credentials.pid()).ok(),
        _ => None,
    });
    Ok((message.bytes, pid))
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        let (kind, hint) = match failure.step.as_str() {
            "bundle" | "entry" => (
                Kind::DigestMismatch,
                "the bundle changed between its verification and its start: run `pluginctl verify`, then install it again",
            ),
            "exec" => (
                Kind::SandboxDenied,
                "check the bundle's program: its architecture, its interpreter and its mode",
            ),
            "landlock" => (
                Kind::SandboxDenied,
                "plugind needs Landlock: Linux 5.13 or later with CONFIG_SECURITY_LANDLOCK, and landlock in lsm= at boot",
            ),
            _ => (Kind::SandboxDenied, "run `pluginctl doctor` to see which layer is missing"),
        };
        Error::new(kind, failure.message, hint).with_details(serde_json::json!({ "step": failure.step }))
    }
}
