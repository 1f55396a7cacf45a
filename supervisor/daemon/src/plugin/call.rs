//! A call of one plugin: checked against its contract, handed to its pool, and its answer checked on the way back.

use std::borrow::Cow;
use std::sync::{Arc, Weak};
use std::time::Duration;

use plugind_protocol::{Error, Kind};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::{Plugin, removed};
use crate::contract::Contract;
use crate::relay::{Batch, NewCall, Once, Outcome, Pool, Sink, Ticket};

/// No caller waits longer: far beyond any wait and any command's time.
const LONGEST: Duration = Duration::from_secs(3600);

/// A call as its caller makes it; the caller is known and authorised.
pub(crate) struct Request<'a> {
    pub(crate) command: &'a str,
    /// JSON without a line end, nested within the bound of a frame.
    pub(crate) arguments: Cow<'a, RawValue>,
    /// Who takes turns with others.
    pub(crate) caller: u64,
    /// The same in words, as a JSON text.
    pub(crate) who: &'a Arc<str>,
    /// From now on, however long the call waits for its turn. The command's own time begins when it is sent.
    pub(crate) timeout: Option<Duration>,
    pub(crate) dry_run: bool,
    /// Chunks that the caller takes for now.
    pub(crate) credit: u64,
}

impl Plugin {
    /// A hold on a call that is to be submitted.
    pub(crate) fn ticket(&self) -> Ticket {
        self.pool.ticket()
    }

    /// Checks a call and hands it on. The sink gets the answer in any case, perhaps before this returns.
    pub(crate) fn submit<S: Sink + 'static>(
        self: &Arc<Self>,
        ticket: Ticket,
        request: Request<'_>,
        sink: S,
        batch: &mut Batch,
    ) {
        let began = batch.now();
        let (contract, at) = match self.check(&request) {
            Ok(checked) => checked,
            Err(error) => {
                self.counters.answered(Some(error.kind), began, began);
                return sink.done(Err(error), batch);
            }
        };
        let command = contract.checked(at);
        let delivery = Arc::new_cyclic(|me| Delivery {
            me: Weak::clone(me),
            plugin: Arc::clone(self),
            command: at,
            began,
            to: sink,
        });
        let call = NewCall {
            caller: request.caller,
            who: request.who,
            command: &command.json,
            arguments: request.arguments,
            dry_run: request.dry_run,
            time: command.timeout,
            until: request.timeout.map(|timeout| began + timeout.min(LONGEST)),
            credit: request.credit,
            sink: Arc::clone(&delivery) as Arc<dyn Sink>,
        };
        match contract.check_arguments_now(command, &call.arguments) {
            Some(Ok(())) => self.pool.submit(&ticket, call, batch),
            Some(Err(error)) => delivery.done(Err(error), batch),
            None => self.check_long(ticket, call, delivery),
        }
    }

    /// Calls a command and waits for its result; dropping the future takes the call back.
    pub(crate) async fn call(self: &Arc<Self>, request: Request<'_>) -> Result<Box<RawValue>, Error> {
        let (once, answer) = Once::new();
        let ticket = self.ticket();
        self.submit(ticket.clone(), request, once, &mut Batch::default());
        let _taken_back = TakenBack(&ticket);
        answer.await.map_err(|_| removed())?
    }

    fn check(&self, request: &Request<'_>) -> Result<(&Arc<Contract>, usize), Error> {
        let contract = self.contract()?;
        let at = contract.find(request.command)?;
        let command = contract.checked(at);
        if request.dry_run && !command.dry_run {
            return Err(Error::new(
                Kind::InvalidArguments,
                format!("{}.{} has no dry run", contract.manifest.name, request.command),
                "the manifest must declare \"dry_run\": true for the command",
            ));
        }
        Ok((contract, at))
    }

    /// Long arguments are checked beside the event loop.
    fn check_long<S: Sink + 'static>(&self, ticket: Ticket, call: NewCall<'_>, delivery: Arc<Delivery<S>>) {
        let pool = Arc::clone(&self.pool);
        pool.expect(&ticket);
        let (who, command) = (Arc::clone(call.who), Arc::clone(call.command));
        let NewCall { caller, arguments, dry_run, time, until, credit, sink, .. } = call;
        let arguments = arguments.into_owned();
        tokio::spawn(async move {
            let Ok(contract) = delivery.plugin.contract() else { return };
            let checked = contract.check_arguments(contract.checked(delivery.command), &arguments).await;
            let mut batch = Batch::default();
            let arguments = Cow::Owned(arguments);
            let (who, command) = (&who, &command);
            let call = NewCall { caller, who, command, arguments, dry_run, time, until, credit, sink };
            match checked {
                _ if !pool.arrived(&ticket) => delivery.done(Err(taken_back()), &mut batch),
                Ok(()) => pool.submit(&ticket, call, &mut batch),
                Err(error) => delivery.done(Err(error), &mut batch),
            }
        });
    }
}

