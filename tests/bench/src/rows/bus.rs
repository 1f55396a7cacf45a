//! A call over D-Bus, and what the bus alone takes for it.

use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{Bench, in_turns};
use crate::Error;
use crate::bus::Service;
use crate::programs::Programs;

const ARGUMENTS: &str = r#"{"text":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}"#;
const START_PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn measure(bench: &mut Bench) -> Result<(), Error> {
    let plugin = bench.plugin()?;
    let _service = EchoService::start(bench)?;
    let calls = bench.either(300, 1000);
    let bus = &bench.bus;
    let sides = (&mut Service::Echo.clone(), &mut Service::Supervisor.clone());
    let (floor, ours) = in_turns(bench.either(5, 11), sides, |service| {
        bus.calls(*service, &plugin, ARGUMENTS, calls / 10)?;
        let mut samples = bus.calls(*service, &plugin, ARGUMENTS, calls)?;
        Ok([samples.percentile(50), samples.percentile(99)])
    })?;
    bench.report.ratio("dbus_p50_ratio", "dbus_p50", ours[0], floor[0]);
    bench.report.raw("dbus_p99_ours", ours[1]);
    bench.report.raw("dbus_p99_floor", floor[1]);
    Ok(())
}

struct EchoService(Child);

impl EchoService {
    fn start(bench: &Bench) -> Result<EchoService, Error> {
        let Programs { echo_service, .. } = &bench.programs;
        let child = Command::new(echo_service).spawn().map_err(Error::io("cannot start the echo service"))?;
        let service = EchoService(child);
        let start = Instant::now();
        while let Err(cause) = bench.bus.call(Service::Echo, "", "echo", ARGUMENTS) {
            if start.elapsed() > START_PATIENCE {
                return Err(cause);
            }
            sleep(Duration::from_millis(5));
        }
        Ok(service)
    }
}

impl Drop for EchoService {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
