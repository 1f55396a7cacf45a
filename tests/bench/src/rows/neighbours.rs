//! What a well-behaved plugin's caller feels while another plugin, or its caller, misbehaves.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::channel::SMALL;
use super::{Bench, in_turns};
use crate::Error;
use crate::client::{Client, Frame};
use crate::floor::Floor;

/// A request's text of the caller that reads no answer.
const STUFFING: usize = 64 << 10;

/// How the other one misbehaves.
#[derive(Debug, Clone, Copy)]
enum Noise {
    /// Its plugin is told to, again and again.
    Command(&'static str, &'static str),
    /// Its caller sends requests and reads no answer.
    StoppedReader,
}

const NOISES: [(&str, Noise); 4] = [
    ("flood_stderr", Noise::Command("flood-stderr", r#"{"bytes":4194304}"#)),
    // Lines that are no frames would end it at the first of them.
    ("flood_stdout", Noise::Command("flood-progress", r#"{"bytes":4194304}"#)),
    ("spin", Noise::Command("spin", r#"{"ms":50}"#)),
    ("stopped_reader", Noise::StoppedReader),
];

pub(super) fn measure(bench: &mut Bench) -> Result<(), Error> {
    let quiet = bench.plugin()?;
    let loud = bench.plugins.add("loud", super::FRAME_MAX)?;
    let mut client = bench.bus.channel(&[&quiet])?;
    let mut floor = Floor::start(&bench.programs)?;
    let (rounds, calls) = (bench.either(3, 7), bench.either(1500, 4000));
    let mut frame = Frame::echo(&quiet, SMALL);
    let mut worst = [0.0_f64; 2];
    for (name, noise) in NOISES {
        let mut latency = |client: &mut Client| {
            // What the round before left behind passes meanwhile.
            client.one_at_a_time(&mut frame, calls / 10)?;
            let mut samples = client.one_at_a_time(&mut frame, calls)?;
            Ok([samples.percentile(50), samples.percentile(99)])
        };
        let bus = &bench.bus;
        let sides = (&mut false, &mut true);
        let (before, during) = in_turns(rounds, sides, |is_loud| {
            let other = if *is_loud { Some(bus.channel(&[&loud])?) } else { None };
            with_noise(other, &loud, noise, || latency(&mut client))
        })?;
        for (number, worst) in worst.iter_mut().enumerate() {
            *worst = worst.max(during[number] / before[number]);
        }
        bench.report.raw(&format!("neighbour_{name}_p50"), during[0] / before[0]);
        bench.report.raw(&format!("neighbour_{name}_p99"), during[1] / before[1]);
        // What the machine alone does to a caller of the floor in the same noise.
        let sides = (&mut false, &mut true);
        let (before, during) = in_turns(3, sides, |is_loud| {
            let other = if *is_loud { Some(bus.channel(&[&loud])?) } else { None };
            with_noise(other, &loud, noise, || latency(&mut floor.client))
        })?;
        bench.report.raw(&format!("neighbour_{name}_p50_of_floor"), during[0] / before[0]);
        bench.report.raw(&format!("neighbour_{name}_p99_of_floor"), during[1] / before[1]);
    }
    bench.report.value("neighbour_p50_ratio", worst[0]);
    bench.report.value("neighbour_p99_ratio", worst[1]);
    Ok(())
}

/// Does something while the other one misbehaves, if there is one.
fn with_noise<T>(
    other: Option<Client>,
    plugin: &str,
    noise: Noise,
    work: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    let Some(mut other) = other else { return work() };
    match noise {
        Noise::StoppedReader => {
            other.stuff(&mut Frame::echo_of(plugin, STUFFING))?;
            work()
        }
        Noise::Command(command, arguments) => {
            let stop = AtomicBool::new(false);
            thread::scope(|scope| {
                let noisy = scope.spawn(|| {
                    let mut frame = Frame::invoke(plugin, command, arguments);
                    while !stop.load(Ordering::Relaxed) {
                        other.noisy_call(&mut frame)?;
                    }
                    Ok(())
                });
                let done = work();
                stop.store(true, Ordering::Relaxed);
                let quiet: Result<(), Error> = noisy.join().unwrap_or(Ok(()));
                quiet.and(done)
            })
        }
    }
}
