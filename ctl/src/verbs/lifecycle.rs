//! `start stop restart kill enable disable remove`: silent where all goes well.

use nix::sys::signal::Signal;
use plugind_protocol::{Error, Kind};

use super::{DONE, client};
use crate::bus::Lifecycle;
use crate::cli::{EnableArgs, KillArgs};
use crate::output::Context;

/// The highest signal number of Linux.
const SIGNAL_MAX: i32 = 64;

/// Does each of `what` to each plugin. One plugin's error does not spare the others; the first one's exit code stands.
pub(super) async fn run(context: &Context, names: &[String], what: &[Lifecycle]) -> Result<u8, Error> {
    let client = client(context).await?;
    let mut code = DONE;
    for name in names {
        for what in what {
            if let Err(error) = client.lifecycle(name, *what).await {
                let failed = context.fail(&error);
                code = if code == DONE { failed } else { code };
                break;
            }
        }
    }
    Ok(code)
}

/// The first step, and the second with `--now`.
pub(super) async fn with_now(
    context: &Context,
    args: &EnableArgs,
    steps: [Lifecycle; 2],
) -> Result<u8, Error> {
    run(context, &args.names, &steps[..if args.now { 2 } else { 1 }]).await
}

pub(super) async fn kill(context: &Context, args: &KillArgs) -> Result<u8, Error> {
    let signal = signal_number(&args.signal)?;
    run(context, &args.names, &[Lifecycle::Kill(signal)]).await
}

/// A signal by its number, or its name with or without `SIG`.
fn signal_number(text: &str) -> Result<i32, Error> {
    let upper = text.to_ascii_uppercase();
    let name = if upper.starts_with("SIG") { upper } else { format!("SIG{upper}") };
    let number = match text.parse::<i32>() {
        Ok(number) => (1..=SIGNAL_MAX).contains(&number).then_some(number),
        Err(_) => name.parse::<Signal>().ok().map(|signal| signal as i32),
    };
    number.ok_or_else(|| {
        Error::new(
            Kind::InvalidArguments,
            format!("`{text}` is no signal"),
            "give a name such as TERM, KILL or HUP, or a number from 1 to 64",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_by_name_and_number() {
        for (text, number) in [("TERM", 15), ("SIGKILL", 9), ("hup", 1), ("15", 15), ("64", 64)] {
            assert_eq!(signal_number(text), Ok(number), "{text}");
        }
        for text in ["", "0", "65", "-9", "NOPE", "SIG"] {
            assert_eq!(signal_number(text).unwrap_err().kind, Kind::InvalidArguments, "{text}");
        }
    }
}
