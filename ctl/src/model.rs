//! What the supervisor tells about plugins, in the shapes that `-o json` prints.

use std::collections::{BTreeMap, HashMap};

use plugind_protocol::{Manifest, Permission};
use serde::{Deserialize, Serialize};
use zbus::OwnedVariant;

/// A plugin's D-Bus properties. A property that the supervisor does not have is empty here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Plugin {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) description: String,
    pub(crate) digest: String,
    pub(crate) enabled: bool,
    pub(crate) state: String,
    pub(crate) sub_state: String,
    /// When the state was entered, microseconds since 1970.
    pub(crate) since_us: Option<u64>,
    pub(crate) unit: String,
    pub(crate) instance: String,
    pub(crate) main_pid: u32,
    pub(crate) control_group: String,
    pub(crate) restarts: u32,
    pub(crate) last_exit: String,
    pub(crate) memory_current: Option<u64>,
    pub(crate) cpu_usage_nsec: Option<u64>,
    pub(crate) tasks_current: Option<u64>,
    pub(crate) requested_permissions: Vec<String>,
    pub(crate) granted_permissions: Vec<String>,
    pub(crate) limits: Vec<Limit>,
    pub(crate) sandbox: Vec<Layer>,
    pub(crate) calls: u64,
    pub(crate) errors: u64,
    pub(crate) errors_by_kind: BTreeMap<String, u64>,
    /// Frames to the plugin.
    pub(crate) bytes_in: Option<u64>,
    /// Frames from the plugin.
    pub(crate) bytes_out: Option<u64>,
    pub(crate) in_flight: Option<u32>,
    pub(crate) queued: Option<u32>,
    /// Of the last one to two minutes.
    pub(crate) latency_p50_us: Option<u64>,
    pub(crate) latency_p99_us: Option<u64>,
    pub(crate) stray_answers: Option<u64>,
    pub(crate) progress_dropped: Option<u64>,
    pub(crate) instances: Vec<Instance>,
}

/// One process group of a plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Instance {
    #[serde(rename = "instance")]
    pub(crate) id: String,
    pub(crate) unit: String,
    pub(crate) control_group: String,
    pub(crate) main_pid: u32,
}

/// A resource limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Limit {
    pub(crate) name: String,
    pub(crate) wanted: String,
    pub(crate) in_force: bool,
}

/// A layer of the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Layer {
    pub(crate) layer: String,
    pub(crate) text: String,
}

impl Plugin {
    /// From the properties of `org.plugind1.Plugin`.
    pub(crate) fn from_properties(mut properties: HashMap<String, OwnedVariant>) -> Plugin {
        let mut from = Properties(&mut properties);
        Plugin {
            name: from.take("Name"),
            version: from.take("Version"),
            description: from.take("Description"),
            digest: from.take("Digest"),
            enabled: from.take("Enabled"),
            state: from.take("State"),
            sub_state: from.take("SubState"),
            since_us: from.number("StateChangeTimestamp").filter(|micros| *micros > 0),
            unit: from.take("Unit"),
            instance: from.take("Instance"),
            main_pid: from.take("MainPID"),
            control_group: from.take("ControlGroup"),
            restarts: from.take("Restarts"),
            last_exit: from.take("LastExit"),
            memory_current: from.number("MemoryCurrent"),
            cpu_usage_nsec: from.number("CPUUsageNSec"),
            tasks_current: from.number("TasksCurrent"),
            requested_permissions: from.take("RequestedPermissions"),
            granted_permissions: from.take("GrantedPermissions"),
            limits: from
                .take::<Vec<(String, String, bool)>>("Limits")
                .into_iter()
                .map(|(name, wanted, in_force)| Limit { name, wanted, in_force })
                .collect(),
            sandbox: from
                .take::<Vec<(String, String)>>("Sandbox")
                .into_iter()
                .map(|(layer, text)| Layer { layer, text })
                .collect(),
            calls: from.take("Calls"),
            errors: from.take("Errors"),
            errors_by_kind: from.take::<HashMap<String, u64>>("ErrorsByKind").into_iter().collect(),
            bytes_in: from.number("BytesIn"),
            bytes_out: from.number("BytesOut"),
            in_flight: from.find("InFlight"),
            queued: from.find("Queued"),
            latency_p50_us: from.number("LatencyP50USec"),
            latency_p99_us: from.number("LatencyP99USec"),
            stray_answers: from.number("StrayAnswers"),
            progress_dropped: from.number("ProgressDropped"),
            instances: from
                .take::<Vec<(String, String, String, u32)>>("Instances")
                .into_iter()
                .map(|(id, unit, control_group, main_pid)| Instance { id, unit, control_group, main_pid })
                .collect(),
        }
    }

