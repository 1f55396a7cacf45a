//! The order in which the last layers go on; each step assumes the ones before it.

use std::convert::Infallible;
use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;

use nix::errno::Errno;
use nix::sys::prctl;

use crate::entry::Entry;
use crate::options::{BundleId, Enter};
use crate::report::{Failure, Report, Step};
use crate::{fds, landlock, limits, seccomp, sys};

/// The sandbox is not complete; nothing of the plugin ran.
const REFUSED: u8 = 125;

/// Where the launcher binds the plugin's bundle.
const BUNDLE: &str = "/plugin";

/// Restricts this process and becomes the plugin. Returns only on failure.
pub(crate) fn run(options: &Enter) -> ExitCode {
    let (report, failure) = match Report::open(options.report) {
        Ok(report) => match enter(options, &report) {
            Ok(never) => match never {},
            Err(failure) => (report, failure),
        },
        Err(failure) => (Report::to_stderr(), failure),
    };
    report.failed(&failure);
    ExitCode::from(REFUSED)
}

fn enter(options: &Enter, report: &Report) -> Result<Infallible, Failure> {
    // Whatever is opened from here on closes on exec, so that the plugin has 0, 1 and 2 and nothing else.
    fds::close_all_but(options.report)?;
    if let Some(expected) = options.bundle {
        check_bundle(expected)?;
    }
    let entry = Entry::open(&options.program, options.entry_sha256)?;
    limits::apply(options.nofile)?;
    // Landlock and seccomp both ask for it.
    no_new_privs()?;
    let support = landlock::probe(options.network)?;
    landlock::restrict(&support, &options.rules, options.network)?;
    sys::reset_signals();
    report.ready(support.abi, &support.not_handled(options.network))?;
    // Last, because it refuses some of the calls above. From here on there are only `execve` and a failure's packet.
    seccomp::install()?;
    Err(entry.exec())
}

/// The name that was bound is the directory that was verified: the store's copy was not exchanged in between.
fn check_bundle(expected: BundleId) -> Result<(), Failure> {
    let found = std::fs::metadata(BUNDLE).map_err(|error| {
        Failure::new(
            Step::Bundle,
            error.raw_os_error().map(Errno::from_raw),
            "there is no /plugin in the sandbox",
        )
    })?;
    if (found.dev(), found.ino()) == (expected.device, expected.inode) {
        return Ok(());
    }
    let message = format!(
        "/plugin is not the bundle that was verified: it is {}:{} and should be {}:{}",
        found.dev(),
        found.ino(),
        expected.device,
        expected.inode
    );
    Err(Failure::new(Step::Bundle, None, message))
}

fn no_new_privs() -> Result<(), Failure> {
    match prctl::set_no_new_privs().and_then(|()| prctl::get_no_new_privs()) {
        Ok(true) => Ok(()),
        Ok(false) => {
            Err(Failure::new(Step::NoNewPrivs, None, "this kernel accepts no_new_privs and does not keep it"))
        }
        Err(errno) => Err(Failure::new(Step::NoNewPrivs, Some(errno), "this kernel refuses no_new_privs")),
    }
}
