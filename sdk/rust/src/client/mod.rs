//! Call the commands of plugins: the other side of a channel.
//!
//! A [`Channel`] is one socket to plugind for one or more plugins; any number of calls are on their way over it at a
//! time, and their answers come in any order.
//!
//! ```no_run
//! use plugind_sdk::client::{Channel, Error, Event};
//! use serde_json::{json, value::to_raw_value};
//!
//! # async fn example() -> Result<(), Error> {
//! let channel = Channel::open(&["textstats"]).await?;
//!
//! let sizes: serde_json::Value = channel.call("textstats", "count", &json!({"text": "Grüße"})).await?;
//! println!("{}", sizes["graphemes"]);
//!
//! // A long answer in parts: no more than 16 of them are on their way at a time.
//! let arguments = to_raw_value(&json!({"text": "one\ntwo\n"})).expect("a text is JSON");
//! let mut lines = channel.invoke("textstats", "lines", &arguments).stream(16).start().await?;
//! loop {
//!     match lines.next().await {
//!         Event::Progress(data) => eprintln!("{data}"),
//!         Event::Chunk(data) => println!("{data}"),
//!         Event::Done(result) => break println!("{}", result?),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A call that nobody waits for any more is cancelled: drop its future, or its [`Invocation`]. When the channel ends,
//! because plugind stopped or the reader was too slow, every open call fails with
//! [`Kind::Unavailable`]; the way on is another [`Channel::open`].

mod calls;
mod channel;
mod events;
mod fault;
mod invoke;
mod open;
mod reader;
mod writer;

pub use channel::Channel;
pub use events::Event;
pub use invoke::{Invocation, Invoke};
pub use plugind_protocol::{Error, Kind};

#[cfg(test)]
mod tests;
