//! Unicode text statistics, as a plugind plugin.

mod lines;
mod stats;

use plugind_sdk::{Call, Error, Failure, Plugin};
use serde::Deserialize;
use stats::Stats;

/// What both commands take.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Args {
    text: String,
}

fn main() -> Result<(), Error> {
    plugin()?.serve()
}

fn plugin() -> Result<Plugin, Error> {
    let plugin = Plugin::from_manifest(include_bytes!("../plugin.json"))?
        .command("count", |_: &Call, args: Args| {
            let stats = Stats::of(&args.text);
            // Standard error is the plugin's log: `pluginctl logs textstats`.
            eprintln!("counted {} bytes", args.text.len());
            Ok::<_, Failure>(stats)
        })
        .command("lines", |call: &Call, args: Args| lines::count(call, &args.text));
    Ok(plugin)
}
