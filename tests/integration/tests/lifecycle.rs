//! Stops that a plugin resists, starts that many want at once, and a supervisor that is killed.
#![cfg(feature = "stage")]

use std::collections::BTreeSet;
use std::fs;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plugind_integration::installed::Process;
use plugind_integration::{Bundle, Outcome, Plugind, scopes, until};
use plugind_protocol::Kind;
use serde_json::{Value, json};

/// Every process of a running plugin's scope.
fn processes(status: &Value) -> Vec<Process> {
    Process::all_of(status["control_group"].as_str().expect("control_group"))
}

/// The cgroup is empty now. The init of a PID namespace has left it while it still waits for its own children.
fn gone(status: &Value, processes: &[Process]) {
    let events =
        format!("/sys/fs/cgroup{}/cgroup.events", status["control_group"].as_str().expect("control_group"));
    let populated = fs::read_to_string(events).is_ok_and(|text| text.contains("populated 1"));
    assert!(!populated, "the cgroup is not empty");
    until("every process has ended", || (!processes.iter().any(Process::is_alive)).then_some(()));
}

#[test]
fn stop_leaves_nothing_of_stopped_grandchildren_that_hold_stdout() {
    let plugind = Plugind::new();
    let bundle = Bundle::hostile();
    plugind.ctl(&["install", "--enable", bundle.path()]).success();
    for verb in ["stop", "restart", "disable"] {
        let orphans =
            json!({"setsid": true, "double_fork": true, "stop": true, "hold_stdout": true, "count": 3});
        plugind.call(&bundle, "spawn-orphan", &orphans).success();
        let status = plugind.status(bundle.name());
        let before = processes(&status);
        let stopped = || {
            before
                .iter()
                .filter_map(|process| Process::find(process.pid))
                .filter(|now| now.state == 'T')
                .count()
        };
        until("the orphans are stopped", || (stopped() == 3).then_some(()));
        plugind.ctl(&[verb, bundle.name()]).success();
        // It returns only when all of them are gone.
        gone(&status, &before);
        plugind.ctl(&["enable", bundle.name()]).success();
    }
    plugind.ctl(&["remove", bundle.name()]).success();
    scopes::none_left(bundle.name());
    plugind.unharmed();
}

#[test]
fn a_plugin_that_ends_takes_its_orphans_along() {
    let plugind = Plugind::new();
    let bundle = Bundle::hostile();
    plugind.ctl(&["install", "--enable", bundle.path()]).success();
    for (command, arguments) in [("exit", json!({"code": 0})), ("kill-self", json!({"signal": 9}))] {
        let orphans = json!({"stop": true, "hold_stdout": true, "count": 2});
        plugind.call(&bundle, "spawn-orphan", &orphans).success();
        let status = plugind.status(bundle.name());
        let before = processes(&status);
        plugind.call(&bundle, command, &arguments).fails(Kind::Crashed);
        gone(&status, &before);
        scopes::none_left(bundle.name());
    }
    plugind.ctl(&["remove", bundle.name()]).success();
    plugind.unharmed();
}

#[test]
fn a_plugin_that_ignores_every_polite_request_is_stopped_by_force() {
    let plugind = Plugind::new();
    let bundle = Bundle::hostile().mode("stubborn");
    plugind.ctl(&["install", "--enable", bundle.path()]).success();
    plugind.ctl(&["start", bundle.name()]).success();
    let status = plugind.status(bundle.name());
    let before = processes(&status);
    let pid = Pid::from_raw(i32::try_from(status["main_pid"].as_i64().unwrap()).unwrap());
    kill(pid, Signal::SIGTERM).unwrap();
    assert_eq!(plugind.call(&bundle, "echo", &json!("still")).json(), "still", "the mode is real");
    plugind.ctl(&["stop", bundle.name()]).success();
    gone(&status, &before);
    plugind.ctl(&["remove", bundle.name()]).success();
    scopes::none_left(bundle.name());
    plugind.unharmed();
}

#[test]
fn a_plugin_that_is_itself_stopped_by_a_signal_is_stopped_by_force() {
    let plugind = Plugind::new();
    let bundle = Bundle::hostile();
    plugind.ctl(&["install", "--enable", bundle.path()]).success();
    plugind.ctl(&["start", bundle.name()]).success();
    let status = plugind.status(bundle.name());
    let before = processes(&status);
    plugind.ctl(&["kill", "-s", "STOP", bundle.name()]).success();
    plugind.ctl(&["stop", bundle.name()]).success();
    gone(&status, &before);
    plugind.ctl(&["remove", bundle.name()]).success();
    plugind.unharmed();
}

#[test]
fn two_hundred_callers_of_a_stopped_plugin_start_it_once() {
    const CALLERS: usize = 200;
    let plugind = Plugind::new();
    let bundle = Bundle::hostile().manifest(|manifest| manifest["resources"] = json!({"in_flight": 256}));
    plugind.ctl(&["install", "--enable", bundle.path()]).success();
    let target = bundle.command("probe");
    let arguments = ["-o", "json", "call", &target, "--args", r#"{"what":"environ"}"#];
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let mut caller = plugind.command("pluginctl");
            caller.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let instances: BTreeSet<String> = callers
        .into_iter()
        .map(|caller| {
            let output = caller.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
            answer["value"]["PLUGIND_INSTANCE"].as_str().unwrap().to_owned()
        })
        .collect();
    let status = plugind.status(bundle.name());
    assert_eq!(instances.into_iter().collect::<Vec<_>>(), [status["instance"].as_str().unwrap()]);
    assert_eq!(scopes::of(bundle.name()), [status["unit"].as_str().unwrap()]);
    assert_eq!((&status["restarts"], &status["calls"]), (&json!(0), &json!(CALLERS)));
    let programs =
        processes(&status).into_iter().filter(|process| process.name.starts_with("hostile")).count();
    assert_eq!(programs, 1);
    plugind.ctl(&["remove", bundle.name()]).success();
    plugind.unharmed();
}

#[test]
fn callers_beyond_the_manifests_bound_wait_their_turn_and_none_is_lost() {
    let plugind = Plugind::new();
    let bundle = Bundle::hostile().manifest(|manifest| manifest["resources"] = json!({"in_flight": 2}));
    plugind.ctl(&["install", "--enable", bundle.path()]).success();
    let call = || plugind.call(&bundle, "sleep", &json!({"ms": 200}));
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..8).map(|_| scope.spawn(call)).collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    for outcome in outcomes {
        assert_eq!(outcome.json(), json!({"slept_ms": 200}));
    }
    assert_eq!(plugind.status(bundle.name())["calls"], 8);
    plugind.unharmed_but_for(&bundle);
}

#[test]
fn a_supervisor_that_is_killed_leaves_no_plugin_behind_and_the_next_one_serves() {
    let mut plugind = Plugind::new();
    let bundle = Bundle::hostile().mode("stubborn");
    plugind.ctl(&["install", "--enable", bundle.path()]).success();
    plugind.ctl(&["start", bundle.name()]).success();
    let status = plugind.status(bundle.name());
    let before = processes(&status);
    kill(Pid::from_raw(i32::try_from(plugind.pid()).unwrap()), Signal::SIGKILL).unwrap();
    scopes::none_left(bundle.name());
    gone(&status, &before);
    plugind.restart(|_| {});
    assert_eq!(plugind.call(&bundle, "echo", &json!(1)).json(), 1);
    plugind.ctl(&["remove", bundle.name()]).success();
    plugind.unharmed();
}
