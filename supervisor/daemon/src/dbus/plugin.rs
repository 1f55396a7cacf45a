//! `org.plugind1.Plugin`: one object a plugin.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use zbus::Variant;
use zbus::names::InterfaceName;
use zbus::object_server::SignalEmitter;

use crate::cgroup::Usage;
use crate::plugin::{Instance, Plugin, Snapshot};

/// The interface's name.
const INTERFACE: &str = "org.plugind1.Plugin";

/// The object of one plugin.
pub(crate) struct PluginObject {
    plugin: Arc<Plugin>,
}

impl PluginObject {
    pub(super) fn new(plugin: Arc<Plugin>) -> PluginObject {
        PluginObject { plugin }
    }

    fn see<T>(&self, look: impl FnOnce(&Snapshot) -> T) -> T {
        look(&self.plugin.snapshot.borrow())
    }

    fn first<T: Default>(&self, look: impl FnOnce(&Instance) -> T) -> T {
        self.see(|snapshot| snapshot.first().map(look)).unwrap_or_default()
    }

    /// Of all instances together.
    fn usage(&self) -> Usage {
        let cgroups: Vec<String> =
            self.see(|snapshot| snapshot.instances.iter().map(|instance| instance.cgroup.clone()).collect());
        Usage::of_all(&cgroups)
    }
}

fn texts<T: std::fmt::Display>(items: &[T]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}

fn limits(snapshot: &Snapshot) -> Vec<(String, String, bool)> {
    snapshot.limits.iter().map(|limit| (limit.name.clone(), limit.wanted.clone(), limit.in_force)).collect()
}

/// What one plugin is, and how it is.
#[zbus::interface(name = "org.plugind1.Plugin")]
impl PluginObject {
    /// The plugin's name.
    #[zbus(property(emits_changed_signal = "const"))]
    fn name(&self) -> String {
        self.see(|snapshot| snapshot.name.clone())
    }

    /// The manifest's version.
    #[zbus(property(emits_changed_signal = "const"))]
    fn version(&self) -> String {
        self.see(|snapshot| snapshot.version.clone())
    }

    /// The manifest's description.
    #[zbus(property(emits_changed_signal = "const"))]
    fn description(&self) -> String {
        self.see(|snapshot| snapshot.description.clone())
    }

    /// The bundle's digest.
    #[zbus(property(emits_changed_signal = "const"))]
    fn digest(&self) -> String {
        self.see(|snapshot| snapshot.digest.clone())
    }

    /// Whether it may run.
    #[zbus(property)]
    fn enabled(&self) -> bool {
        self.see(|snapshot| snapshot.enabled)
    }

    /// disabled, inactive, activating, active, deactivating, failed or broken.
    #[zbus(property)]
    fn state(&self) -> String {
        self.see(|snapshot| snapshot.state.name().to_owned())
    }

    /// dead, start, running, stop, failed or broken.
    #[zbus(property)]
    fn sub_state(&self) -> String {
        self.see(|snapshot| snapshot.sub_state.to_owned())
    }

    /// When the state changed last, in microseconds since the epoch.
    #[zbus(property)]
    fn state_change_timestamp(&self) -> u64 {
        self.see(|snapshot| snapshot.state_changed)
    }

    /// The scope unit, or empty.
    #[zbus(property)]
    fn unit(&self) -> String {
        self.first(|instance| instance.unit.clone())
    }

    /// The running instance, or empty.
    #[zbus(property)]
    fn instance(&self) -> String {
        self.first(|instance| instance.id.clone())
    }

    /// The plugin's own process, or 0.
    #[zbus(property, name = "MainPID")]
    fn main_pid(&self) -> u32 {
        self.first(|instance| instance.main_pid)
    }

    /// The scope's cgroup, or empty.
    #[zbus(property)]
    fn control_group(&self) -> String {
        self.first(|instance| instance.cgroup.clone())
    }

    /// How often it ended by itself.
    #[zbus(property)]
    fn restarts(&self) -> u32 {
        self.see(|snapshot| snapshot.restarts)
    }

    /// How it ended last, in words, or empty.
    #[zbus(property)]
    fn last_exit(&self) -> String {
        self.see(|snapshot| snapshot.last_exit.clone())
    }

    /// Memory of the scope in bytes; 2^64-1 where it is not known.
    #[zbus(property(emits_changed_signal = "false"))]
    fn memory_current(&self) -> u64 {
        self.usage().memory
    }

    /// CPU time of the scope in nanoseconds; 2^64-1 where it is not known.
    #[zbus(property(emits_changed_signal = "false"), name = "CPUUsageNSec")]
    fn cpu_usage_nsec(&self) -> u64 {
        self.usage().cpu_nsec
    }

    /// Tasks of the scope; 2^64-1 where it is not known.
    #[zbus(property(emits_changed_signal = "false"))]
    fn tasks_current(&self) -> u64 {
        self.usage().tasks
    }

    /// What the manifest asks for.
    #[zbus(property(emits_changed_signal = "const"))]
    fn requested_permissions(&self) -> Vec<String> {
        self.see(|snapshot| texts(&snapshot.requested))
    }

    /// What the operator granted to this bundle.
    #[zbus(property)]
    fn granted_permissions(&self) -> Vec<String> {
        self.see(|snapshot| texts(&snapshot.granted))
    }

