//! The main job: a call is answered from inside the plugin's own scope and sandbox.
#![cfg(feature = "stage")]

use plugind_integration::bundle::repository;
use plugind_integration::{Bundle, Outcome, ctl, run, scopes, until, user};
use plugind_protocol::Kind;
use serde_json::json;

#[test]
fn textstats_counts_graphemes_from_its_own_folder() {
    let example = repository().join("examples/textstats");
    let outcome = Outcome::of(user::as_tester("pluginctl").args(["-o", "json", "run"]).arg(&example).args([
        "textstats.count",
        "--args",
        r#"{"text":"Grüße 👩‍👩‍👧"}"#,
    ]));
    assert_eq!(
        outcome.json(),
        json!({"bytes": 26, "code_points": 11, "graphemes": 7, "words": 2, "lines": 0})
    );
    scopes::none_left("textstats");
}

#[test]
fn a_python_plugin_answers_by_the_wire_alone() {
    let example = repository().join("examples/hello-python");
    let outcome = Outcome::of(user::as_tester("pluginctl").args(["-o", "json", "run"]).arg(&example).args([
        "hello-python.greet",
        "--args",
        r#"{"name":"Ada"}"#,
    ]));
    assert!(outcome.json()["greeting"].as_str().unwrap().contains("Ada"));
}

#[test]
fn the_plugin_is_in_a_scope_of_its_own_and_sees_only_its_root() {
    let bundle = Bundle::hostile();
    let cgroup = run(&bundle, "cgroup", &json!({})).json().to_string();
    assert!(cgroup.contains("0::/"), "the cgroup namespace hides the path: {cgroup}");
    let status = run(&bundle, "probe", &json!({"what": "status"})).json();
    assert_eq!(status["value"]["NoNewPrivs"], "1", "{status}");
    assert_eq!(status["value"]["Seccomp"], "2", "{status}");
}

#[test]
fn a_killed_plugin_fails_its_call_at_once_and_the_next_call_starts_it_again() {
    let bundle = Bundle::hostile();
    ctl(&["install", bundle.path()]).success();
    ctl(&["enable", bundle.name()]).success();
    let call = std::thread::scope(|scope| {
        let sleeping = scope.spawn(|| ctl(&["call", &bundle.command("sleep"), "--args", r#"{"ms":60000}"#]));
        let pid = until("the plugin runs", || {
            let status = ctl(&["status", bundle.name()]);
            let status: serde_json::Value = serde_json::from_str(&status.stdout).ok()?;
            main_pid(&status)
        });
        let cgroup = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        let unit = cgroup.trim_end().rsplit('/').next().unwrap();
        let instance = unit
            .strip_prefix(&format!("plugind-{}-", bundle.name()))
            .and_then(|rest| rest.strip_suffix(".scope"));
        assert!(instance.is_some(), "{cgroup}");
        // The call is in the plugin once it has been read; killing earlier only changes the message.
        let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
        sleeping.join().unwrap()
    });
    let error = call.fails(Kind::Crashed);
    assert!(!error.outcome_known);
    assert_eq!(error.details["signal"], 9, "{error:?}");
    assert_eq!(ctl(&["call", &bundle.command("echo"), "--args", "[1]"]).json(), json!([1]));
    ctl(&["remove", bundle.name()]).success();
    scopes::none_left(bundle.name());
}

#[test]
fn doctors_at_the_same_time_do_not_disturb_each_other() {
    let steps = std::thread::scope(|scope| {
        let doctors: Vec<_> = (0..3).map(|_| scope.spawn(|| ctl(&["doctor"]))).collect();
        doctors.into_iter().map(|doctor| doctor.join().unwrap().json()).collect::<Vec<_>>()
    });
    for steps in steps {
        assert!(steps.as_array().unwrap().iter().all(|step| step["ok"] == true), "{steps}");
    }
    scopes::none_left("plugind-canary");
}

fn main_pid(status: &serde_json::Value) -> Option<u64> {
    let status = status.as_array().and_then(|list| list.first()).unwrap_or(status);
    status.as_object()?.iter().find_map(|(key, value)| {
        let key = key.to_ascii_lowercase().replace('_', "");
        (key == "mainpid").then(|| value.as_u64()).flatten().filter(|&pid| pid != 0)
    })
}
