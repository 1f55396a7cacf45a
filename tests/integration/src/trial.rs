//! `pluginctl run` where something is broken: it has a runtime directory of its own, so that what it leaves is seen.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use crate::bundle::{Bundle, own};
use crate::ctl::Outcome;
use crate::scopes;
use crate::user::as_tester_through;

static COUNT: AtomicU32 = AtomicU32::new(0);

/// Runs one command of a bundle by a private supervisor, started through other programs that run as root.
///
/// # Panics
/// If a scope, a state directory or anything else is left of it.
#[must_use]
pub fn trial(outer: &[&str], bundle: &Bundle, command: &str, arguments: &Value) -> Outcome {
    trial_with(outer, bundle, command, arguments, |_| {})
}

/// The same with a change of the environment.
///
/// # Panics
/// If a scope, a state directory or anything else is left of it.
#[must_use]
pub fn trial_with(
    outer: &[&str],
    bundle: &Bundle,
    command: &str,
    arguments: &Value,
    change: impl FnOnce(&mut Command),
) -> Outcome {
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder = PathBuf::from(format!("/tmp/trial-{}-{number}", std::process::id()));
    fs::create_dir(&folder).expect("a new folder in /tmp");
    own(&folder, 0o700);
    let mut pluginctl = as_tester_through(outer, "pluginctl");
    // `TMPDIR` is used where there is no runtime directory.
    pluginctl.env("XDG_RUNTIME_DIR", &folder).env("TMPDIR", &folder);
    change(&mut pluginctl);
    pluginctl.args(["-o", "json", "run", bundle.path(), &bundle.command(command)]);
    pluginctl.args(["--args", &arguments.to_string()]);
    let outcome = Outcome::of(&mut pluginctl);
    let left: Vec<_> =
        fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    let _ = fs::remove_dir(&folder);
    // Shown if there is something left.
    println!("{}{}", outcome.stdout, outcome.stderr);
    scopes::none_left(bundle.name());
    outcome
}
