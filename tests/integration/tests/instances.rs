//! Several instances of one plugin: each has a scope of its own, and an end of its own.
#![cfg(feature = "stage")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plugind_integration::channel::{Wire, fails, outcome};
use plugind_integration::installed::Process;
use plugind_integration::{Bundle, Plugind, scopes, until};
use plugind_protocol::Kind;
use serde_json::{Value, json};

const RAW_CALL: &str = env!("CARGO_BIN_EXE_raw-call");

/// What `status` lists.
fn instances(plugind: &Plugind, bundle: &Bundle) -> Vec<Value> {
    plugind.status(bundle.name())["instances"].as_array().unwrap().clone()
}

/// The instances once there are three of them.
fn three(plugind: &Plugind, bundle: &Bundle) -> Vec<Value> {
    until("there are three instances", || {
        Some(instances(plugind, bundle)).filter(|instances| instances.len() == 3)
    })
}

fn field(instances: &[Value], name: &str) -> BTreeSet<String> {
    instances.iter().map(|instance| instance[name].as_str().unwrap().to_owned()).collect()
}

fn started(plugind: &Plugind) -> Bundle {
    let bundle = Bundle::hostile().manifest(|manifest| manifest["lifecycle"]["instances"] = json!(3));
    plugind.ctl(&["install", "--enable", bundle.path()]).success();
    plugind.ctl(&["start", bundle.name()]).success();
    bundle
}

fn hold(wire: &mut Wire, id: u64) {
    wire.invoke(&json!(id), &json!({"command": "hold", "arguments": {"key": "never"}}));
}

fn kill_process(instance: &Value) {
    let pid = i32::try_from(instance["main_pid"].as_i64().unwrap()).unwrap();
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
}

#[test]
fn each_instance_has_a_scope_of_its_own_and_a_stop_ends_them_all() {
    let plugind = Plugind::new();
    let bundle = started(&plugind);
    let status = plugind.status(bundle.name());
    let listed = instances(&plugind, &bundle);
    let units = field(&listed, "unit");
    assert_eq!((listed.len(), units.len(), field(&listed, "instance").len()), (3, 3, 3), "{status}");
    assert_eq!(BTreeSet::from_iter(scopes::of(bundle.name())), units);
    for name in ["instance", "unit", "control_group", "main_pid"] {
        assert_eq!(status[name], listed[0][name], "{name}");
    }
    let mut processes = Vec::new();
    for instance in &listed {
        let mut own = Process::all_of(instance["control_group"].as_str().unwrap());
        assert!(own.iter().any(|process| json!(process.pid) == instance["main_pid"]), "{instance}: {own:?}");
        processes.append(&mut own);
    }
    // A sum over all of them, where the kernel counts it.
    assert!(status["tasks_current"].as_u64().is_none_or(|tasks| tasks >= 6), "{status}");

    // Calls go to each of them.
    let mut wire = Wire::open(&plugind, RAW_CALL, &[bundle.name()]);
    for id in 0..30 {
        hold(&mut wire, id);
    }
    until("all are at the plugin", || (plugind.status(bundle.name())["in_flight"] == 30).then_some(()));
    plugind.ctl(&["stop", bundle.name()]).success();
    for _ in 0..30 {
        fails(outcome(&wire.message()), Kind::Cancelled);
    }
    until("every process has ended", || (!processes.iter().any(Process::is_alive)).then_some(()));
    scopes::none_left(bundle.name());
    assert_eq!(instances(&plugind, &bundle), [] as [Value; 0]);
    assert_eq!(plugind.status(bundle.name())["main_pid"], 0);
    plugind.unharmed_but_for(&bundle);
}

#[test]
fn an_instance_that_is_killed_fails_its_own_calls_alone_and_is_replaced() {
    let plugind = Plugind::new();
    let bundle = started(&plugind);
    let mut wire = Wire::open(&plugind, RAW_CALL, &[bundle.name()]);
    for round in 1..=3 {
        let before = three(&plugind, &bundle);
        // Three each.
        (0..9).for_each(|id| hold(&mut wire, id));
        until("all are at the plugin", || (plugind.status(bundle.name())["in_flight"] == 9).then_some(()));
        let victim = &before[round - 1];
        kill_process(victim);
        let mut left: BTreeSet<u64> = (0..9).collect();
        for _ in 0..3 {
            let message = wire.message();
            let error = fails(outcome(&message), Kind::Crashed);
            assert!(error.details["signal"] == 9 && !error.outcome_known, "{error:?}");
            assert!(left.remove(&message["id"].as_u64().unwrap()));
        }
        // From then on nothing goes to it.
        for id in 100..150 {
            assert_eq!(wire.call(&json!(id), "echo", &json!(id)), Ok(json!(id)));
        }
        let after = three(&plugind, &bundle);
        let (old, new) = (field(&before, "instance"), field(&after, "instance"));
        assert_eq!(old.difference(&new).collect::<Vec<_>>(), [victim["instance"].as_str().unwrap()]);
        assert_eq!(BTreeSet::from_iter(scopes::of(bundle.name())), field(&after, "unit"));
        for id in &left {
            wire.notify("$/cancel", &json!({"invocation": id}));
            fails(wire.answer(&json!(id)), Kind::Cancelled);
        }
        let status = plugind.status(bundle.name());
        assert_eq!((&status["restarts"], &status["state"]), (&json!(round), &json!("active")));
    }
    plugind.ctl(&["remove", bundle.name()]).success();
    scopes::none_left(bundle.name());
    plugind.unharmed();
}

#[test]
fn instances_that_end_together_are_all_replaced() {
    let plugind = Plugind::new();
    let bundle = started(&plugind);
    let before = three(&plugind, &bundle);
    for victim in &before[1..] {
        kill_process(victim);
    }
    let kept = before[0]["instance"].as_str().unwrap();
    until("two are replaced", || {
        let now = field(&instances(&plugind, &bundle), "instance");
        let new = now.difference(&field(&before, "instance")).count();
        (new == 2 && now.contains(kept)).then_some(())
    });
    assert_eq!(plugind.call(&bundle, "echo", &json!(1)).json(), 1);
    plugind.ctl(&["remove", bundle.name()]).success();
    scopes::none_left(bundle.name());
    plugind.unharmed();
}

#[test]
fn a_signal_goes_to_every_instance_and_the_next_call_finds_as_many_again() {
    let plugind = Plugind::new();
    let bundle = started(&plugind);
    let before = three(&plugind, &bundle);
    plugind.ctl(&["kill", "-s", "KILL", bundle.name()]).success();
    until("none of them is left", || {
        let now = field(&instances(&plugind, &bundle), "instance");
        now.is_disjoint(&field(&before, "instance")).then_some(())
    });
    assert_eq!(plugind.call(&bundle, "echo", &json!(1)).json(), 1);
    three(&plugind, &bundle);
    plugind.ctl(&["remove", bundle.name()]).success();
    scopes::none_left(bundle.name());
    plugind.unharmed();
}

#[test]
fn instances_of_which_one_cannot_start_leave_none_behind() {
    let plugind = Plugind::new();
    // `exit-code-7`: each of them ends at its start.
    let bundle = Bundle::hostile()
        .mode("exit-code-7")
        .manifest(|manifest| manifest["lifecycle"]["instances"] = json!(16));
    let outcome = plugind.attempt(&bundle, "echo", &json!(1));
    assert_eq!(outcome.fails(Kind::Crashed).details["exit_code"], 7);
    plugind.unharmed();
}
