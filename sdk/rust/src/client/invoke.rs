//! One call: how it is to be made, and what it brings.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plugind_protocol::{Error, Kind};
use serde::Serialize;
use serde_json::value::RawValue;

use super::channel::Link;
use super::events::{Event, Wanted};

/// The `params` of `command/invoke`.
#[derive(Serialize)]
struct Params<'a, A: ?Sized> {
    plugin: &'a str,
    command: &'a str,
    arguments: &'a A,
    meta: Meta,
}

#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Meta {
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline_ms: Option<u64>,
    dry_run: bool,
    #[serde(skip_serializing_if = "is_zero")]
    credit: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A call in the making; see [`Channel::invoke`](super::Channel::invoke).
#[derive(Debug)]
#[must_use = "nothing is called before `start` or `result`"]
pub struct Invoke<'a> {
    link: &'a Arc<Link>,
    plugin: &'a str,
    command: &'a str,
    arguments: &'a RawValue,
    meta: Meta,
}

impl<'a> Invoke<'a> {
    pub(super) fn new(
        link: &'a Arc<Link>,
        plugin: &'a str,
        command: &'a str,
        arguments: &'a RawValue,
    ) -> Invoke<'a> {
        Invoke { link, plugin, command, arguments, meta: Meta::default() }
    }

    /// How long the call may take; the command's own `timeout_ms` where that is shorter.
    pub fn timeout(mut self, time: Duration) -> Invoke<'a> {
        self.meta.deadline_ms = Some(u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1));
        self
    }

    /// Whether the command only says what it would do.
    pub fn dry_run(mut self, dry_run: bool) -> Invoke<'a> {
        self.meta.dry_run = dry_run;
        self
    }

    /// Takes the answer in parts, of which up to `window` may be on their way or waiting: more keep a fast command
    /// busy, and may need `window` times `frame_max` of memory. 0 takes no parts.
    pub fn stream(mut self, window: u32) -> Invoke<'a> {
        self.meta.credit = window;
        self
    }

    /// Sends the call. It waits while many bytes of other calls have not been sent yet.
    pub async fn start(self) -> Result<Invocation, Error> {
        let Invoke { link, plugin, command, arguments, meta } = self;
        start(link, Params { plugin, command, arguments, meta }, true).await
    }

    /// Sends the call and waits for its result; what else it brings is passed over. Dropped before, it cancels the
    /// call.
    pub async fn result(self) -> Result<Box<RawValue>, Error> {
        let Invoke { link, plugin, command, arguments, meta } = self;
        start(link, Params { plugin, command, arguments, meta }, false).await?.result().await
    }
}

/// Calls a command with arguments of any type.
pub(super) async fn call<A>(
    link: &Arc<Link>,
    plugin: &str,
    command: &str,
    arguments: &A,
) -> Result<Box<RawValue>, Error>
where
    A: Serialize + ?Sized,
{
    start(link, Params { plugin, command, arguments, meta: Meta::default() }, false).await?.result().await
}

async fn start<A>(link: &Arc<Link>, params: Params<'_, A>, progress: bool) -> Result<Invocation, Error>
where
    A: Serialize + ?Sized,
{
    let id = link.calls().open(Wanted { progress, window: params.meta.credit })?;
    let mut invocation = Invocation { link: Arc::clone(link), id, cancellable: AtomicBool::new(false) };
    let line = link.request_line(id, &format!("{}.{}", params.plugin, params.command), &params)?;
    link.send(line).await?;
    *invocation.cancellable.get_mut() = true;
    Ok(invocation)
}

/// A call on its way. Dropping it cancels the call, unless its end was seen.
#[derive(Debug)]
pub struct Invocation {
    link: Arc<Link>,
    id: u64,
    /// The request was sent, and no `$/cancel`.
    cancellable: AtomicBool,
}

impl Invocation {
    /// What comes next. Whoever takes a [`Event::Chunk`] makes room for another one. Dropped before it is ready, it
    /// loses nothing.
    ///
    /// After [`Event::Done`] there is nothing, which is told as another `Done` with an error.
    pub async fn next(&mut self) -> Event {
        let event = poll_fn(|context| self.link.calls().poll(self.id, context)).await;
        let Some((event, credit)) = event else {
            return Event::Done(Err(Error::new(
                Kind::Conflict,
                "the call is over, and its end was taken",
                "stop asking at Event::Done",
            )));
        };
        if credit > 0 {
            self.link.credit(self.id, credit);
        }
        event
    }

    /// Takes the call back. Its end still comes, usually as [`Kind::Cancelled`].
    pub fn cancel(&self) {
        if self.link.calls().is_running(self.id) && self.cancellable.swap(false, Ordering::Relaxed) {
            self.link.cancel(self.id);
        }
    }

    async fn result(mut self) -> Result<Box<RawValue>, Error> {
        loop {
            if let Event::Done(result) = self.next().await {
                return result;
            }
        }
    }
}

impl Drop for Invocation {
    fn drop(&mut self) {
        let running = self.link.calls().close(self.id);
        if running && *self.cancellable.get_mut() {
            self.link.cancel(self.id);
        }
    }
}
