//! The warm path: latency, calls per second, bytes per second.

use super::{Bench, in_turns};
use crate::Error;
use crate::client::{Client, Frame};
use crate::floor::Floor;
use crate::sample::rate;

/// A line of a small call.
pub(super) const SMALL: usize = 200;
const IN_FLIGHT: usize = 64;
const MEBIBYTE: usize = 1 << 20;
/// Frames of 1 MiB that are on their way at once: enough that nobody waits for a single one of them.
const BULK_IN_FLIGHT: usize = 4;

pub(super) fn measure(bench: &mut Bench) -> Result<(), Error> {
    let plugin = bench.plugin()?;
    let mut ours = bench.bus.channel(&[&plugin])?;
    let mut floor = Floor::start(&bench.programs)?;
    let all = compare(bench, &plugin, &mut floor.client, &mut ours)?;
    for (what, (floor, ours)) in all {
        match what {
            // Of a single large frame each hop waits for the whole of it: for information.
            "bulk_one_at_a_time" => bench.report.pair(what, ours, floor),
            _ => bench.report.ratio(&format!("{what}_ratio"), what, ours, floor),
        }
    }
    Ok(())
}

/// The floor against another floor: how far from 1 a ratio is by chance.
pub(super) fn measure_noise(bench: &mut Bench) -> Result<(), Error> {
    let mut one = Floor::start(&bench.programs)?;
    let mut other = Floor::start(&bench.programs)?;
    let all = compare(bench, "bench-plugin", &mut one.client, &mut other.client)?;
    for (what, (floor, ours)) in all {
        bench.report.raw(&format!("noise_{what}_ratio"), ours / floor);
        bench.report.pair(&format!("noise_{what}"), ours, floor);
    }
    Ok(())
}

/// The floor's number and ours.
type Pair = (f64, f64);

fn compare(
    bench: &Bench,
    plugin: &str,
    floor: &mut Client,
    ours: &mut Client,
) -> Result<[(&'static str, Pair); 5], Error> {
    let rounds = bench.either(5, 11);
    let calls = bench.either(1500, 5000);
    let mut small = Frame::echo(plugin, SMALL);
    let latency = in_turns(rounds, (floor, ours), |client| {
        client.one_at_a_time(&mut small, calls / 10)?;
        let mut samples = client.one_at_a_time(&mut small, calls)?;
        Ok([samples.percentile(50), samples.percentile(99)])
    })?;

    let calls = bench.either(10_000, 40_000);
    let pipelined = in_turns(rounds, (floor, ours), |client| {
        client.pipelined(&mut small, calls / 10, IN_FLIGHT)?;
        Ok([rate(calls, client.pipelined(&mut small, calls, IN_FLIGHT)?)])
    })?;

    let calls = bench.either(30, 100);
    let mut big = Frame::echo_of(plugin, MEBIBYTE);
    let mut bulk = |in_flight| {
        in_turns(rounds, (floor, ours), |client| {
            client.streamed(&mut big, in_flight, in_flight)?;
            Ok([rate(calls, client.streamed(&mut big, calls, in_flight)?)])
        })
    };
    let (bulk, alone) = (bulk(BULK_IN_FLIGHT)?, bulk(1)?);
    Ok([
        ("channel_p50", (latency.0[0], latency.1[0])),
        ("channel_p99", (latency.0[1], latency.1[1])),
        ("pipelined", (pipelined.0[0], pipelined.1[0])),
        ("bulk", (bulk.0[0], bulk.1[0])),
        ("bulk_one_at_a_time", (alone.0[0], alone.1[0])),
    ])
}
