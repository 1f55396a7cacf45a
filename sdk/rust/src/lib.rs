//! Write a plugind plugin in Rust.
//!
//! A plugin is a program whose stdin and stdout are its connection to the supervisor. This crate keeps that connection:
//! it attests to the manifest that was compiled in, reads requests, runs each command on a worker thread with typed
//! arguments, and answers. What is left to write is the commands:
//!
//! ```no_run
//! use plugind_sdk::{Call, Error, Failure, Level, Plugin};
//! use serde::{Deserialize, Serialize};
//!
//! // In a bundle this is `include_bytes!("../plugin.json")`.
//! const MANIFEST: &[u8] = br#"{
//!     "manifest": 1, "name": "letters", "version": "1.0.0", "description": "Counts letters",
//!     "protocol": "plugind/1", "exec": ["bin/letters"], "runtime": "static",
//!     "commands": [ { "name": "count", "description": "Counts one letter in a text", "risk": "read-only" } ]
//! }"#;
//!
//! #[derive(Deserialize)]
//! struct Args {
//!     text: String,
//!     letter: char,
//! }
//!
//! #[derive(Serialize)]
//! struct Out {
//!     count: usize,
//! }
//!
//! fn main() -> Result<(), Error> {
//!     Plugin::from_manifest(MANIFEST)?
//!         .command("count", |call: &Call, args: Args| -> Result<Out, Failure> {
//!             if !args.letter.is_alphabetic() {
//!                 return Err(Failure::new(format!("{:?} is no letter", args.letter)));
//!             }
//!             let mut count = 0;
//!             for line in args.text.lines() {
//!                 if call.is_cancelled() {
//!                     return Err(Failure::cancelled());
//!                 }
//!                 count += line.chars().filter(|&letter| letter == args.letter).count();
//!             }
//!             call.log(Level::Debug, format!("counted for {}", call.caller()));
//!             Ok(Out { count })
//!         })
//!         .serve()
//! }
//! ```
//!
//! What the crate takes care of:
//!
//! - The program's own stdout becomes stderr, so `println!` lands in the plugin's log and never between frames; its
//!   own stdin becomes `/dev/null`.
//! - A supervisor that reviewed another program is refused: the answer is an error and the program exits with 1.
//! - Commands run side by side, on four threads unless [`Plugin::workers`] says otherwise; `ping` and `$/cancel` are
//!   handled meanwhile.
//! - A panic in a command is that call's failure, and the program goes on (unless it was built with `panic = "abort"`).
//! - A result that is longer than `frame_max` becomes an error that says so.
//! - A long answer goes out in parts: [`Call::chunk`] waits while the caller is slow, [`Call::progress`] never does.
//! - At the end of stdin, calls that were accepted are finished; at `shutdown` they are cancelled.
//!
//! The other side, calling plugins, is the module `client`, with the cargo feature of that name.

mod attest;
mod call;
#[cfg(feature = "client")]
pub mod client;
mod error;
mod failure;
mod pending;
mod plugin;
mod server;
mod stdio;
mod stream;
mod worker;
mod writer;

pub use call::{Call, Level};
pub use error::Error;
pub use failure::{Failure, code};
pub use plugin::Plugin;
