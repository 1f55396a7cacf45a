//! `top`: the plugins' calls and resources as they change.

mod live;
mod rates;
mod show;
mod sort;

use std::time::Instant;

use plugind_protocol::{Error, Kind};

use super::{DONE, client};
use crate::bus::Client;
use crate::cli::{SortKey, TopArgs};
use crate::json::{self, Layout};
use crate::model::Plugin;
use crate::output::Context;
use crate::terminal::Screen;

use rates::Round;

pub(super) async fn run(context: &Context, args: &TopArgs) -> Result<u8, Error> {
    let client = client(context).await?;
    let watch = Watch { client: &client, names: &args.names };
    if Screen::is_possible() && !context.is_json() {
        live::run(context, args, &watch).await
    } else {
        rounds(context, args, &watch).await
    }
}

/// In a pipe each round follows the last one.
async fn rounds(context: &Context, args: &TopArgs, watch: &Watch<'_>) -> Result<u8, Error> {
    let mut last = watch.first().await?;
    for _ in 0..args.rounds.unwrap_or(1) {
        tokio::time::sleep(args.delay).await;
        let now = watch.again().await?;
        let round = round(&last, &now, args.sort);
        if context.is_json() {
            let text = serde_json::to_string(&round)
                .map_err(|cause| Error::internal(format!("cannot write the round as JSON: {cause}")))?;
            context.print(&format!("{}\n", json::lay_out(&text, Layout::Compact)))?;
        } else {
            context.print(&show::plain(&round))?;
        }
        if context.reader_gone() {
            break;
        }
        last = now;
    }
    Ok(DONE)
}

/// What came between two looks, sorted.
fn round(last: &Look, now: &Look, key: SortKey) -> Round {
    let mut round = Round::between(&last.plugins, &now.plugins, now.at.duration_since(last.at));
    sort::sort(&mut round.plugins, key);
    round
}

/// The plugins at a moment.
struct Look {
    at: Instant,
    plugins: Vec<Plugin>,
}

/// Whom to look at.
struct Watch<'a> {
    client: &'a Client,
    names: &'a [String],
}

impl Watch<'_> {
    /// A name that nobody has is an error at first.
    async fn first(&self) -> Result<Look, Error> {
        self.look(false).await
    }

    /// Later on, what was removed is left out as long as there is something else.
    async fn again(&self) -> Result<Look, Error> {
        self.look(true).await
    }

    async fn look(&self, forgiving: bool) -> Result<Look, Error> {
        if self.names.is_empty() {
            let plugins = self.client.plugins().await?;
            return Ok(Look { at: Instant::now(), plugins });
        }
        let mut plugins = Vec::new();
        let mut missing = None;
        for name in self.names {
            match self.client.plugin(name).await {
                Ok(plugin) => plugins.push(plugin),
                Err(error) if forgiving && error.kind == Kind::NoSuchPlugin => missing = Some(error),
                Err(error) => return Err(error),
            }
        }
        match missing {
            Some(error) if plugins.is_empty() => Err(error),
            _ => Ok(Look { at: Instant::now(), plugins }),
        }
    }
}
