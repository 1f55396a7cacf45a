//! Starts: a stopped plugin's first answer, and a process for every call.

use std::time::Instant;

use super::channel::SMALL;
use super::{Bench, in_turns};
use crate::Error;
use crate::bare::Bare;
use crate::bus::Service;
use crate::client::Frame;
use crate::sample::Samples;
use crate::scopes::Scopes;

/// Starts of one round.
const STARTS: usize = 3;

pub(super) fn measure_start(bench: &mut Bench) -> Result<(), Error> {
    let plugin = bench.plugin()?;
    let mut bare = Bare::new(&bench.programs)?;
    let rounds = bench.either(5, 11);
    let mut scopes = Scopes::connect()?;
    let bus = &bench.bus;
    let sides = (&mut true, &mut false);
    let (floor, ours) = in_turns(rounds, sides, |is_floor| {
        let mut samples = Samples::default();
        for _ in 0..STARTS {
            if *is_floor {
                samples.push(bare.cold_start(&mut scopes)?);
            } else {
                bus.stop(&plugin)?;
                let start = Instant::now();
                bus.call(Service::Supervisor, &plugin, "echo", r#"{"text":"first"}"#)?;
                samples.push(start.elapsed());
            }
        }
        Ok([samples.percentile(50)])
    })?;
    bench.report.ratio("cold_start_ratio", "cold_start", ours[0], floor[0]);
    Ok(())
}

pub(super) fn measure_spawn(bench: &mut Bench) -> Result<(), Error> {
    let plugin = bench.plugin()?;
    let bare = Bare::new(&bench.programs)?;
    let mut spawned = Samples::default();
    for _ in 0..bench.either(30, 100) {
        spawned.push(bare.spawn_per_call()?);
    }
    let spawned = spawned.percentile(50);
    let calls = bench.either(1500, 5000);
    let mut frame = Frame::echo(&plugin, SMALL);
    let mut warm = match bench.bus.channel(&[&plugin]) {
        Ok(mut client) => {
            client.one_at_a_time(&mut frame, calls / 10)?;
            client.one_at_a_time(&mut frame, calls)?
        }
        // A supervisor without channels has its calls over D-Bus.
        Err(_) => bench.bus.calls(Service::Supervisor, &plugin, "{}", calls)?,
    };
    let warm = warm.percentile(50);
    bench.report.value("warm_vs_spawn", spawned / warm);
    bench.report.raw("warm_vs_spawn_ours", warm);
    bench.report.raw("warm_vs_spawn_floor", spawned);
    Ok(())
}
