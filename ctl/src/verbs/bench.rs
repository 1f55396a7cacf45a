//! `bench`: how fast a command answers, and how often it does not.

mod latencies;
mod tally;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use plugind_protocol::{Error, Kind};
use plugind_sdk::client::Channel;
use serde_json::value::RawValue;
use tokio::task::JoinSet;

use super::target::target;
use super::{DONE, call, client};
use crate::bus::{self, CallOptions, Lifecycle};
use crate::cli::BenchArgs;
use crate::interrupts::{self, Interrupts};
use crate::output::Context;

use tally::{Report, Tally};

pub(super) async fn run(context: &Context, args: &BenchArgs) -> Result<u8, Error> {
    let (plugin, command) = target(&args.target, args.command.as_deref())?;
    let arguments = call::arguments(&args.call.args)?;
    let arguments = RawValue::from_string(arguments)
        .map_err(|cause| Error::internal(format!("arguments became unreadable: {cause}")))?;
    let client = client(context).await?;
    let manifest = client.describe(plugin).await?.manifest;
    let how = call::options(context, &args.call, Some(&manifest), command);
    client.lifecycle(plugin, Lifecycle::Start).await?;
    let mut channels = Vec::new();
    for _ in 0..args.callers {
        channels.push(client.channel(&[plugin]).await?);
    }

    let mut interrupts = Interrupts::listen()?;
    let began = Instant::now();
    let end = match args.time {
        Some(time) => End::At(began + time),
        None => End::After(AtomicU64::new(args.calls)),
    };
    let plan = Plan { plugin: plugin.into(), command: command.into(), arguments, how, end };
    let bench = Arc::new(Bench { plan, tally: Mutex::default() });
    let mut workers = JoinSet::new();
    for channel in channels {
        for _ in 0..args.in_flight {
            workers.spawn(work(channel.clone(), Arc::clone(&bench)));
        }
    }
    let interrupted = tokio::select! {
        () = all(&mut workers) => None,
        number = interrupts.next() => Some(number),
    };
    let time = began.elapsed();
    // Calls that are still open are cancelled with their workers.
    workers.shutdown().await;

    let tally = bench.tally();
    let report = Report::new(plugin, command, (args.callers, args.in_flight), time, &tally);
    if context.is_json() {
        context.json(&report)?;
    } else {
        context.print(&report.text(&tally))?;
    }
    match (interrupted, tally.failure()) {
        (Some(number), _) => Ok(interrupts::exit_code(number)),
        (None, Some(error)) => Err(error.clone()),
        (None, None) => Ok(DONE),
    }
}

/// Waits for all workers.
async fn all(workers: &mut JoinSet<()>) {
    while workers.join_next().await.is_some() {}
}

/// What all workers share.
struct Bench {
    plan: Plan,
    tally: Mutex<Tally>,
}

struct Plan {
    plugin: String,
    command: String,
    arguments: Box<RawValue>,
    how: CallOptions,
    end: End,
}

/// When no more calls are begun.
enum End {
    At(Instant),
    /// So many are left.
    After(AtomicU64),
}

/// One call after the other.
async fn work(channel: Channel, bench: Arc<Bench>) {
    while bench.plan.another() {
        let began = Instant::now();
        let outcome = bench.plan.call(&channel).await;
        let time = began.elapsed();
        let bytes = outcome.map(|result| bench.plan.arguments.get().len() + result.get().len());
        let failed = bytes.as_ref().err().map(|error| error.kind);
        bench.tally().add(bytes, time);
        match failed {
            None => {}
            // The channel is gone: what comes next would fail as fast as it is tried.
            Some(Kind::Unavailable) => break,
            // What fails before it is sent never waits, and would let nobody else run.
            Some(_) => tokio::task::yield_now().await,
        }
    }
}

impl Bench {
    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Plan {
    /// Whether to call once more.
    fn another(&self) -> bool {
        match &self.end {
            End::At(end) => Instant::now() < *end,
            End::After(left) => {
                let one_less = |left: u64| left.checked_sub(1);
                left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
            }
        }
    }

    async fn call(&self, channel: &Channel) -> Result<Box<RawValue>, Error> {
        let mut invoke =
            channel.invoke(&self.plugin, &self.command, &self.arguments).dry_run(self.how.dry_run);
        if let Some(timeout) = self.how.timeout {
            invoke = invoke.timeout(timeout);
        }
        bus::in_time(self.how.deadline, "calling the command", invoke.result()).await
    }
}
