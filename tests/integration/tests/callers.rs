//! Many callers of one plugin: who waits, who is refused, what is counted, and what a stop is to them.
#![cfg(feature = "stage")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;
use std::time::Duration;

use plugind_integration::channel::{Wire, fails};
use plugind_integration::{Bundle, Outcome, Plugind, until};
use plugind_protocol::Kind;
use plugind_sdk::client::{Channel, Event};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

const RAW_CALL: &str = env!("CARGO_BIN_EXE_raw-call");

/// Calls that may wait for a plugin.
const WAITING_MAX: u64 = 1024;

/// A plugind with a hostile plugin that runs, and works on one call at a time.
fn one_at_a_time() -> (Plugind, Bundle) {
    let bundle = Bundle::hostile().manifest(|manifest| manifest["resources"] = json!({"in_flight": 1}));
    (started(&bundle), bundle)
}

fn started(bundle: &Bundle) -> Plugind {
    let plugind = Plugind::new();
    plugind.ctl(&["install", "--enable", bundle.path()]).success();
    plugind.ctl(&["start", bundle.name()]).success();
    plugind
}

/// Holds the plugin with a call, lets `count` others wait behind it.
fn queue(plugind: &Plugind, bundle: &Bundle, wire: &mut Wire, count: u64) {
    wire.invoke(&json!("held"), &json!({"command": "hold", "arguments": {"key": "never"}}));
    for id in 0..count {
        wire.invoke(&json!(id), &json!({"command": "turn"}));
    }
    until("they wait", || (plugind.status(bundle.name())["queued"] == count).then_some(()));
}

/// A property of the plugin on D-Bus.
fn property(plugind: &Plugind, bundle: &Bundle, name: &str) -> Value {
    let path = format!("/org/plugind1/plugin/{}", plugind_protocol::name::dbus_label(bundle.name()));
    let mut busctl: Command = plugind.command("busctl");
    busctl.args([
        "--user",
        "--json=short",
        "get-property",
        "org.plugind1",
        &path,
        "org.plugind1.Plugin",
        name,
    ]);
    Outcome::of(&mut busctl).json()["data"].take()
}

#[test]
fn calls_beyond_the_queue_are_busy_and_those_in_it_are_served_in_order() {
    let (plugind, bundle) = one_at_a_time();
    let mut wire = Wire::open(&plugind, RAW_CALL, &[bundle.name()]);
    queue(&plugind, &bundle, &mut wire, WAITING_MAX);
    for id in ["beyond", "it"] {
        let error = fails(wire.call(&json!(id), "turn", &json!({})), Kind::Busy);
        assert!(error.retryable && error.outcome_known, "{error:?}");
    }
    assert_eq!(property(&plugind, &bundle, "Queued"), WAITING_MAX);
    assert_eq!(property(&plugind, &bundle, "InFlight"), 1);
    // One that waits for too long was never begun.
    wire.notify("$/cancel", &json!({"invocation": 1000}));
    fails(wire.answer(&json!(1000)), Kind::Cancelled);
    let late = json!({"command": "turn", "meta": {"deadline_ms": 100}});
    wire.invoke(&json!("late"), &late);
    let error = fails(wire.answer(&json!("late")), Kind::TimedOut);
    assert!(error.outcome_known && error.message.contains("did not come to the call"), "{error:?}");
    // One that waits is taken back without a word to the plugin.
    wire.notify("$/cancel", &json!({"invocation": 500}));
    assert!(fails(wire.answer(&json!(500)), Kind::Cancelled).outcome_known);
    wire.notify("$/cancel", &json!({"invocation": "held"}));
    fails(wire.answer(&json!("held")), Kind::Cancelled);
    for (turn, id) in (0..WAITING_MAX).filter(|id| ![500, 1000].contains(id)).enumerate() {
        assert_eq!(wire.answer(&json!(id)), Ok(json!({"turn": turn})));
    }
    let cancels = plugind.call(&bundle, "cancels", &json!({})).json();
    assert_eq!(cancels["cancels"].as_array().map(Vec::len), Some(1), "{cancels}");
    plugind.unharmed_but_for(&bundle);
}

