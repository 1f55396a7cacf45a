//! The launcher, as the supervisor sees it: requests, replies with descriptors, and exits.

use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plugind_protocol::launch::{Action, ExitStatus, Launch, Launched, PACKET_MAX, Reply, Request};
use plugind_protocol::{Error, Kind};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, sendmsg, socket_with,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// A launch takes at most the scope's 5 s and the sandbox's 8 s; a kill at most 10 s.
const REPLY_DEADLINE: Duration = Duration::from_secs(14);

/// stdin, stdout, stderr, pidfd.
const FDS: usize = 4;

/// A plugin that the launcher started.
pub(crate) struct Running {
    pub(crate) launched: Launched,
    pub(crate) stdio: [OwnedFd; 3],
    pub(crate) pidfd: OwnedFd,
    pub(crate) exit: oneshot::Receiver<ExitStatus>,
}

/// How the launcher is reached.
pub(crate) enum Place {
    /// Its socket unit's path; connected at the first need, and again after it is lost.
    Socket(PathBuf),
    /// A socket that is connected already.
    Connected(Mutex<Option<OwnedFd>>),
}

/// The launcher's client.
pub(crate) struct Launcher {
    place: Place,
    connection: Mutex<Option<Arc<Connection>>>,
}

struct Connection {
    socket: AsyncFd<OwnedFd>,
    waiting: Mutex<Waiting>,
    reader: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Waiting {
    serial: u64,
    replies: HashMap<u64, oneshot::Sender<Result<Answer, Error>>>,
    exits: HashMap<String, oneshot::Sender<ExitStatus>>,
    lost: bool,
}

enum Answer {
    Done,
    Launched(Box<Launched>, Vec<OwnedFd>),
}

impl Launcher {
    pub(crate) fn new(place: Place) -> Launcher {
        Launcher { place, connection: Mutex::default() }
    }

    /// Starts a plugin.
    pub(crate) async fn launch(&self, launch: Launch) -> Result<Running, Error> {
        let connection = self.connect()?;
        let instance = launch.instance.clone();
        let exit = connection.expect_exit(&instance);
        let answer = connection.ask(Action::Launch(Box::new(launch))).await;
        let (launched, fds) = match answer {
            Ok(Answer::Launched(launched, fds)) => (launched, fds),
            Ok(Answer::Done) => return Err(confused()),
            Err(error) => {
                connection.lock().exits.remove(&instance);
                return Err(error);
            }
        };
        let [stdin, stdout, stderr, pidfd] = <[OwnedFd; FDS]>::try_from(fds).map_err(|_| confused())?;
        Ok(Running { launched: *launched, stdio: [stdin, stdout, stderr], pidfd, exit })
    }

    /// Kills everything of an instance; done when its cgroup is empty.
    pub(crate) async fn kill(&self, instance: &str) -> Result<(), Error> {
        self.act(Action::Kill { instance: instance.to_owned() }).await
    }

    /// Sends a signal to the plugin's own process.
    pub(crate) async fn signal(&self, instance: &str, signal: i32) -> Result<(), Error> {
        self.act(Action::Signal { instance: instance.to_owned(), signal }).await
    }

    /// Closes the launcher's copy of the plugin's stdin.
    pub(crate) async fn close_stdin(&self, instance: &str) -> Result<(), Error> {
        self.act(Action::CloseStdin { instance: instance.to_owned() }).await
    }

    async fn act(&self, action: Action) -> Result<(), Error> {
        match self.connect()?.ask(action).await? {
            Answer::Done => Ok(()),
            Answer::Launched(..) => Err(confused()),
        }
    }

    /// The connection, made anew where it was lost.
    fn connect(&self) -> Result<Arc<Connection>, Error> {
        let mut current = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connection) = current.as_ref().filter(|connection| !connection.lock().lost) {
            return Ok(Arc::clone(connection));
        }
        let socket = match &self.place {
            Place::Connected(socket) => {
                socket.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or_else(lost)?
            }
            Place::Socket(path) => dial(path).map_err(|cause| {
                Error::new(
                    Kind::Unavailable,
                    format!("cannot reach the launcher at {}: {cause}", path.display()),
                    "start its socket: systemctl --user start plugind-launcher.socket",
                )
            })?,
        };
        let connection = Connection::start(socket).map_err(|cause| Error::internal(cause.to_string()))?;
        *current = Some(Arc::clone(&connection));
        Ok(connection)
    }
}

fn dial(path: &std::path::Path) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

