//! Where the daemons' own messages go: the journal with structured fields, or stderr where no journal listens.
//!
//! Writing happens on a thread of its own behind a bounded queue: a journal that does not read must not stop the event
//! loop. What finds the queue full is counted, and the count is logged once there is room.

use std::fmt::{Debug, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use tracing::field::{Field, Visit};
use tracing::{Dispatch, Event, Level, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Messages that wait to be written; a plugin's lines among them, which are at most 2 KiB each.
const QUEUE: usize = 1024;

/// The journal field that names the plugin a message is about.
const PLUGIN: &str = "PLUGIND_PLUGIN";

/// The journal field that says whose words a message is: `stderr` and `log` are a plugin's, `plugind` ours.
const SOURCE: &str = "PLUGIND_SOURCE";
const OURS: &str = "plugind";

/// Starts logging; `PLUGIND_LOG` (error, warn, info, debug, trace) sets the level, info by default.
pub fn start(identifier: &str) {
    let level = std::env::var("PLUGIND_LOG")
        .ok()
        .and_then(|text| text.parse::<LevelFilter>().ok())
        .unwrap_or(LevelFilter::INFO);
    let (sender, receiver) = sync_channel(QUEUE);
    let lost = Arc::<AtomicU64>::default();
    registry().with(Queue { sender, lost: Arc::clone(&lost) }.with_filter(level)).init();
    let target = target(identifier);
    // Detached on purpose: it ends with the process, after `flush`.
    std::thread::spawn(move || tracing::dispatcher::with_default(&target, || write(&receiver, &lost)));
}

/// Waits, for a moment at most, until what was logged is written.
pub fn flush() {
    let (sender, receiver) = sync_channel(1);
    tracing::dispatcher::get_default(|dispatch| {
        if let Some(queue) = dispatch.downcast_ref::<Queue>() {
            let _ = queue.sender.try_send(Entry::Flush(sender.clone()));
        }
    });
    drop(sender);
    let _ = receiver.recv_timeout(std::time::Duration::from_secs(1));
}

/// The subscriber of the writing thread.
fn target(identifier: &str) -> Dispatch {
    // Only a unit's output belongs in the journal: a private daemon of `pluginctl run` speaks to its terminal.
    match std::env::var_os("INVOCATION_ID").and_then(|_| tracing_journald::layer().ok()) {
        Some(layer) => registry()
            .with(layer.with_field_prefix(None).with_syslog_identifier(identifier.to_owned()))
            .into(),
        None => registry()
            .with(
                tracing_subscriber::fmt::layer()
                    .with_writer(std::io::stderr)
                    .with_ansi(false)
                    .without_time()
                    .with_target(false),
            )
            .into(),
    }
}

/// What passes through the queue.
enum Entry {
    Message(Message),
    Flush(SyncSender<()>),
}

struct Message {
    level: Level,
    text: String,
    plugin: Option<String>,
    source: Option<String>,
    hint: Option<String>,
}

struct Queue {
    sender: SyncSender<Entry>,
    lost: Arc<AtomicU64>,
}

impl<S: Subscriber> Layer<S> for Queue {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let level = *event.metadata().level();
        let mut message = Message { level, text: String::new(), plugin: None, source: None, hint: None };
        event.record(&mut message);
        if self.sender.try_send(Entry::Message(message)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Visit for Message {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            PLUGIN => self.plugin = Some(value.to_owned()),
            SOURCE => self.source = Some(value.to_owned()),
            "hint" => self.hint = Some(value.to_owned()),
            _ => self.record_debug(field, &value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a String cannot fail.
        let _ = match field.name() {
            "message" => {
                let rest = std::mem::take(&mut self.text);
                write!(self.text, "{value:?}{rest}")
            }
            PLUGIN => {
                self.plugin = Some(format!("{value:?}"));
                Ok(())
            }
            "hint" => {
                self.hint = Some(format!("{value:?}"));
                Ok(())
            }
            name => write!(self.text, " {name}={value:?}"),
        };
    }
}

fn write(receiver: &Receiver<Entry>, lost: &AtomicU64) {
    while let Ok(entry) = receiver.recv() {
        match entry {
            Entry::Message(message) => emit(&message),
            Entry::Flush(done) => drop(done.try_send(())),
        }
        let count = lost.swap(0, Ordering::Relaxed);
        if count > 0 {
            tracing::warn!("{count} messages were lost: the journal did not read them fast enough");
        }
    }
}

fn emit(message: &Message) {
    let Message { level, text, plugin, source, hint } = message;
    let (plugin, hint) = (plugin.as_deref(), hint.as_deref());
    let source = source.as_deref().unwrap_or(OURS);
    match *level {
        Level::ERROR => {
            tracing::error!(PLUGIND_PLUGIN = plugin, PLUGIND_SOURCE = source, HINT = hint, "{text}");
        }
        Level::WARN => {
            tracing::warn!(PLUGIND_PLUGIN = plugin, PLUGIND_SOURCE = source, HINT = hint, "{text}");
        }
        Level::INFO => {
            tracing::info!(PLUGIND_PLUGIN = plugin, PLUGIND_SOURCE = source, HINT = hint, "{text}");
        }
        Level::DEBUG => {
            tracing::debug!(PLUGIND_PLUGIN = plugin, PLUGIND_SOURCE = source, HINT = hint, "{text}");
        }
        Level::TRACE => {
            tracing::trace!(PLUGIND_PLUGIN = plugin, PLUGIND_SOURCE = source, HINT = hint, "{text}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_that_does_not_read_costs_messages_and_never_the_caller() {
        let (sender, receiver) = sync_channel(2);
        let lost = Arc::<AtomicU64>::default();
        let queue = Queue { sender, lost: Arc::clone(&lost) };
        tracing::subscriber::with_default(registry().with(queue), || {
            for number in 0..10 {
                tracing::info!(PLUGIND_PLUGIN = "x", number, "message");
            }
        });
        assert_eq!(lost.load(Ordering::Relaxed), 8);
        let Entry::Message(message) = receiver.try_recv().unwrap() else { panic!("a message") };
        assert_eq!((message.plugin.as_deref(), message.text.as_str()), (Some("x"), "message number=0"));
    }
}
