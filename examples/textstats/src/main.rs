//! Unicode text statistics, as a plugind plugin.

mod stats;

use plugind_sdk::{Call, Error, Failure, Plugin};
use serde::Deserialize;
use stats::Stats;

/// What `count` takes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CountArgs {
    text: String,
}

fn main() -> Result<(), Error> {
    Plugin::from_manifest(include_bytes!("../plugin.json"))?
        .command("count", |_: &Call, args: CountArgs| {
            let stats = Stats::of(&args.text);
            // Standard error is the plugin's log: `pluginctl logs textstats`.
            eprintln!("counted {} bytes", args.text.len());
            Ok::<_, Failure>(stats)
        })
        .serve()
}