impl Connection {
    fn start(socket: OwnedFd) -> io::Result<Arc<Connection>> {
        let flags = rustix::fs::fcntl_getfl(&socket)?;
        rustix::fs::fcntl_setfl(&socket, flags | rustix::fs::OFlags::NONBLOCK)?;
        let connection = Arc::new(Connection {
            socket: crate::watch::watch(socket, Interest::READABLE | Interest::WRITABLE)?,
            waiting: Mutex::default(),
            reader: Mutex::default(),
        });
        let reader = tokio::spawn(read(Arc::clone(&connection)));
        *connection.reader.lock().unwrap_or_else(PoisonError::into_inner) = Some(reader);
        Ok(connection)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn expect_exit(&self, instance: &str) -> oneshot::Receiver<ExitStatus> {
        let (sender, receiver) = oneshot::channel();
        self.lock().exits.insert(instance.to_owned(), sender);
        receiver
    }

    async fn ask(&self, action: Action) -> Result<Answer, Error> {
        let (sender, receiver) = oneshot::channel();
        let serial = {
            let mut waiting = self.lock();
            if waiting.lost {
                return Err(lost());
            }
            waiting.serial += 1;
            let serial = waiting.serial;
            waiting.replies.insert(serial, sender);
            serial
        };
        let answer = async {
            self.send(&Request { serial, action }).await.map_err(|_| lost())?;
            receiver.await.map_err(|_| lost())?
        };
        let outcome = timeout(REPLY_DEADLINE, answer).await;
        self.lock().replies.remove(&serial);
        outcome.map_err(|_| {
            Error::new(
                Kind::TimedOut,
                format!("the launcher did not answer within {} s", REPLY_DEADLINE.as_secs()),
                "see its log: journalctl --user -u plugind-launcher",
            )
            .outcome_unknown()
        })?
    }

    async fn send(&self, request: &Request) -> io::Result<()> {
        let text = serde_json::to_vec(request).map_err(io::Error::other)?;
        if text.len() > PACKET_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.socket
            .async_io(Interest::WRITABLE, |fd| {
                let mut none = SendAncillaryBuffer::default();
                sendmsg(fd, &[IoSlice::new(&text)], &mut none, SendFlags::NOSIGNAL)?;
                Ok(())
            })
            .await
    }

    async fn receive(&self, buffer: &mut [u8]) -> io::Result<(Option<Reply>, Vec<OwnedFd>)> {
        let (length, fds) = self
            .socket
            .async_io(Interest::READABLE, |fd| {
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
                let mut control = RecvAncillaryBuffer::new(&mut space);
                let mut slices = [IoSliceMut::new(buffer)];
                let message = recvmsg(fd, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC)?;
                let mut fds = Vec::new();
                for message in control.drain() {
                    if let RecvAncillaryMessage::ScmRights(rights) = message {
                        fds.extend(rights);
                    }
                }
                Ok((message.bytes, fds))
            })
            .await?;
        if length == 0 {
            return Ok((None, fds));
        }
        serde_json::from_slice(&buffer[..length]).map(|reply| (Some(reply), fds)).map_err(io::Error::other)
    }

    fn dispatch(&self, reply: Reply, fds: Vec<OwnedFd>) {
        let mut waiting = self.lock();
        let (serial, answer) = match reply {
            Reply::Exited { instance, status } => {
                if let Some(exit) = waiting.exits.remove(&instance) {
                    let _ = exit.send(status);
                }
                return;
            }
            Reply::Launched { serial, launched } => (serial, Ok(Answer::Launched(launched, fds))),
            Reply::Done { serial } => (serial, Ok(Answer::Done)),
            Reply::Failed { serial, error } => (serial, Err(*error)),
        };
        if let Some(reply) = waiting.replies.remove(&serial) {
            let _ = reply.send(answer);
        }
    }
}

/// Reads replies until the launcher is gone; then everybody who waits is told.
async fn read(connection: Arc<Connection>) {
    let mut buffer = vec![0; PACKET_MAX];
    loop {
        match connection.receive(&mut buffer).await {
            Ok((Some(reply), fds)) => connection.dispatch(reply, fds),
            Ok((None, _)) => break,
            Err(cause) => {
                tracing::error!("the launcher's connection is broken: {cause}");
                break;
            }
        }
    }
    let mut waiting = connection.lock();
    waiting.lost = true;
    waiting.exits.clear();
    for (_, reply) in waiting.replies.drain() {
        let _ = reply.send(Err(lost().outcome_unknown()));
    }
}

fn lost() -> Error {
    Error::new(
        Kind::Unavailable,
        "the launcher is gone, and its plugins with it",
        "try again: systemd starts it anew; see why it ended with journalctl --user -u plugind-launcher",
    )
}

fn confused() -> Error {
    Error::internal("the launcher gave an answer that does not fit: is it of another version?")
}
