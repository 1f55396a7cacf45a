//! The gate before bubblewrap, and the last layers inside it.
//!
//! One static binary plays four parts of a plugin's start: `gate` is the process that is put into the scope before
//! anything untrusted runs, `enter` restricts itself inside bubblewrap and becomes the plugin, `probe` tells what
//! this kernel offers, and `canary` is a plugin that looks around for `pluginctl doctor`.

mod canary;
mod elf;
mod enter;
mod entry;
mod fds;
mod gate;
mod landlock;
mod limits;
mod options;
mod probe;
mod report;
mod seccomp;
mod sys;

use std::process::ExitCode;

use options::Command;

/// Exit status after wrong use, as clap's and getopt's programs have it.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    match options::parse(std::env::args_os().skip(1)) {
        Ok(Command::Gate(options)) => gate::run(&options),
        Ok(Command::Enter(options)) => enter::run(&options),
        Ok(Command::Probe) => print(&probe::run().to_string()),
        Ok(Command::Policy) => print(&seccomp::describe().to_string()),
        Ok(Command::Canary) => canary::run(),
        Ok(Command::Help) => print(options::HELP.trim_end()),
        Ok(Command::Version) => print(concat!("plugind-sandbox ", env!("CARGO_PKG_VERSION"))),
        Err(usage) => {
            report::complain(format_args!("cannot be used so: {usage}; see plugind-sandbox --help"));
            ExitCode::from(USAGE)
        }
    }
}

/// Prints one answer; a reader that is gone is a failure, not a panic.
fn print(text: &str) -> ExitCode {
    use std::io::Write;
    match writeln!(std::io::stdout(), "{text}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
