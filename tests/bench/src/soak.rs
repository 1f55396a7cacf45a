//! Many calls of mixed sizes from many callers: nothing may be lost, duplicated, crossed or changed.

mod caller;
mod random;

use std::thread;
use std::time::Instant;

use crate::Error;
use crate::bus::Bus;
use crate::plugins::Plugins;
use crate::programs::Programs;
use crate::sample::rate;
use caller::{Caller, Count};

/// Every caller calls all of them in one channel, so that answers could be crossed between plugins, too.
const PLUGINS: usize = 4;

/// Does so many calls and says what came of them; an error if anything was wrong.
pub fn run(calls: u64, callers: u64, seed: u64) -> Result<(), Error> {
    let programs = Programs::find()?;
    let mut plugins = Plugins::new(&programs)?;
    let names: Vec<String> = (0..PLUGINS).map(|number| format!("soak-{number}")).collect();
    let names = plugins.add_all(&names, "1M")?;
    let bus = Bus::connect()?;
    let channel: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut all = Vec::new();
    for number in 0..callers {
        let share = calls / callers + u64::from(number < calls % callers);
        let stream = bus.channel_stream(&channel)?;
        all.push(Caller::new(stream, &channel, share, seed.wrapping_mul(0x1_0001).wrapping_add(number))?);
    }
    let start = Instant::now();
    let mut total = Count::default();
    thread::scope(|scope| {
        let running: Vec<_> = all.into_iter().map(|caller| scope.spawn(|| caller.run())).collect();
        for caller in running {
            match caller.join() {
                Ok(Ok(count)) => total.add(count),
                Ok(Err(cause)) => total.fail(cause.to_string()),
                Err(_) => total.fail("a caller panicked".to_owned()),
            }
        }
    });
    let time = start.elapsed();
    println!(
        "{} calls, {} bytes of arguments, {:.1} s, {:.0} calls/s, {:.1} MiB/s each way",
        total.answered,
        total.bytes,
        time.as_secs_f64(),
        rate(usize::try_from(total.answered).unwrap_or(usize::MAX), time),
        rate(usize::try_from(total.bytes >> 20).unwrap_or(usize::MAX), time),
    );
    println!(
        "lost {}, duplicated or for nobody {}, crossed or changed {}, failed {}",
        total.lost, total.stray, total.wrong, total.failed
    );
    match total.example {
        None if total.answered == calls => Ok(()),
        None => Err(Error::Answer(format!("{} of {calls} calls were answered", total.answered))),
        Some(example) => Err(Error::Answer(example)),
    }
}