#[test]
fn a_second_caller_is_served_in_turn_while_the_first_has_filled_the_queue() {
    let (plugind, bundle) = one_at_a_time();
    let mut greedy = Wire::open(&plugind, RAW_CALL, &[bundle.name()]);
    let mut second = Wire::open(&plugind, RAW_CALL, &[bundle.name()]);
    queue(&plugind, &bundle, &mut greedy, WAITING_MAX);
    for id in 0..3 {
        second.invoke(&json!(id), &json!({"command": "turn"}));
    }
    // The newest calls of the one that filled it give way.
    for _ in 0..3 {
        let message = greedy.message();
        let given_way = message["id"].as_u64().unwrap();
        assert!(given_way >= WAITING_MAX - 3 && message["error"]["data"]["kind"] == "Busy", "{message}");
    }
    greedy.notify("$/cancel", &json!({"invocation": "held"}));
    fails(greedy.answer(&json!("held")), Kind::Cancelled);
    let turns: Vec<u64> =
        (0..3).map(|id| second.answer(&json!(id)).unwrap()["turn"].as_u64().unwrap()).collect();
    assert_eq!(turns, [1, 3, 5]);
    for id in 0..WAITING_MAX - 3 {
        assert!(greedy.answer(&json!(id)).is_ok());
    }
    plugind.unharmed_but_for(&bundle);
}

#[test]
fn late_repeated_and_invented_answers_are_counted_and_reach_nobody() {
    let bundle = Bundle::hostile();
    let plugind = started(&bundle);
    let mut wire = Wire::open(&plugind, RAW_CALL, &[bundle.name()]);
    let strays = |count: u64| {
        until("they are counted", || (property(&plugind, &bundle, "StrayAnswers") == count).then_some(()));
    };
    for round in 1..=5 {
        assert_eq!(wire.call(&json!(1), "double-reply", &json!({})), Ok(json!({"reply": 1})));
        strays(round);
    }
    assert_eq!(wire.call(&json!(1), "unknown-id-reply", &json!({})), Ok(json!({"reply": "right"})));
    strays(6);
    // It answers after its call was taken back.
    wire.invoke(&json!(2), &json!({"command": "hold", "arguments": {"key": "never"}}));
    wire.notify("$/cancel", &json!({"invocation": 2}));
    fails(wire.answer(&json!(2)), Kind::Cancelled);
    strays(7);
    fails(wire.call(&json!(3), "late-reply", &json!({"ms": 400})), Kind::TimedOut);
    strays(8);
    // Parts of an answer that nobody waits for, or that belong to another's call.
    for method in ["$/chunk", "$/progress"] {
        let params = json!({"invocation": "i1", "seq": 0, "data": 1});
        wire.call(&json!(4), "notify", &json!({"method": method, "params": params})).unwrap();
    }
    strays(10);
    wire.goes_on();
    assert_eq!(plugind.status(bundle.name())["stray_answers"], 10);
    plugind.unharmed_but_for(&bundle);
}

#[test]
fn what_is_done_is_counted_on_the_bus_and_in_status() {
    let bundle = Bundle::hostile();
    let plugind = started(&bundle);
    assert_eq!(property(&plugind, &bundle, "LatencyP99USec"), u64::MAX);
    assert_eq!(plugind.status(bundle.name())["latency_p99_us"], Value::Null);
    let (bytes_in, bytes_out) =
        (property(&plugind, &bundle, "BytesIn"), property(&plugind, &bundle, "BytesOut"));
    let mut wire = Wire::open(&plugind, RAW_CALL, &[bundle.name()]);
    let text = "x".repeat(100_000);
    for id in 0..10 {
        assert_eq!(wire.call(&json!(id), "echo", &json!(text)), Ok(json!(text)));
    }
    plugind.call(&bundle, "echo", &json!(1)).success();
    fails(wire.call(&json!(1), "raise", &json!({})), Kind::PluginError);
    fails(wire.call(&json!(1), "sleep", &json!({})), Kind::InvalidArguments);
    fails(wire.call(&json!(1), "no-such-command", &json!({})), Kind::NoSuchCommand);
    fails(wire.call(&json!(1), "late-reply", &json!({"ms": 400})), Kind::TimedOut);
    fails(wire.call(&json!(1), "bad-output", &json!({})), Kind::ProtocolViolation);
    let kinds = json!({"InvalidArguments": 1, "NoSuchCommand": 1, "PluginError": 1, "ProtocolViolation": 1, "TimedOut": 1});
    let status = plugind.status(bundle.name());
    assert_eq!(
        (&status["calls"], &status["errors"], &status["errors_by_kind"]),
        (&json!(16), &json!(5), &kinds)
    );
    assert_eq!(property(&plugind, &bundle, "Calls"), 16);
    assert_eq!(property(&plugind, &bundle, "ErrorsByKind"), kinds);
    for (name, key, before) in [("BytesIn", "bytes_in", bytes_in), ("BytesOut", "bytes_out", bytes_out)] {
        let now = property(&plugind, &bundle, name).as_u64().unwrap();
        let more = now - before.as_u64().unwrap();
        assert!((1_000_000..1_100_000).contains(&more), "{name}: {more}");
        assert!(status[key].as_u64().unwrap() <= now, "{status}");
    }
    // The slowest of so few took as long as its deadline, 200 ms.
    let (p50, p99) = (status["latency_p50_us"].as_u64().unwrap(), status["latency_p99_us"].as_u64().unwrap());
    assert!(p50 <= p99 && p99 >= 200_000, "{p50} {p99}");
    assert_eq!((&status["in_flight"], &status["queued"]), (&json!(0), &json!(0)));
    plugind.unharmed_but_for(&bundle);
}

