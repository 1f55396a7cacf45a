//! One verb, or close family, a file. Each prints its answer and gives its exit code.

mod bench;
mod call;
mod commands;
mod describe;
mod doctor;
mod install;
mod lifecycle;
mod list;
mod logs;
mod pack;
mod permissions;
mod run;
mod status;
mod stream;
mod target;
mod top;
mod verify;

use plugind_protocol::Error;

use crate::bus::{Client, Lifecycle};
use crate::cli::Verb;
use crate::output::Context;

/// The exit code of a verb that did what it should.
const DONE: u8 = 0;

/// Carries out the verb; errors are reported here.
pub(crate) async fn run(context: &Context, verb: Verb) -> u8 {
    let outcome = match verb {
        Verb::List => list::run(context).await,
        Verb::Status(args) => status::run(context, &args).await,
        Verb::Top(args) => top::run(context, &args).await,
        Verb::Describe(args) => describe::run(context, &args.name).await,
        Verb::Commands(args) => commands::run(context, args.name.as_deref()).await,
        Verb::Logs(args) => logs::run(context, &args).await,
        Verb::Call(args) => call::run(context, &args).await,
        Verb::Install(args) => install::run(context, &args).await,
        Verb::Verify(args) => verify::run(context, &args).await,
        Verb::Permissions(args) => permissions::list(context, args.name.as_deref()).await,
        Verb::Grant(args) => permissions::grant(context, &args).await,
        Verb::Revoke(args) => permissions::revoke(context, &args).await,
        Verb::Remove(args) => {
            let what = [Lifecycle::Remove { keep_data: args.keep_data }];
            lifecycle::run(context, &args.names, &what).await
        }
        Verb::Enable(args) => {
            lifecycle::with_now(context, &args, [Lifecycle::Enable, Lifecycle::Start]).await
        }
        Verb::Disable(args) => {
            lifecycle::with_now(context, &args, [Lifecycle::Disable, Lifecycle::Stop]).await
        }
        Verb::Start(args) => lifecycle::run(context, &args.names, &[Lifecycle::Start]).await,
        Verb::Stop(args) => lifecycle::run(context, &args.names, &[Lifecycle::Stop]).await,
        Verb::Restart(args) => lifecycle::run(context, &args.names, &[Lifecycle::Restart]).await,
        Verb::Kill(args) => lifecycle::kill(context, &args).await,
        Verb::Run(args) => run::run(context, &args).await,
        Verb::Pack(args) => pack::run(context, &args),
        Verb::Bench(args) => bench::run(context, &args).await,
        Verb::Doctor(args) => doctor::run(context, &args).await,
    };
    outcome.unwrap_or_else(|error| context.fail(&error))
}

/// The supervisor on the session bus.
async fn client(context: &Context) -> Result<Client, Error> {
    Client::session(context.deadline()).await
}
