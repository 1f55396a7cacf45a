//! Where the daemons' own messages go: the journal with structured fields, or stderr where no journal listens.

use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Starts logging; `PLUGIND_LOG` (error, warn, info, debug, trace) sets the level, info by default.
pub fn start(identifier: &str) {
    let level = std::env::var("PLUGIND_LOG")
        .ok()
        .and_then(|text| text.parse::<LevelFilter>().ok())
        .unwrap_or(LevelFilter::INFO);
    // Only a unit's output belongs in the journal: a private daemon of `pluginctl run` speaks to its terminal.
    let journal = std::env::var_os("INVOCATION_ID").and_then(|_| tracing_journald::layer().ok());
    if let Some(layer) = journal {
        let layer = layer.with_field_prefix(None).with_syslog_identifier(identifier.to_owned());
        tracing_subscriber::registry().with(layer.with_filter(level)).init();
    } else {
        let layer = tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .with_ansi(false)
            .without_time()
            .with_target(false);
        tracing_subscriber::registry().with(layer.with_filter(level)).init();
    }
}
