//! The protocol's side of a plugin: reads frames, answers what needs no command, hands out what does.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use plugind_protocol::envelope::Class;
use plugind_protocol::frame::FRAME_MAX_CAP;
use plugind_protocol::manifest::TIMEOUT_MAX_MS;
use plugind_protocol::{Decoder, Envelope, FrameError, Id, Manifest};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use crate::attest;
use crate::call::Call;
use crate::error::Error;
use crate::failure::{Failure, code};
use crate::pending::{Pending, State};
use crate::stream::Stream;
use crate::worker::{self, Handler, Job};
use crate::writer::Writer;

/// How long cancelled commands may take at `shutdown`: less than the five seconds that the supervisor waits.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(4);
/// How long after its deadline a call may still be answered at the end of the input.
const END_PATIENCE: Duration = Duration::from_secs(1);

pub(crate) struct Server {
    manifest: Manifest,
    handlers: BTreeMap<String, Handler>,
    workers: usize,
    in_flight: usize,
    writer: Arc<Writer>,
    pending: Arc<Pending>,
    /// The way to the workers; there once the handshake is done.
    queue: Option<Sender<Job>>,
}

/// What follows a frame.
type Next = Result<ControlFlow<()>, Error>;
const READ_ON: Next = Ok(ControlFlow::Continue(()));

#[derive(Deserialize)]
struct InvokeParams<'a> {
    #[serde(borrow)]
    command: Text<'a>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
    #[serde(default)]
    meta: Meta,
}

/// Borrows where the text has no escapes, which serde does only for a `Cow` of its own.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize, Default)]
#[serde(default)]
struct Meta {
    invocation: String,
    deadline_ms: Option<u64>,
    caller: String,
    dry_run: bool,
    credit: u64,
}

#[derive(Deserialize)]
struct CancelParams<'a> {
    #[serde(borrow)]
    invocation: Cow<'a, str>,
}

#[derive(Deserialize)]
struct CreditParams<'a> {
    #[serde(borrow)]
    invocation: Cow<'a, str>,
    n: u64,
}

impl Server {
    pub(crate) fn new(
        manifest: Manifest,
        handlers: BTreeMap<String, Handler>,
        workers: usize,
        output: Box<dyn Write + Send>,
    ) -> Server {
        let resources = &manifest.resources;
        let frame_max = usize::try_from(resources.frame_max).unwrap_or(FRAME_MAX_CAP);
        Server {
            in_flight: usize::try_from(resources.in_flight).unwrap_or(usize::MAX),
            manifest,
            handlers,
            workers,
            writer: Arc::new(Writer::new(output, frame_max)),
            pending: Arc::default(),
            queue: None,
        }
    }

    /// Serves until `shutdown`, the end of the input, or an error that leaves nobody to serve.
    pub(crate) fn run(mut self, mut input: impl Read) -> Result<(), Error> {
        // The supervisor keeps to frame_max; whatever is longer is still read whole, to answer it by its id.
        let mut decoder = Decoder::new(FRAME_MAX_CAP);
        loop {
            let length = match input.read(decoder.space()) {
                Ok(0) => break,
                Ok(length) => length,
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => continue,
                Err(cause) => return Err(cause.into()),
            };
            decoder.filled(length);
            while let Some(frame) = decoder.frame() {
                if self.frame(frame)?.is_break() {
                    return Ok(());
                }
            }
            self.writer.check()?;
        }
        // Half a line at the end was never a request.
        self.pending.end_credit();
        self.pending.wait_until_empty(self.pending.last_deadline() + END_PATIENCE);
        Ok(self.writer.check()?)
    }

    fn frame(&mut self, frame: Result<&str, FrameError>) -> Next {
        let frame = match frame {
            Ok(frame) => frame,
            Err(cause) => return self.refuse_frame(&cause),
        };
        let message = match Envelope::parse(frame) {
            Ok(message) => message,
            Err(cause) => return self.refuse_frame(&cause),
        };
        let (method, params) = (message.method.as_deref().unwrap_or_default(), message.params);
        match (message.class(), &message.id) {
            (Class::Request, Some(id)) if frame.len() > self.writer.frame_max() => {
                let message = format!("a frame of {} bytes is over frame_max", frame.len());
                self.fail(id, code::INVALID_REQUEST, message)
            }
            (Class::Request, Some(id)) => self.request(id, method, params),
            (Class::Notification, _) => {
                self.notification(method, params);
                READ_ON
            }
            // This plugin asks nothing, so no answer is awaited.
            _ => READ_ON,
        }
    }

