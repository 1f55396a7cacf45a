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
        .command("count", |_: &Call, args: CountArgs| Ok::<_, Failure>(Stats::of(&args.text)))
        .serve()
}