fn taken_back() -> Error {
    Error::new(
        Kind::Cancelled,
        "the call was taken back before it was sent",
        "call again if the answer is wanted after all",
    )
}

/// Nobody waits for the answer any more, or it is there.
struct TakenBack<'a>(&'a Ticket);

impl Drop for TakenBack<'_> {
    fn drop(&mut self) {
        self.0.cancel("caller gone", &mut Batch::default());
    }
}

/// Calls a command of an instance that belongs to no installed plugin.
pub(crate) async fn call_once(
    pool: &Arc<Pool>,
    command: &str,
    arguments: Box<RawValue>,
    who: &str,
    time: Duration,
) -> Result<Box<RawValue>, Error> {
    let (once, answer) = Once::new();
    let ticket = pool.ticket();
    let json = |text: &str| -> Arc<str> { serde_json::Value::from(text).to_string().into() };
    let call = NewCall {
        caller: 0,
        who: &json(who),
        command: &json(command),
        arguments: Cow::Owned(arguments),
        dry_run: false,
        time,
        until: None,
        credit: 0,
        sink: Arc::new(once),
    };
    pool.submit(&ticket, call, &mut Batch::default());
    let _taken_back = TakenBack(&ticket);
    answer.await.map_err(|_| Error::internal("a call was forgotten"))?
}

/// Checks the result against the contract, counts the call, and hands its answer on.
struct Delivery<S> {
    /// For a check that takes longer than the call's place in the pool.
    me: Weak<Delivery<S>>,
    plugin: Arc<Plugin>,
    /// The command's place in the contract.
    command: usize,
    began: Instant,
    to: S,
}

impl<S: Sink> Delivery<S> {
    fn deliver(&self, outcome: Outcome<'_>, batch: &mut Batch) {
        let error = outcome.as_ref().err().map(|error| error.kind);
        self.plugin.counters.answered(error, self.began, batch.now());
        self.to.done(outcome, batch);
    }
}

impl<S: Sink + 'static> Sink for Delivery<S> {
    fn done(&self, outcome: Outcome<'_>, batch: &mut Batch) {
        let Ok(result) = outcome else { return self.deliver(outcome, batch) };
        let Ok(contract) = self.plugin.contract() else { return };
        if let Some(checked) = contract.check_result_now(contract.checked(self.command), result) {
            return self.deliver(checked.map(|()| result), batch);
        }
        // A long result is checked beside the event loop.
        let (Some(delivery), result) = (self.me.upgrade(), result.to_owned()) else { return };
        tokio::spawn(async move {
            let Ok(contract) = delivery.plugin.contract() else { return };
            let checked = contract.check_result(contract.checked(delivery.command), &result).await;
            delivery.deliver(checked.map(|()| &*result), &mut Batch::default());
        });
    }

    fn progress(&self, data: &RawValue, batch: &mut Batch) -> bool {
        self.to.progress(data, batch)
    }

    fn chunk(&self, seq: u64, data: &RawValue, batch: &mut Batch) {
        self.to.chunk(seq, data, batch);
    }

    fn has_room(&self) -> bool {
        self.to.has_room()
    }
}