#[test]
fn a_channel_outlives_a_stop_a_revoke_and_a_disable_of_its_plugin_and_says_so_after_its_removal() {
    let bundle = Bundle::hostile().asking(json!({"env": ["LOGNAME"]}));
    let plugind = started(&bundle);
    let name = bundle.name();
    plugind.ctl(&["grant", name, "env:LOGNAME"]).success();
    let mut wire = Wire::open(&plugind, RAW_CALL, &[name]);
    let held = |wire: &mut Wire| {
        wire.invoke(&json!("held"), &json!({"command": "hold", "arguments": {"key": "never"}}));
        until("it is held", || (plugind.status(name)["in_flight"] == 1).then_some(()));
    };
    for verb in
        [&["stop", name][..], &["revoke", name, "env:LOGNAME"], &["restart", name], &["disable", name]]
    {
        held(&mut wire);
        plugind.ctl(verb).success();
        let error = fails(wire.answer(&json!("held")), Kind::Cancelled);
        assert!(error.message.contains("was stopped") && !error.outcome_known, "{verb:?}: {error:?}");
        if verb[0] != "disable" {
            // The next call starts it again, with what is granted now.
            let environ = wire.call(&json!(1), "probe", &json!({"what": "environ"})).unwrap();
            assert_eq!(environ["value"]["LOGNAME"].is_null(), verb[0] != "stop", "{verb:?}: {environ}");
        }
    }
    fails(wire.call(&json!(1), "echo", &json!(1)), Kind::Disabled);
    plugind.ctl(&["enable", name]).success();
    held(&mut wire);
    plugind.ctl(&["remove", name]).success();
    fails(wire.answer(&json!("held")), Kind::Cancelled);
    fails(wire.call(&json!(1), "echo", &json!(1)), Kind::NoSuchPlugin);
    // One of the same name is another plugin.
    plugind.ctl(&["install", "--enable", bundle.path()]).success();
    fails(wire.call(&json!(1), "echo", &json!(1)), Kind::NoSuchPlugin);
    wire.goes_on();
    assert_eq!(plugind.call(&bundle, "echo", &json!(1)).json(), 1);
    plugind.unharmed_but_for(&bundle);
}

#[test]
fn the_end_of_the_supervisor_ends_every_channel() {
    let bundle = Bundle::hostile();
    let mut plugind = started(&bundle);
    let mut wire = Wire::open(&plugind, RAW_CALL, &[bundle.name()]);
    let (socket, frame_max) = Wire::socket(&plugind, RAW_CALL, &[bundle.name()]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let channel = Channel::from_stream(socket, frame_max).unwrap();
        let arguments = to_raw_value(&json!({"key": "never"})).unwrap();
        let mut held = channel.invoke(bundle.name(), "hold", &arguments).start().await.unwrap();
        // The channel works in this thread, too.
        let at_the_plugin = async {
            while plugind.status(bundle.name())["in_flight"] != 1 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), at_the_plugin).await.expect("it is held");
        plugind.restart(|_| {});
        let Event::Done(outcome) = held.next().await else { panic!("no end") };
        let error = outcome.unwrap_err();
        assert!(matches!(error.kind, Kind::Unavailable | Kind::Cancelled), "{error:?}");
        assert!(!error.outcome_known, "{error:?}");
        let later = channel.call::<_, Value>(bundle.name(), "echo", &json!(1)).await;
        let error = later.unwrap_err();
        assert!(error.kind == Kind::Unavailable && error.outcome_known, "{error:?}");
    });
    assert_eq!(wire.line(), None);
    let mut wire = Wire::open(&plugind, RAW_CALL, &[bundle.name()]);
    assert_eq!(wire.call(&json!(1), "echo", &json!(1)), Ok(json!(1)));
    plugind.unharmed_but_for(&bundle);
}
