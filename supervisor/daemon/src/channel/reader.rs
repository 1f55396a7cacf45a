//! Takes a caller's frames and makes calls of them.

use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use plugind_protocol::envelope::{self, Class, Envelope, code};
use plugind_protocol::frame::{Decoder, FrameError};
use plugind_protocol::{Error, Id, Kind, RpcError};
use serde_json::value::RawValue;
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::OwnedSemaphorePermit;

use super::sink::ChannelSink;
use super::wire::{self, Cancel, Credit, Params};
use super::{CALLS_MAX, Channel};
use crate::plugin::{Plugin, Request};
use crate::relay::{Batch, Ticket, read, shown};

/// What helps a caller whose line is no request.
const HINT: &str = "write one JSON-RPC 2.0 object a line, of frame_max bytes at most, in UTF-8";

/// Ends the channel with its reader, however that ends.
struct Closing(Arc<Channel>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Reads until the caller closes its end.
pub(super) async fn run(channel: Arc<Channel>, mut incoming: OwnedReadHalf, _permit: OwnedSemaphorePermit) {
    let closing = Closing(channel);
    let channel = &closing.0;
    let mut decoder = Decoder::new(channel.frame_max);
    loop {
        while channel.is_slow() {
            channel.room.notified().await;
        }
        let length = read(&mut incoming, &mut decoder, &channel.out).await;
        if length == 0 {
            return;
        }
        decoder.filled(length);
        let mut batch = Batch::default();
        while let Some(frame) = decoder.frame() {
            take(channel, frame, &mut batch);
        }
        drop(batch);
        if decoder.is_pressed() {
            tokio::task::yield_now().await;
        }
    }
}

fn take(channel: &Arc<Channel>, frame: Result<&str, FrameError>, batch: &mut Batch) {
    let refused = match frame {
        Ok(frame) => match invoke(frame) {
            Some((id, params)) => return call(channel, id, &params, batch),
            // Another message, or none.
            None => envelope::parse(frame).map(|message| other(channel, &message, batch)),
        },
        Err(error) => Err(error),
    };
    if let Err(error) = refused {
        let code = match error {
            FrameError::InvalidJson { .. } => code::PARSE_ERROR,
            _ => code::INVALID_REQUEST,
        };
        let mut error = Error::from(error);
        HINT.clone_into(&mut error.hint);
        refuse(channel, &Id::null(), code, &error, batch);
    }
}

/// `command/invoke`, read in one pass as most encoders write it, and in two as any may.
fn invoke(frame: &str) -> Option<(Id, Params<'_>)> {
    const METHOD: &str = "command/invoke";
    if let Some((id, params)) = envelope::plain_request(frame, METHOD)
        && let Some(params) = Params::plain(params).or_else(|| serde_json::from_str(params).ok())
    {
        return Some((id, params));
    }
    let message = envelope::parse(frame).ok()?;
    let is_call = message.class() == Class::Request && message.method.as_deref() == Some(METHOD);
    let params = serde_json::from_str(message.params.filter(|_| is_call)?.get()).ok()?;
    Some((message.id?, params))
}

fn call(channel: &Arc<Channel>, id: Id, params: &Params<'_>, batch: &mut Batch) {
    let (plugin, ticket) = match admit(channel, &id, params.plugin.as_ref().map(|name| &*name.0)) {
        Ok(admitted) => admitted,
        Err(error) => {
            // The call that has the id already must not take this for its answer.
            let id = if error.kind == Kind::Conflict { Id::null() } else { id };
            return channel.write(batch, |frame| wire::error(frame, &id, &error));
        }
    };
    let request = Request {
        command: &params.command,
        arguments: params.arguments.map_or_else(|| Cow::Owned(empty_object()), Cow::Borrowed),
        caller: channel.caller.key,
        who: &channel.caller.json,
        timeout: params.meta.deadline_ms.map(Duration::from_millis),
        dry_run: params.meta.dry_run,
        credit: params.meta.credit,
    };
    let sink = ChannelSink { channel: Arc::clone(channel), id };
    plugin.submit(ticket, request, sink, batch);
}

/// Finds the plugin, and gives the call its place.
fn admit<'a>(channel: &'a Channel, id: &Id, name: Option<&str>) -> Result<(&'a Arc<Plugin>, Ticket), Error> {
    let plugin = match name {
        Some(name) => channel.plugins.get(name).ok_or_else(|| {
            Error::new(
                Kind::NoSuchPlugin,
                format!("this channel is not for a plugin {:?}", shown(name)),
                "name the plugin when the channel is opened",
            )
        })?,
        None => channel.only.as_ref().ok_or_else(|| {
            Error::new(
                Kind::InvalidArguments,
                "params.plugin is missing, and this channel is for several plugins",
                "say which plugin is called",
            )
        })?,
    };
    let mut calls = channel.lock();
    if calls.len() >= CALLS_MAX {
        return Err(Error::new(
            Kind::Busy,
            format!("{CALLS_MAX} calls of this channel have no answer yet"),
            "wait for some of them",
        ));
    }
    let Entry::Vacant(place) = calls.entry(id.clone()) else {
        return Err(Error::new(
            Kind::Conflict,
            format!("a call with the id {} has no answer yet", shown(id.as_json())),
            "give each call an id of its own",
        ));
    };
    let ticket = plugin.ticket();
    place.insert(ticket.clone());
    Ok((plugin, ticket))
}

