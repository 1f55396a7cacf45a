//! The scopes of the test user's manager: nothing of a test may be left in them.

use crate::user::as_tester;
use crate::wait::until;

/// The units of a plugin that systemd still knows, failed ones included.
///
/// # Panics
/// If systemd does not answer.
#[must_use]
pub fn of(plugin: &str) -> Vec<String> {
    let pattern = format!("plugind-{plugin}-*.scope");
    let output = as_tester("systemctl")
        .args(["--user", "list-units", "--all", "--plain", "--no-legend", &pattern])
        .output()
        .expect("systemctl");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// Waits until systemd knows no unit of the plugin.
pub fn none_left(plugin: &str) {
    until(&format!("no scope of {plugin} is left"), || of(plugin).is_empty().then_some(()));
}