    /// Whether a permission is granted, as it stands or as part of a wider one.
    pub(crate) fn is_granted(&self, permission: &str) -> bool {
        let asked = permission.parse::<Permission>();
        self.granted_permissions.iter().any(|granted| match (granted.parse::<Permission>(), &asked) {
            (Ok(granted), Ok(asked)) => granted.covers(asked),
            _ => granted == permission,
        })
    }

    /// What the plugin asks for and does not have.
    pub(crate) fn missing_permissions(&self) -> Vec<String> {
        self.requested_permissions.iter().filter(|permission| !self.is_granted(permission)).cloned().collect()
    }
}

struct Properties<'a>(&'a mut HashMap<String, OwnedVariant>);

impl Properties<'_> {
    fn take<T: TryFrom<OwnedVariant> + Default>(&mut self, name: &str) -> T {
        self.find(name).unwrap_or_default()
    }

    fn find<T: TryFrom<OwnedVariant>>(&mut self, name: &str) -> Option<T> {
        self.0.remove(name).and_then(|value| T::try_from(value).ok())
    }

    /// A number that is the largest one where it is not known, as systemd has it.
    fn number(&mut self, name: &str) -> Option<u64> {
        self.find(name).filter(|number| *number != u64::MAX)
    }
}

/// The supervisor's answer to `Describe`.
#[derive(Debug, Deserialize)]
pub(crate) struct Described {
    pub(crate) manifest: Manifest,
    pub(crate) digest: String,
    #[serde(default)]
    pub(crate) commands_digest: String,
}

/// One step of `doctor`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Step {
    #[serde(rename = "step")]
    pub(crate) name: String,
    pub(crate) ok: bool,
    #[serde(default)]
    pub(crate) detail: String,
    #[serde(default)]
    pub(crate) fix: String,
}

#[cfg(test)]
mod tests {
    use zbus::Variant;

    use super::*;

    fn properties(list: Vec<(&str, Variant<'static>)>) -> HashMap<String, OwnedVariant> {
        list.into_iter()
            .map(|(name, value)| (name.to_owned(), OwnedVariant::try_from(value).unwrap()))
            .collect()
    }

    #[test]
    fn properties_become_a_plugin() {
        let plugin = Plugin::from_properties(properties(vec![
            ("Name", "textstats".into()),
            ("Enabled", true.into()),
            ("MainPID", 42_u32.into()),
            ("StateChangeTimestamp", 5_u64.into()),
            ("MemoryCurrent", u64::MAX.into()),
            ("CPUUsageNSec", 7_u64.into()),
            ("RequestedPermissions", vec!["mount:docs:write", "mount:pics:read", "network:host"].into()),
            ("GrantedPermissions", vec!["mount:docs:read", "mount:pics:write"].into()),
            ("Limits", vec![("memory.max", "512M", true), ("cpu.max", "100%", false)].into()),
            ("Sandbox", vec![("landlock", "ABI 7")].into()),
            ("ErrorsByKind", HashMap::from([("Busy", 2_u64), ("TimedOut", 1)]).into()),
            ("BytesIn", 10_u64.into()),
            ("InFlight", 2_u32.into()),
            ("LatencyP50USec", 250_u64.into()),
            ("LatencyP99USec", u64::MAX.into()),
            ("Instances", vec![("1", "a.scope", "/a", 42_u32), ("2", "b.scope", "/b", 43)].into()),
        ]));
        assert_eq!((plugin.name.as_str(), plugin.enabled, plugin.main_pid), ("textstats", true, 42));
        assert_eq!((plugin.since_us, plugin.memory_current, plugin.cpu_usage_nsec), (Some(5), None, Some(7)));
        assert_eq!(plugin.missing_permissions(), ["mount:docs:write", "network:host"]);
        assert_eq!(
            plugin.limits[1],
            Limit { name: "cpu.max".into(), wanted: "100%".into(), in_force: false }
        );
        assert_eq!(plugin.sandbox, [Layer { layer: "landlock".into(), text: "ABI 7".into() }]);
        assert_eq!(plugin.errors_by_kind, BTreeMap::from([("Busy".into(), 2), ("TimedOut".into(), 1)]));
        assert_eq!((plugin.bytes_in, plugin.in_flight), (Some(10), Some(2)));
        assert_eq!((plugin.latency_p50_us, plugin.latency_p99_us), (Some(250), None));
        assert_eq!((plugin.instances.len(), plugin.instances[1].main_pid), (2, 43));
        // An older supervisor does not have these.
        assert_eq!((plugin.bytes_out, plugin.queued, plugin.stray_answers), (None, None, None));
    }

    #[test]
    fn properties_of_another_version_or_type_are_empty() {
        let plugin =
            Plugin::from_properties(properties(vec![("Name", 7_u32.into()), ("Colour", "red".into())]));
        assert_eq!(plugin, Plugin::default());
    }
}
