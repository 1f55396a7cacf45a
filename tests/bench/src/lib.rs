//! What the relay costs: a client, the floor that it is compared with, and the rows of the table.
//!
//! Everything is measured as a ratio to something that the same run measured in turns with it; `docs/performance.md`
//! says how and why.

pub mod bare;
pub mod bus;
pub mod client;
pub mod error;
pub mod floor;
pub mod machine;
pub mod plugins;
pub mod programs;
pub mod report;
pub mod rows;
pub mod sample;
pub mod scopes;
pub mod soak;
pub mod supervisor;
pub mod table;

pub use error::Error;
