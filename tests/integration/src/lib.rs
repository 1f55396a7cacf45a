//! What the tests on the stage share: the test user, bundles to try, `pluginctl` as its user has it.
//!
//! The tests run as root in the stage, so that they can set faults up; every command of plugind runs as the test
//! user. See `tests/stage/stage`.

#![allow(
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    reason = "a test helper panics to fail its test"
)]

pub mod archive;
pub mod bundle;
pub mod channel;
pub mod ctl;
pub mod installed;
pub mod memory;
pub mod plugind;
pub mod probe;
pub mod root;
pub mod scopes;
pub mod trial;
pub mod user;
pub mod wait;

pub use bundle::Bundle;
pub use channel::Wire;
pub use ctl::{Outcome, ctl, run};
pub use installed::Installed;
pub use plugind::Plugind;
pub use probe::{Outside, Report};
pub use root::Root;
pub use trial::{trial, trial_with};
pub use wait::until;