fn other(channel: &Arc<Channel>, message: &Envelope<'_>, batch: &mut Batch) {
    let method = message.method.as_deref().unwrap_or_default();
    match (message.class(), &message.id) {
        (Class::Request, Some(id)) => match method {
            "ping" => channel.write(batch, |frame| wire::result(frame, id, &empty_object())),
            "command/invoke" => {
                let cause = message.params.map_or_else(
                    || "there are none".to_owned(),
                    |params| match serde_json::from_str::<Params<'_>>(params.get()) {
                        Err(cause) => shown(&cause.to_string()),
                        Ok(_) => "a member stands twice".to_owned(),
                    },
                );
                let error = Error::new(
                    Kind::InvalidArguments,
                    format!("the params of command/invoke are not right: {cause}"),
                    "they have plugin, command, arguments, and meta with deadline_ms, dry_run and credit",
                );
                refuse(channel, id, code::INVALID_PARAMS, &error, batch);
            }
            _ => {
                let error = Error::new(
                    Kind::InvalidArguments,
                    format!("a channel has no method {:?}", shown(method)),
                    "its methods are command/invoke and ping, its notifications $/cancel and $/credit",
                );
                refuse(channel, id, code::METHOD_NOT_FOUND, &error, batch);
            }
        },
        (Class::Notification, _) => notice(channel, method, message.params, batch),
        // Callers are asked nothing.
        _ => {}
    }
}

fn notice(channel: &Channel, method: &str, params: Option<&RawValue>, batch: &mut Batch) {
    let Some(params) = params else { return };
    match method {
        "$/cancel" => {
            let Ok(cancel) = serde_json::from_str::<Cancel>(params.get()) else { return };
            let ticket = channel.lock().get(&cancel.invocation).cloned();
            if let Some(ticket) = ticket {
                ticket.cancel(&shown(cancel.reason.as_deref().unwrap_or("cancelled by its caller")), batch);
            }
        }
        "$/credit" => {
            let Ok(credit) = serde_json::from_str::<Credit>(params.get()) else { return };
            let ticket = channel.lock().get(&credit.invocation).cloned();
            if let Some(ticket) = ticket {
                ticket.credit(credit.n, batch);
            }
        }
        _ => {}
    }
}

/// Answers what is no call with the code that JSON-RPC has for it.
fn refuse(channel: &Channel, id: &Id, code: i64, error: &Error, batch: &mut Batch) {
    let error = RpcError { code, ..RpcError::from(error) };
    channel.write(batch, |frame| {
        // Numbers and texts serialise always.
        let _ = envelope::error_response(frame, id, &error);
    });
}

fn empty_object() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).unwrap_or_default()
}
