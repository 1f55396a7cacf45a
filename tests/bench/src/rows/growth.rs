//! What a call costs when there are many plugins, and many callers.

use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::Bench;
use super::channel::SMALL;
use crate::Error;
use crate::client::{Client, Frame};
use crate::report::Growth;
use crate::sample::{Samples, median, rate};

const FRAME_MAX: &str = "64K";
const MANY_CALLERS: usize = 64;
/// Nobody may be silent for so long.
const PATIENCE_MS: u16 = 30_000;

pub(super) fn measure(bench: &mut Bench) -> Result<(), Error> {
    let outcome = grow(bench);
    // What was measured before a failure counts.
    compare(bench);
    outcome
}

fn grow(bench: &mut Bench) -> Result<(), Error> {
    let sizes: &[usize] = if bench.quick { &[1, 10] } else { &[1, 10, 100, 300] };
    let mut plugins: Vec<String> = Vec::new();
    for &size in sizes {
        let more: Vec<String> = (plugins.len()..size).map(|number| format!("grow-{number}")).collect();
        let more = bench.plugins.add_all(&more, FRAME_MAX)?;
        for plugin in &more {
            bench.bus.start(plugin)?;
        }
        plugins.extend(more);
        let is_edge = size == 1 || Some(&size) == sizes.last();
        let callers: &[usize] = if is_edge { &[1, 4, 16, MANY_CALLERS] } else { &[1, MANY_CALLERS] };
        for &callers in callers {
            // Those that were started last have the longest way in every list.
            let last = plugins.last().cloned().into_iter().collect::<Vec<_>>();
            let row = Growth { plugins: size, ..call(bench, &last, callers)? };
            eprintln!("{size} plugins, {callers} callers: {:.0} calls/s", row.calls_per_second);
            bench.report.growth.push(row);
        }
        // Many processes that take turns cost the machine more, whoever stands between: for information.
        let spread = call(bench, &plugins, MANY_CALLERS)?.calls_per_second;
        bench.report.raw(&format!("spread_over_{size}_plugins_calls_per_second"), spread);
    }
    Ok(())
}

/// Both ends of both scales.
fn compare(bench: &mut Bench) {
    let rows = bench.report.growth.clone();
    let most = rows.iter().map(|row| row.plugins).max().unwrap_or(1);
    let find = |plugins, callers| rows.iter().find(|row| row.plugins == plugins && row.callers == callers);
    if let (Some(one), Some(many)) = (find(1, 1), find(most, 1)) {
        bench.report.value("growth_plugins_ratio", many.p50_us / one.p50_us);
    }
    let worst = [1, most]
        .into_iter()
        .filter_map(|plugins| Some((find(plugins, 1)?, find(plugins, MANY_CALLERS)?)))
        .map(|(one, many)| one.calls_per_second / many.calls_per_second)
        .reduce(f64::max);
    if let Some(worst) = worst {
        bench.report.value("growth_callers_ratio", worst);
    }
}

/// So many callers with a channel each, spread over the plugins; each calls when it has its answer.
fn call(bench: &Bench, plugins: &[String], callers: usize) -> Result<Growth, Error> {
    let mut all = Vec::new();
    for number in 0..callers {
        let plugin = &plugins[plugins.len() - 1 - number % plugins.len()];
        all.push(Caller {
            client: bench.bus.channel(&[plugin])?,
            frame: Frame::echo(plugin, SMALL),
            sent: Instant::now(),
        });
    }
    let calls = bench.either(4000, 15_000);
    round(&mut all, calls / 4)?;
    let (mut p50, mut rates) = (Vec::new(), Vec::new());
    for _ in 0..bench.either(3, 5) {
        let (mut samples, time) = round(&mut all, calls)?;
        p50.push(samples.percentile(50));
        rates.push(rate(calls, time));
    }
    Ok(Growth { plugins: plugins.len(), callers, p50_us: median(&p50), calls_per_second: median(&rates) })
}

struct Caller {
    client: Client,
    frame: Frame,
    sent: Instant,
}

/// One thread is all callers, so that the machine's scheduler is measured as little as can be.
fn round(callers: &mut [Caller], calls: usize) -> Result<(Samples, Duration), Error> {
    let start = Instant::now();
    let mut samples = Samples::default();
    let mut left = calls;
    let mut waiting = 0;
    for caller in callers.iter_mut().take(calls) {
        caller.sent = Instant::now();
        caller.client.send(&mut caller.frame)?;
        waiting += 1;
        left -= 1;
    }
    while waiting > 0 {
        for index in ready(callers)? {
            let caller = &mut callers[index];
            if caller.client.receive(&caller.frame)? == 0 {
                continue;
            }
            samples.push(caller.sent.elapsed());
            if left == 0 {
                waiting -= 1;
                continue;
            }
            left -= 1;
            caller.sent = Instant::now();
            caller.client.send(&mut caller.frame)?;
        }
    }
    Ok((samples, start.elapsed()))
}

/// Those that have something to read.
fn ready(callers: &[Caller]) -> Result<Vec<usize>, Error> {
    let mut fds: Vec<PollFd> =
        callers.iter().map(|caller| PollFd::new(caller.client.as_fd(), PollFlags::POLLIN)).collect();
    match poll(&mut fds, PollTimeout::from(PATIENCE_MS)) {
        Ok(0) => Err(Error::Answer("no caller was answered for 30 s".to_owned())),
        Ok(_) | Err(Errno::EINTR) => {
            Ok((0..fds.len()).filter(|&index| fds[index].any().unwrap_or(false)).collect())
        }
        Err(cause) => Err(Error::io("cannot wait for answers")(cause.into())),
    }
}
