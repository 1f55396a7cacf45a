//! A plugin that misbehaves; see [`plugind_hostile`].

use std::process::ExitCode;

fn main() -> ExitCode {
    if plugind_hostile::probe::asked_to_say_ok() {
        println!("ok");
        return ExitCode::SUCCESS;
    }
    match plugind_hostile::serve::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(cause) => {
            eprintln!("hostile-plugin: {cause}");
            ExitCode::from(9)
        }
    }
}
