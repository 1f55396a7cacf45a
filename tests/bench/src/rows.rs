//! The rows of the table, each measured in rounds that take turns with its floor.

mod bus;
mod channel;
mod cold;
mod flood;
mod growth;
mod memory;
mod neighbours;

use std::time::Instant;

use crate::Error;
use crate::bus::Bus;
use crate::plugins::Plugins;
use crate::programs::Programs;
use crate::report::Report;
use crate::sample::median;

/// The plugin that most rows call; its frames hold 1 MiB of arguments.
const PLUGIN: &str = "plugin";
const FRAME_MAX: &str = "2M";

/// No row of the table; measured when it is asked for.
const NOISE: &str = "noise";

/// A run.
pub struct Bench {
    programs: Programs,
    bus: Bus,
    plugins: Plugins,
    report: Report,
    quick: bool,
}

impl Bench {
    /// Nothing is measured yet.
    pub fn new(commit: String, quick: bool) -> Result<Bench, Error> {
        let programs = Programs::find()?;
        let plugins = Plugins::new(&programs)?;
        Ok(Bench { bus: Bus::connect()?, plugins, programs, report: Report::new(commit, quick), quick })
    }

    /// Measures all rows, or the one of that name.
    pub fn run(mut self, only: Option<&str>) -> Report {
        type Measure = fn(&mut Bench) -> Result<(), Error>;
        // Memory first, while few plugins are installed; growth last, which installs most.
        let rows: [(&str, Measure); 9] = [
            ("memory", memory::measure),
            ("channel", channel::measure),
            ("dbus", bus::measure),
            ("cold", cold::measure_start),
            ("spawn", cold::measure_spawn),
            ("flood", flood::measure),
            ("neighbours", neighbours::measure),
            ("growth", growth::measure),
            (NOISE, channel::measure_noise),
        ];
        for (name, measure) in rows {
            if only.map_or(name == NOISE, |only| only != name) {
                continue;
            }
            let start = Instant::now();
            if let Err(cause) = measure(&mut self) {
                eprintln!("{name}: skipped: {cause}");
                self.report.skipped.insert(name.to_owned(), cause.to_string());
            }
            eprintln!("{name}: {:.1} s", start.elapsed().as_secs_f64());
        }
        self.report
    }

    /// One number in a short run, another in a full one.
    fn either(&self, quick: usize, full: usize) -> usize {
        if self.quick { quick } else { full }
    }

    /// The plugin that most rows call, installed by the first that asks.
    fn plugin(&mut self) -> Result<String, Error> {
        let name = format!("bench-{PLUGIN}");
        if self.plugins.has(&name) { Ok(name) } else { self.plugins.add(PLUGIN, FRAME_MAX) }
    }
}

/// Measures two sides in turns, so that what changes meanwhile changes both: the medians of each number over the rounds,
/// the floor's and ours.
fn in_turns<S, const N: usize>(
    rounds: usize,
    (floor, ours): (&mut S, &mut S),
    mut measure: impl FnMut(&mut S) -> Result<[f64; N], Error>,
) -> Result<([f64; N], [f64; N]), Error> {
    let (mut of_floor, mut of_ours) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        // Neither of them always goes first.
        if round % 2 == 0 {
            of_floor.push(measure(floor)?);
            of_ours.push(measure(ours)?);
        } else {
            of_ours.push(measure(ours)?);
            of_floor.push(measure(floor)?);
        }
    }
    Ok((medians(&of_floor), medians(&of_ours)))
}

fn medians<const N: usize>(rounds: &[[f64; N]]) -> [f64; N] {
    std::array::from_fn(|number| median(&rounds.iter().map(|round| round[number]).collect::<Vec<_>>()))
}
