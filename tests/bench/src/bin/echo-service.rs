//! The floor of a D-Bus call: a service of one method, made of the same parts as the supervisor, that does nothing.

use std::collections::HashMap;

use plugind_bench::bus::{ECHO_SERVICE, PATH};
use zbus::OwnedVariant;

struct Echo;

/// The supervisor's `Call`, answered with its own arguments.
#[zbus::interface(name = "org.plugind1.Manager")]
impl Echo {
    #[zbus(out_args("result"))]
    #[expect(clippy::unused_self, reason = "a method of the bus is a method")]
    fn call(
        &self,
        plugin: String,
        command: String,
        arguments: String,
        options: HashMap<String, OwnedVariant>,
    ) -> String {
        drop((plugin, command, options));
        arguments
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> zbus::Result<()> {
    let connection = zbus::connection::Builder::session().serve_at(PATH, Echo).build().await?;
    connection.request_name(ECHO_SERVICE).await?;
    connection.closed().await;
    Ok(())
}
