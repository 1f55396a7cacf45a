//! The table on a terminal, drawn anew each round, at each key and when the window changes.

use plugind_protocol::Error;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep_until};

use super::rates::Round;
use super::show::{self, Frame};
use super::{DONE, Watch, sort};
use crate::cli::TopArgs;
use crate::interrupts::{self, Interrupts};
use crate::output::Context;
use crate::terminal::{Key, Screen};

pub(super) async fn run(context: &Context, args: &TopArgs, watch: &Watch<'_>) -> Result<u8, Error> {
    // Before the screen is taken over: what goes wrong here is said on the ordinary one.
    let mut interrupts = Interrupts::listen()?;
    let mut resized = signal(SignalKind::window_change())
        .map_err(|cause| Error::internal(format!("cannot wait for signals: {cause}")))?;
    let mut last = watch.first().await?;

    let mut screen = Screen::enter()?;
    let mut frame = Frame {
        style: context.style,
        legend: context.legend,
        sort: args.sort,
        delay: args.delay,
        keys: screen.has_keys(),
    };
    let mut round = Round::first(&last.plugins);
    let mut rounds = 0;
    while args.rounds.is_none_or(|most| rounds < most) {
        let next = Instant::now() + args.delay;
        let look = async {
            sleep_until(next).await;
            watch.again().await
        };
        tokio::pin!(look);
        let now = loop {
            sort::sort(&mut round.plugins, frame.sort);
            screen.draw(&show::window(&round, &frame, Screen::height()))?;
            tokio::select! {
                now = &mut look => break now?,
                key = screen.key() => match key? {
                    Key::Letter('q' | 'Q') => return Ok(DONE),
                    Key::Interrupt => return Ok(interrupts::exit_code(SignalKind::interrupt().as_raw_value())),
                    Key::Letter(letter) => frame.sort = sort::by_letter(letter).unwrap_or(frame.sort),
                },
                number = interrupts.next() => return Ok(interrupts::exit_code(number)),
                _ = resized.recv() => {}
            }
        };
        round = super::round(&last, &now, frame.sort);
        last = now;
        rounds += 1;
    }
    // The screen goes with all that was on it, so the last round is printed once more.
    drop(screen);
    let lines = show::whole(&round, &frame);
    context.print(&format!("{}\n", lines.join("\n")))?;
    Ok(DONE)
}