    /// Each limit of the running scope: its name, its value, whether the kernel enforces it.
    #[zbus(property)]
    fn limits(&self) -> Vec<(String, String, bool)> {
        self.see(limits)
    }

    /// Each layer of the running sandbox, and how it stands.
    #[zbus(property)]
    fn sandbox(&self) -> Vec<(String, String)> {
        self.see(|snapshot| snapshot.layers.clone())
    }

    /// Calls that were answered since the supervisor started.
    #[zbus(property(emits_changed_signal = "false"))]
    fn calls(&self) -> u64 {
        self.plugin.counters.calls()
    }

    /// Calls that ended in an error since the supervisor started.
    #[zbus(property(emits_changed_signal = "false"))]
    fn errors(&self) -> u64 {
        self.plugin.counters.errors()
    }

    /// The same by kind of error.
    #[zbus(property(emits_changed_signal = "false"))]
    fn errors_by_kind(&self) -> BTreeMap<&'static str, u64> {
        self.plugin.counters.errors_by_kind()
    }

    /// Bytes of calls that were sent to it since the supervisor started.
    #[zbus(property(emits_changed_signal = "false"))]
    fn bytes_in(&self) -> u64 {
        self.plugin.counters.bytes_in()
    }

    /// Bytes of frames that it sent since the supervisor started.
    #[zbus(property(emits_changed_signal = "false"))]
    fn bytes_out(&self) -> u64 {
        self.plugin.counters.bytes_out()
    }

    /// Calls that it works on.
    #[zbus(property(emits_changed_signal = "false"))]
    fn in_flight(&self) -> u32 {
        u32::try_from(self.plugin.load().0).unwrap_or(u32::MAX)
    }

    /// Calls that wait for it.
    #[zbus(property(emits_changed_signal = "false"))]
    fn queued(&self) -> u32 {
        u32::try_from(self.plugin.load().1).unwrap_or(u32::MAX)
    }

    /// What half of the calls of the last one to two minutes took at most, in microseconds and to an eighth; 2^64-1
    /// without any.
    #[zbus(property(emits_changed_signal = "false"), name = "LatencyP50USec")]
    fn latency_p50(&self) -> u64 {
        self.plugin.counters.latency(0.5).unwrap_or(u64::MAX)
    }

    /// What 99 of 100 calls of the last one to two minutes took at most.
    #[zbus(property(emits_changed_signal = "false"), name = "LatencyP99USec")]
    fn latency_p99(&self) -> u64 {
        self.plugin.counters.latency(0.99).unwrap_or(u64::MAX)
    }

    /// Answers, chunks and progress that it sent and nobody waited for.
    #[zbus(property(emits_changed_signal = "false"))]
    fn stray_answers(&self) -> u64 {
        self.plugin.counters.strays()
    }

    /// Progress that was left out, because it was too fast or its caller too slow.
    #[zbus(property(emits_changed_signal = "false"))]
    fn progress_dropped(&self) -> u64 {
        self.plugin.counters.progress_dropped()
    }

    /// Each running instance: its id, scope unit, cgroup and process.
    #[zbus(property)]
    fn instances(&self) -> Vec<(String, String, String, u32)> {
        self.see(instances)
    }
}

fn instances(snapshot: &Snapshot) -> Vec<(String, String, String, u32)> {
    let figures = |instance: &Instance| {
        (instance.id.clone(), instance.unit.clone(), instance.cgroup.clone(), instance.main_pid)
    };
    snapshot.instances.iter().map(figures).collect()
}

/// Tells the bus what differs between two snapshots.
pub(super) async fn announce(
    emitter: &SignalEmitter<'_>,
    old: &Snapshot,
    new: &Snapshot,
) -> zbus::Result<()> {
    let mut changed: HashMap<&str, Variant<'_>> = HashMap::new();
    let mut differ = |name, differs: bool, value: Variant<'static>| {
        if differs {
            changed.insert(name, value);
        }
    };
    differ("Enabled", old.enabled != new.enabled, new.enabled.into());
    differ("State", old.state != new.state, new.state.name().into());
    differ("SubState", old.sub_state != new.sub_state, new.sub_state.into());
    differ("StateChangeTimestamp", old.state_changed != new.state_changed, new.state_changed.into());
    let first = |snapshot: &Snapshot| snapshot.first().cloned().unwrap_or_default();
    let (was, is) = (first(old), first(new));
    differ("Unit", was.unit != is.unit, is.unit.into());
    differ("Instance", was.id != is.id, is.id.into());
    differ("MainPID", was.main_pid != is.main_pid, is.main_pid.into());
    differ("ControlGroup", was.cgroup != is.cgroup, is.cgroup.into());
    differ("Instances", old.instances != new.instances, instances(new).into());
    differ("Restarts", old.restarts != new.restarts, new.restarts.into());
    differ("LastExit", old.last_exit != new.last_exit, new.last_exit.clone().into());
    differ("GrantedPermissions", old.granted != new.granted, texts(&new.granted).into());
    differ("Limits", old.limits != new.limits, limits(new).into());
    differ("Sandbox", old.layers != new.layers, new.layers.clone().into());
    if changed.is_empty() {
        return Ok(());
    }
    let interface = InterfaceName::from_static_str(INTERFACE)?;
    zbus::fdo::Properties::properties_changed(emitter, interface, changed, Cow::Borrowed(&[])).await
}
