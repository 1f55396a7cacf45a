//! `call --stream`: what a command gives while it works, and its result.

use plugind_protocol::Error;
use plugind_sdk::client::Event;
use serde_json::value::RawValue;

use super::DONE;
use crate::bus::{self, CallOptions, Client};
use crate::json::{self, Layout};
use crate::output::Context;

/// How many chunks the plugin may be ahead of standard output.
const WINDOW: u32 = 64;

/// Calls over a channel and prints as it comes. Where the reader goes away, the call is cancelled.
pub(super) async fn print(
    context: &Context,
    client: &Client,
    plugin: &str,
    command: &str,
    arguments: &str,
    how: CallOptions,
) -> Result<u8, Error> {
    let channel = client.channel(&[plugin]).await?;
    let arguments: &RawValue = serde_json::from_str(arguments)
        .map_err(|cause| Error::internal(format!("arguments became unreadable: {cause}")))?;
    let mut invoke = channel.invoke(plugin, command, arguments).dry_run(how.dry_run).stream(WINDOW);
    if let Some(timeout) = how.timeout {
        invoke = invoke.timeout(timeout);
    }
    bus::in_time(how.deadline, "calling the command", async {
        let mut invocation = invoke.start().await?;
        loop {
            match invocation.next().await {
                Event::Chunk(data) => show(context, "chunk", &data)?,
                Event::Progress(data) if context.is_json() => show(context, "progress", &data)?,
                Event::Progress(data) => {
                    context.note(&format!("progress: {}", json::lay_out(data.get(), Layout::Compact)));
                }
                Event::Done(result) if context.is_json() => {
                    show(context, "result", &result?)?;
                    return Ok(DONE);
                }
                Event::Done(result) => {
                    context.raw_json(result?.get())?;
                    return Ok(DONE);
                }
            }
            if context.reader_gone() {
                return Ok(DONE);
            }
        }
    })
    .await
}

/// One line on standard output; with `-o json` it says what it is.
fn show(context: &Context, what: &str, data: &RawValue) -> Result<(), Error> {
    let data = json::lay_out(data.get(), Layout::Compact);
    let line = if context.is_json() { format!("{{\"{what}\":{data}}}\n") } else { format!("{data}\n") };
    context.print(&line)
}
