//! Runs a command in which chosen system calls fail; see [`plugind_hostile::fault`].

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use plugind_hostile::fault::Plan;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let plan = match Plan::parse(&arguments) {
        Ok(plan) => plan,
        Err(cause) => {
            eprintln!("fault-errno: {cause}");
            eprintln!(
                "usage: fault-errno SYSCALL[:ARGn[&MASK]=VALUE,…] ERRNO [more pairs] -- COMMAND [ARG…]"
            );
            return ExitCode::from(2);
        }
    };
    if let Err(cause) = plan.install() {
        eprintln!("fault-errno: the filter cannot be installed: {cause}");
        return ExitCode::from(126);
    }
    let cause = Command::new(&plan.command[0]).args(&plan.command[1..]).exec();
    eprintln!("fault-errno: {}: {cause}", plan.command[0]);
    ExitCode::from(127)
}
