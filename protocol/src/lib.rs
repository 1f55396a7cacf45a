//! The words that plugind's processes and its plugins exchange; no I/O.

pub mod digest;
pub mod envelope;
pub mod error;
pub mod frame;
pub mod launch;
pub mod manifest;
pub mod name;
pub mod permission;
pub mod schema;
pub mod strict;
mod text;

pub use digest::BundleDigest;
pub use envelope::{Envelope, Id, RpcError};
pub use error::{Error, Kind};
pub use frame::{Decoder, FrameError};
pub use manifest::{Manifest, ManifestError};
pub use permission::Permission;
