//! The channel itself: a socket, its two tasks, and the calls on it.

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use plugind_protocol::frame::{DEPTH_MAX, FRAME_MAX_CAP, deeper_than};
use plugind_protocol::{Error, envelope};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::task::AbortHandle;

use super::calls::Calls;
use super::fault;
use super::invoke::{self, Invoke};
use super::reader::Reader;
use super::writer::Writer;

/// A channel to one or more plugins. Its clones are the same channel, which ends with the last of them and of its
/// invocations.
#[derive(Debug, Clone)]
pub struct Channel {
    link: Arc<Link>,
}

#[derive(Debug)]
pub(super) struct Link {
    calls: Arc<Calls>,
    writer: Arc<Writer>,
    frame_max: usize,
    tasks: [AbortHandle; 2],
}

impl Channel {
    /// A channel over a socket that is one already. It needs a tokio runtime with I/O and time.
    pub fn from_stream(stream: UnixStream, frame_max: usize) -> Result<Channel, Error> {
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| fault::no_runtime())?;
        stream.set_nonblocking(true).map_err(fault::not_opened)?;
        let stream = tokio::net::UnixStream::from_std(stream).map_err(fault::not_opened)?;
        let (input, output) = stream.into_split();
        // A line's end comes on top, and the longest line must fit into what may wait.
        let frame_max = frame_max.min(FRAME_MAX_CAP);
        let calls = Arc::new(Calls::default());
        let writer = Arc::new(Writer::new(output, frame_max + 1));
        let reader = Reader::new(Arc::clone(&calls), Arc::clone(&writer));
        let writing = Arc::clone(&writer);
        let tasks = [
            runtime.spawn(reader.run(input, frame_max)).abort_handle(),
            runtime.spawn(async move { writing.run().await }).abort_handle(),
        ];
        Ok(Channel { link: Arc::new(Link { calls, writer, frame_max, tasks }) })
    }

    /// Calls a command and waits for its result. Dropped before, it cancels the call.
    pub async fn call<A, R>(&self, plugin: &str, command: &str, arguments: &A) -> Result<R, Error>
    where
        A: Serialize + ?Sized,
        R: DeserializeOwned,
    {
        let result = invoke::call(&self.link, plugin, command, arguments).await?;
        serde_json::from_str(result.get())
            .map_err(|cause| fault::unexpected_result(&format!("{plugin}.{command}"), cause))
    }

    /// A call in the making, for whoever wants more of it than [`Channel::call`] gives.
    pub fn invoke<'a>(&'a self, plugin: &'a str, command: &'a str, arguments: &'a RawValue) -> Invoke<'a> {
        Invoke::new(&self.link, plugin, command, arguments)
    }
}

impl Link {
    pub(super) fn calls(&self) -> &Calls {
        &self.calls
    }

    /// The line of a request, or why the supervisor would not take it.
    pub(super) fn request_line(
        &self,
        id: u64,
        target: &str,
        params: &impl Serialize,
    ) -> Result<Vec<u8>, Error> {
        let mut line = Vec::new();
        envelope::request(&mut line, id, "command/invoke", params)
            .map_err(|cause| fault::bad_arguments(target, cause))?;
        let bytes = line.len() - 1;
        if bytes > self.frame_max {
            return Err(fault::too_large(bytes, self.frame_max));
        }
        if deeper_than(&line, DEPTH_MAX) {
            return Err(fault::bad_arguments(
                target,
                format!("the call nests deeper than {DEPTH_MAX} levels"),
            ));
        }
        Ok(line)
    }

    /// Sends the request of an open call.
    pub(super) async fn send(&self, line: Vec<u8>) -> Result<(), Error> {
        self.writer.request(line).await.map_err(|_| {
            let ended = self.calls.ended().unwrap_or_else(|| fault::ended("it cannot be written to"));
            fault::not_sent(&ended)
        })
    }

    pub(super) fn cancel(&self, id: u64) {
        self.writer.notification(cancel_line(id));
    }

    /// Lets the supervisor send so many chunks more.
    pub(super) fn credit(&self, id: u64, chunks: u32) {
        self.writer.notification(notification("$/credit", &json!({"invocation": id, "n": chunks})));
    }
}

/// The socket is closed with its last task, and the supervisor cancels what is left.
impl Drop for Link {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

pub(super) fn cancel_line(id: u64) -> Vec<u8> {
    notification("$/cancel", &json!({"invocation": id}))
}

fn notification(method: &str, params: &serde_json::Value) -> Vec<u8> {
    let mut line = Vec::new();
    let written = envelope::notification(&mut line, method, params);
    debug_assert!(written.is_ok(), "numbers are JSON: {written:?}");
    line
}
