//! Channels: a caller's own socket to some plugins, with the frames of DESIGN §6 on it.
//!
//! A caller that reads slowly is slow for itself only: its requests are not read, its streams get no credit and its
//! progress is left out while too much waits for it. One that does not read at all is closed.

mod reader;
mod sink;
mod wire;

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plugind_protocol::{Error, Id, Kind};
use tokio::net::UnixStream;
use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::plugin::Plugin;
use crate::relay::{Batch, Outgoing, Spread, Stop, Stream, Ticket};
use crate::supervisor::{Caller, Supervisor};

/// Plugins that one channel is for.
const PLUGINS_MAX: usize = 64;

/// Channels that are open at the same time.
const CHANNELS_MAX: usize = 1024;

/// Calls of one channel that have no answer yet.
const CALLS_MAX: usize = 4096;

/// A caller that takes in nothing for this long is closed.
const STALL: Duration = Duration::from_secs(30);

/// While more than this waits for a caller, or more than its `frame_max`, nothing is read from it.
const SLOW: usize = 512 << 10;

/// When this many times that waits, it is closed: answers are never dropped.
const FULL: usize = 16;

/// All channels.
#[derive(Debug)]
pub(crate) struct Channels {
    room: Arc<Semaphore>,
    /// The event loop that they are served by.
    served_by: Handle,
}

impl Channels {
    pub(crate) fn new(served_by: Handle) -> Channels {
        Channels { room: Arc::new(Semaphore::new(CHANNELS_MAX)), served_by }
    }

    /// Opens a channel of an authorised caller to these plugins: its socket, and the longest line in bytes.
    pub(crate) fn open(
        &self,
        supervisor: &Supervisor,
        names: &[String],
        caller: &Caller,
    ) -> Result<(OwnedFd, usize), Error> {
        if names.is_empty() || names.len() > PLUGINS_MAX {
            return Err(Error::new(
                Kind::InvalidArguments,
                format!("a channel is for 1 to {PLUGINS_MAX} plugins, not for {}", names.len()),
                "name the plugins that it is for; open several channels for more",
            ));
        }
        let mut plugins = BTreeMap::new();
        for name in names {
            if plugins.insert(name.clone(), supervisor.find(name)?).is_some() {
                return Err(Error::new(
                    Kind::InvalidArguments,
                    format!("{name} is named twice"),
                    "name each plugin once",
                ));
            }
        }
        let mut frame_max = 0;
        for plugin in plugins.values() {
            frame_max = frame_max.max(plugin.frame_max()?);
        }
        let permit = Arc::clone(&self.room).try_acquire_owned().map_err(|_| {
            Error::new(
                Kind::Busy,
                format!("{CHANNELS_MAX} channels are open already"),
                "try again when some are closed; one channel carries many calls",
            )
        })?;
        // Each channel takes its own turns.
        let caller = Caller::new(caller.who.to_string());
        let theirs = connect(&self.served_by, plugins, caller, frame_max, permit).map_err(|cause| {
            Error::new(
                Kind::Unavailable,
                format!("cannot make a channel: {cause}"),
                "plugind has too many files open: raise LimitNOFILE= of plugind.service",
            )
        })?;
        Ok((theirs, frame_max))
    }
}

fn connect(
    served_by: &Handle,
    plugins: BTreeMap<String, Arc<Plugin>>,
    caller: Caller,
    frame_max: usize,
    permit: OwnedSemaphorePermit,
) -> std::io::Result<OwnedFd> {
    let (ours, theirs) = StdStream::pair()?;
    ours.set_nonblocking(true)?;
    // A socket belongs to the event loop in which it is made.
    let _within = served_by.enter();
    let (incoming, outgoing) = UnixStream::from_std(ours)?.into_split();
    let channel = Arc::new(Channel {
        only: if plugins.len() == 1 { plugins.values().next().cloned() } else { None },
        plugins,
        caller,
        frame_max,
        out: Outgoing::new(Stream::Socket(outgoing)),
        calls: Mutex::default(),
        room: Notify::new(),
        withheld: AtomicBool::new(false),
    });
    let reader = tokio::spawn(reader::run(Arc::clone(&channel), incoming, permit));
    let reading = reader.abort_handle();
    tokio::spawn(async move {
        let stop = channel.out.run(STALL, || channel.has_drained()).await;
        if stop == Stop::Stalled {
            tracing::warn!(caller = %channel.caller.who, "closed a channel whose caller does not read");
        }
        reading.abort();
    });
    Ok(theirs.into())
}

/// Calls by the caller's own ids.
type Calls = HashMap<Id, Ticket, BuildHasherDefault<Spread>>;

/// One caller's channel.
struct Channel {
    plugins: BTreeMap<String, Arc<Plugin>>,
    /// The plugin, where there is only one.
    only: Option<Arc<Plugin>>,
    caller: Caller,
    frame_max: usize,
    out: Arc<Outgoing>,
    /// Calls without an answer, by the caller's own ids.
    calls: Mutex<Calls>,
    /// Less waits for the caller than before.
    room: Notify,
    /// A stream did not get its credit, because the caller was slow.
    withheld: AtomicBool,
}

impl Channel {
    fn slow(&self) -> usize {
        SLOW.max(self.frame_max)
    }

    /// Whether too much waits for the caller.
    fn is_slow(&self) -> bool {
        self.out.waiting() > self.slow()
    }

    /// Adds a frame for the caller.
    fn write(&self, batch: &mut Batch, frame: impl FnOnce(&mut Vec<u8>)) {
        self.out.write(frame);
        if self.out.waiting() > FULL * self.slow() {
            tracing::warn!(caller = %self.caller.who, "closed a channel whose caller lets its answers pile up");
            // The writer ends, and the reader with it.
            self.out.close();
        }
        batch.touch(&self.out);
    }

    /// The caller has read something.
    fn has_drained(&self) {
        if self.is_slow() {
            return;
        }
        self.room.notify_one();
        if self.withheld.swap(false, Ordering::Relaxed) {
            let tickets: Vec<Ticket> = self.lock().values().cloned().collect();
            let mut batch = Batch::default();
            for ticket in tickets {
                ticket.credit(0, &mut batch);
            }
        }
    }

    /// The caller is gone: nobody waits for its calls any more.
    fn close(&self) {
        self.out.close();
        let tickets: Vec<Ticket> = self.lock().drain().map(|(_, ticket)| ticket).collect();
        let mut batch = Batch::default();
        for ticket in tickets {
            ticket.cancel("caller gone", &mut batch);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
