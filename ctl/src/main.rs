//! `pluginctl`: the systemctl of plugins.
//!
//! It asks the supervisor over D-Bus and shows the answers; it holds no state and no rights of its own.

mod bundle;
mod bus;
mod cli;
mod colour;
mod escape;
mod human;
mod interrupts;
mod json;
mod model;
mod output;
mod page;
mod private;
mod report;
mod table;
mod terminal;
mod verbs;

use std::process::ExitCode;

use plugind_protocol::Error;

use crate::output::Context;

fn main() -> ExitCode {
    let cli = cli::parse();
    let context = Context::new(&cli.shared);
    let code = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(verbs::run(&context, cli.verb)),
        Err(cause) => context.fail(&Error::internal(format!("no event loop: {cause}"))),
    };
    ExitCode::from(code)
}
