//! A plugin in the making: its manifest, its commands.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::Arc;

use plugind_protocol::Manifest;
use plugind_protocol::manifest::Protocol;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::to_raw_value;

use crate::call::Call;
use crate::error::Error;
use crate::failure::{Failure, code};
use crate::server::Server;
use crate::stdio;
use crate::worker::Handler;

/// How many commands run at a time, unless the author says otherwise: the smallest `tasks_max` has room for them.
const WORKERS_DEFAULT: usize = 4;

/// A plugin: what it is, by its manifest, and what it does, by its commands.
pub struct Plugin {
    manifest: Manifest,
    handlers: BTreeMap<String, Handler>,
    given_twice: Vec<String>,
    workers: Option<usize>,
}

impl Plugin {
    /// A plugin of this `plugin.json`, usually `include_bytes!("../plugin.json")`: it attests to what was compiled in.
    pub fn from_manifest(manifest: &[u8]) -> Result<Plugin, Error> {
        let manifest = Manifest::parse(manifest)?;
        Ok(Plugin { manifest, handlers: BTreeMap::new(), given_twice: Vec::new(), workers: None })
    }

    /// Says what the command `name` does. Arguments that do not fit `A` are refused before; the result is whatever
    /// `O` is in JSON.
    #[must_use]
    pub fn command<A, O, F>(mut self, name: &str, run: F) -> Plugin
    where
        A: DeserializeOwned,
        O: Serialize,
        F: Fn(&Call, A) -> Result<O, Failure> + Send + Sync + 'static,
    {
        let handler: Handler = Arc::new(move |call, arguments| {
            let arguments = serde_json::from_str(arguments)
                .map_err(|cause| Failure::of(code::INVALID_PARAMS, format!("the arguments: {cause}")))?;
            to_raw_value(&run(call, arguments)?)
                .map_err(|cause| Failure::of(code::INTERNAL_ERROR, format!("the result: {cause}")))
        });
        if self.handlers.insert(name.to_owned(), handler).is_some() {
            self.given_twice.push(name.to_owned());
        }
        self
    }

    /// Runs up to `count` commands at a time, instead of four; never more than `in_flight`.
    #[must_use]
    pub fn workers(mut self, count: usize) -> Plugin {
        self.workers = Some(count);
        self
    }

    /// Serves on stdin and stdout until the supervisor ends it. The program's own stdout goes to stderr from here on.
    pub fn serve(self) -> Result<(), Error> {
        // Before the streams are touched, so that a broken plugin fails in its author's terminal.
        self.check_commands()?;
        let (input, output) = stdio::take()?;
        self.serve_on(input, output)
    }

    /// Serves on a pair of streams: for tests, and for programs that bring their own.
    ///
    /// ```
    /// use plugind_sdk::{Call, Error, Failure, Plugin};
    ///
    /// let manifest = br#"{
    ///     "manifest": 1, "name": "twice", "version": "1.0.0", "description": "Doubles", "protocol": "plugind/1",
    ///     "exec": ["bin/twice"], "runtime": "static",
    ///     "commands": [ { "name": "double", "description": "Doubles a number", "risk": "read-only" } ]
    /// }"#;
    /// let requests = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n";
    /// Plugin::from_manifest(manifest)?
    ///     .command("double", |_: &Call, number: i64| Ok::<_, Failure>(number * 2))
    ///     .serve_on(requests.as_bytes(), std::io::sink())?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn serve_on(self, input: impl Read, output: impl Write + Send + 'static) -> Result<(), Error> {
        self.check_commands()?;
        let workers = self.workers.unwrap_or(WORKERS_DEFAULT);
        Server::new(self.manifest, self.handlers, workers, Box::new(output)).run(input)
    }

    /// The manifest and the program describe the same commands, or nobody could rely on the review of either.
    fn check_commands(&self) -> Result<(), Error> {
        let refuse = |cause: String| Err(Error::Commands(cause));
        if self.manifest.protocol != Protocol::Plugind1 {
            return refuse("this crate speaks plugind/1, and the manifest's protocol is another".to_owned());
        }
        if let Some(name) = self.given_twice.first() {
            return refuse(format!("the command `{name}` is given to the plugin twice"));
        }
        if let Some(name) = self.handlers.keys().find(|name| self.manifest.command(name).is_none()) {
            return refuse(format!("the command `{name}` is not in the manifest"));
        }
        match self.manifest.commands.iter().find(|command| !self.handlers.contains_key(&command.name)) {
            Some(command) => refuse(format!("the manifest's command `{}` has no function", command.name)),
            None => Ok(()),
        }
    }
}