    fn request(&mut self, id: &Id, method: &str, params: Option<&RawValue>) -> Next {
        match method {
            "ping" => {
                self.writer.respond_empty(id);
                READ_ON
            }
            "shutdown" => {
                self.pending.cancel_all();
                self.pending.wait_until_empty(Instant::now() + SHUTDOWN_PATIENCE);
                self.writer.respond_empty(id);
                Ok(ControlFlow::Break(()))
            }
            "initialize" if self.queue.is_some() => {
                self.fail(id, code::INVALID_REQUEST, "initialize came before")
            }
            "initialize" => self.initialize(id, params),
            _ if self.queue.is_none() => self.fail(id, code::INVALID_REQUEST, "initialize comes first"),
            "command/invoke" => self.invoke(id, params),
            _ => self.fail(id, code::METHOD_NOT_FOUND, format!("no method `{method}`")),
        }
    }

    fn notification(&self, method: &str, params: Option<&RawValue>) {
        let params = params.map_or("{}", RawValue::get);
        // What cannot be understood is nobody's business: a notification has no answer.
        match method {
            "$/cancel" => {
                if let Ok(CancelParams { invocation }) = serde_json::from_str(params) {
                    self.pending.cancel(&invocation);
                }
            }
            "$/credit" => {
                if let Ok(CreditParams { invocation, n }) = serde_json::from_str(params) {
                    self.pending.credit(&invocation, n);
                }
            }
            _ => {}
        }
    }

    fn initialize(&mut self, id: &Id, params: Option<&RawValue>) -> Next {
        let expected = match attest::Expected::read(params) {
            Ok(expected) => expected,
            Err(cause) => return self.fail(id, code::INVALID_PARAMS, cause.to_string()),
        };
        let own = attest::own(&self.manifest);
        if let Some(differences) = expected.differences(&own) {
            let failure = Failure::of(code::ATTESTATION_FAILED, format!("attestation failed: {differences}"));
            self.writer.respond(id, Err(failure.with_data(json!({"own": own}))));
            return Err(Error::Attestation(differences));
        }
        if let Some(frame_max) = expected.limits.frame_max {
            self.writer.set_frame_max(frame_max.min(FRAME_MAX_CAP));
        }
        if let Some(in_flight) = expected.limits.in_flight {
            self.in_flight = in_flight;
        }
        self.workers = self.workers.min(self.in_flight).max(1);
        self.queue = Some(worker::start(self.workers, &self.pending)?);
        self.writer.respond(id, to_raw_value(&own).map_err(Failure::from));
        READ_ON
    }

    fn invoke(&self, id: &Id, params: Option<&RawValue>) -> Next {
        let params: InvokeParams = match serde_json::from_str(params.map_or("{}", RawValue::get)) {
            Ok(params) => params,
            Err(cause) => return self.fail(id, code::INVALID_PARAMS, cause.to_string()),
        };
        let Text(name) = &params.command;
        let (Some(descriptor), Some(handler)) = (self.manifest.command(name), self.handlers.get(&**name))
        else {
            return self.fail(id, code::METHOD_NOT_FOUND, format!("no command `{name}`"));
        };
        if params.meta.dry_run && !descriptor.dry_run {
            return self.fail(id, code::INVALID_PARAMS, format!("the command `{name}` has no dry run"));
        }
        let time = params.meta.deadline_ms.unwrap_or(descriptor.timeout_ms.into()).min(TIMEOUT_MAX_MS.into());
        let state = Arc::new(State {
            invocation: params.meta.invocation,
            caller: params.meta.caller,
            dry_run: params.meta.dry_run,
            deadline: Instant::now() + Duration::from_millis(time),
            cancelled: AtomicBool::new(false),
            stream: Stream::new(params.meta.credit),
        });
        // Each worker may have answered a call that it has not signed off yet: the supervisor is right to count that
        // one no more.
        if !self.pending.admit(&state, self.in_flight.saturating_add(self.workers)) {
            return self.fail(id, code::BUSY, format!("{} calls are in flight already", self.in_flight));
        }
        let job = Job {
            id: id.clone(),
            handler: Arc::clone(handler),
            arguments: params.arguments.map_or("null", RawValue::get).to_owned(),
            call: Call { state, writer: Arc::clone(&self.writer) },
        };
        match self.queue.as_ref().map(|queue| queue.send(job)) {
            Some(Ok(())) => READ_ON,
            _ => Err(Error::Io(io::Error::other("no worker is left"))),
        }
    }

    fn refuse_frame(&self, cause: &FrameError) -> Next {
        let code = match cause {
            FrameError::InvalidJson { .. } => code::PARSE_ERROR,
            _ => code::INVALID_REQUEST,
        };
        self.fail(&Id::null(), code, cause.to_string())
    }

    fn fail(&self, id: &Id, code: i64, message: impl Into<String>) -> Next {
        self.writer.respond(id, Err(Failure::of(code, message)));
        READ_ON
    }
}
