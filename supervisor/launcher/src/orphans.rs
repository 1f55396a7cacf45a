//! Scopes whose launcher is gone: a launcher that was killed could not end its plugins.
//!
//! Nobody holds the pipes of such a plugin any more, so it is ended before the first request is taken. The scope's
//! description names its launcher; a scope of a launcher that lives (that of a `pluginctl run`) is left alone.

use std::fs;

use plugind_protocol::launch::is_unit_name;
use tokio::time::timeout;

use crate::cgroup::Cgroup;
use crate::instance::KILL_DEADLINE;
use crate::scope::{JOB_DEADLINE, ScopeUnit, ServiceManager};

/// Before the launcher's process id in a description.
const MARK: &str = ", launched by process ";

/// The kernel cuts a process's name to 15 bytes.
const COMM: &str = "plugind-launche";

/// The description of a scope.
pub(crate) fn description(name: &str, instance: &str) -> String {
    format!("Plugin {name} ({instance}){MARK}{}", std::process::id())
}

/// Ends the orphans.
pub(crate) async fn end<M: ServiceManager>(manager: &M) {
    let units = match timeout(JOB_DEADLINE, manager.scopes()).await {
        Ok(Ok(units)) => units,
        Ok(Err(cause)) => {
            return tracing::error!("cannot look for plugins of an earlier launcher: {cause:?}");
        }
        Err(_) => return tracing::error!("the user manager does not list its scopes"),
    };
    for unit in units.iter().filter(|unit| is_orphan(unit, lives)) {
        tracing::warn!(unit = unit.name, "ending a plugin whose launcher is gone");
        // A scope that failed has no cgroup any more.
        if unit.cgroup.rsplit('/').next() == Some(&unit.name) {
            let cgroup = Cgroup::named(&unit.cgroup);
            if let Err(cause) = cgroup.kill() {
                tracing::warn!(
                    unit = unit.name,
                    "cannot kill its cgroup: {cause}; stopping the unit instead"
                );
                let _ = timeout(JOB_DEADLINE, manager.stop_unit(&unit.name)).await;
            }
            if !cgroup.empty_within(KILL_DEADLINE).await {
                tracing::error!(
                    unit = unit.name,
                    "processes are left {} s after SIGKILL",
                    KILL_DEADLINE.as_secs()
                );
            }
        }
        let _ = timeout(JOB_DEADLINE, manager.reset_failed_unit(&unit.name)).await;
    }
}

fn is_orphan(unit: &ScopeUnit, lives: impl Fn(u32) -> bool) -> bool {
    let ours = is_unit_name(&unit.name);
    let launcher = unit.description.rsplit_once(MARK).and_then(|(_, pid)| pid.parse().ok());
    ours && launcher.is_some_and(|pid| pid == std::process::id() || !lives(pid))
}

fn lives(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim_end() == COMM)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(name: &str, description: &str) -> ScopeUnit {
        ScopeUnit { name: name.into(), description: description.into(), cgroup: String::new() }
    }

    #[test]
    fn only_a_scope_of_ours_whose_launcher_is_gone_is_an_orphan() {
        let described = "Plugin x (01234567), launched by process 7";
        assert!(is_orphan(&unit("plugind-x-01234567.scope", described), |_| false));
        assert!(!is_orphan(&unit("plugind-x-01234567.scope", described), |pid| pid == 7));
        assert!(!is_orphan(&unit("session-1.scope", described), |_| false));
        assert!(!is_orphan(&unit("plugind-x-01234567.scope", "somebody else's"), |_| false));
    }

    #[test]
    fn a_reused_number_of_our_own_is_an_orphans() {
        let own = format!("Plugin x (01234567), launched by process {}", std::process::id());
        assert!(is_orphan(&unit("plugind-x-01234567.scope", &own), |_| true));
        assert!(description("x", "01234567").ends_with(&std::process::id().to_string()));
    }
}
