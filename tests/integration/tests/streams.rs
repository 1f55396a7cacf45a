//! Answers in parts, and readers that are too slow for them: each is slow for itself alone.
#![cfg(feature = "stage")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::io::Write as _;

use plugind_integration::channel::{Wire, fails, outcome};
use plugind_integration::{Bundle, Plugind, memory, until};
use plugind_protocol::Kind;
use serde_json::{Value, json};

const RAW_CALL: &str = env!("CARGO_BIN_EXE_raw-call");

/// What a supervisor's memory may rise by, whoever does not read. A caller may let 16 MiB pile up, in a buffer that
/// doubles.
const BOUND: u64 = 48 << 20;

/// A plugind with a hostile plugin that runs.
fn started(bundle: &Bundle) -> Plugind {
    let plugind = Plugind::new();
    plugind.ctl(&["install", "--enable", bundle.path()]).success();
    plugind.ctl(&["start", bundle.name()]).success();
    plugind
}

fn chunks(wire: &mut Wire, id: &Value, arguments: &Value, credit: u64) {
    wire.invoke(id, &json!({"command": "chunks", "arguments": arguments, "meta": {"credit": credit}}));
}

/// Waits until nothing is left to do for the plugin; its status then.
fn idle(plugind: &Plugind, bundle: &Bundle) -> Value {
    until("the plugin has nothing to do", || {
        let status = plugind.status(bundle.name());
        (status["in_flight"] == 0 && status["queued"] == 0).then_some(status)
    })
}

#[test]
fn chunks_come_in_order_by_the_callers_own_id_and_then_the_result() {
    let bundle = Bundle::hostile();
    let plugind = started(&bundle);
    let mut wire = Wire::open(&plugind, RAW_CALL, &[bundle.name()]);
    for id in [json!(7), json!("a \"b\"\n"), json!(-1)] {
        chunks(&mut wire, &id, &json!({"n": 100, "size": 10}), 3);
        for seq in 0..100 {
            let chunk = wire.notice("$/chunk");
            assert_eq!(
                (&chunk["invocation"], &chunk["seq"], &chunk["data"]["at"]),
                (&id, &json!(seq), &json!(seq))
            );
            wire.notify("$/credit", &json!({"invocation": id, "n": 1}));
        }
        assert_eq!(wire.answer(&id), Ok(json!({"chunks": 100})));
    }
    // Never more than the credit: this is all until more is given.
    chunks(&mut wire, &json!(1), &json!({"n": 5}), 2);
    let seqs = [0, 1].map(|_| wire.notice("$/chunk")["seq"].clone());
    assert_eq!(seqs, [0, 1]);
    assert_eq!(plugind.call(&bundle, "echo", &json!("between")).json(), "between");
    wire.goes_on();
    wire.notify("$/cancel", &json!({"invocation": 1}));
    fails(wire.answer(&json!(1)), Kind::Cancelled);
    // A call without any credit is one that takes no chunks.
    wire.invoke(&json!(1), &json!({"command": "meta"}));
    assert_eq!(wire.answer(&json!(1)).unwrap()["credit"], Value::Null);
    plugind.unharmed_but_for(&bundle);
}

#[test]
fn a_slow_reader_of_one_stream_does_not_hold_up_another_of_the_same_plugin() {
    let bundle = Bundle::hostile();
    let plugind = started(&bundle);
    let mut wire = Wire::open(&plugind, RAW_CALL, &[bundle.name()]);
    let mut other = Wire::open(&plugind, RAW_CALL, &[bundle.name()]);
    chunks(&mut wire, &json!("slow"), &json!({"n": 20, "size": 1000}), 1);
    assert_eq!(wire.notice("$/chunk")["seq"], 0);
    // On another channel, and on the same one.
    for wire in [&mut other, &mut wire] {
        chunks(wire, &json!("fast"), &json!({"n": 200, "size": 1000}), 1_000_000);
        for seq in 0..200 {
            let chunk = wire.notice("$/chunk");
            assert_eq!((&chunk["invocation"], &chunk["seq"]), (&json!("fast"), &json!(seq)));
        }
        assert_eq!(wire.answer(&json!("fast")), Ok(json!({"chunks": 200})));
    }
    wire.notify("$/credit", &json!({"invocation": "slow", "n": 100}));
    (1..20).for_each(|seq| assert_eq!(wire.notice("$/chunk")["seq"], seq));
    assert_eq!(wire.answer(&json!("slow")), Ok(json!({"chunks": 20})));
    plugind.unharmed_but_for(&bundle);
}

#[test]
fn a_stream_that_nobody_reads_stops_at_the_plugin_and_goes_on_when_it_is_read() {
    const CHUNKS: u64 = 2000;
    let bundle = Bundle::hostile();
    let plugind = started(&bundle);
    let mut wire = Wire::open(&plugind, RAW_CALL, &[bundle.name()]);
    let mut other = Wire::open(&plugind, RAW_CALL, &[bundle.name()]);
    let growth = memory::growth(plugind.pid(), || {
        // 64 MB in all, and leave to send it at once.
        chunks(&mut wire, &json!(1), &json!({"n": CHUNKS, "size": 32 << 10}), 1 << 40);
        for _ in 0..3 {
            chunks(&mut other, &json!(1), &json!({"n": CHUNKS}), 1 << 40);
            (0..CHUNKS).for_each(|seq| assert_eq!(other.notice("$/chunk")["seq"], seq));
            assert_eq!(other.answer(&json!(1)), Ok(json!({"chunks": CHUNKS})));
        }
        assert_eq!(plugind.call(&bundle, "echo", &json!("served")).json(), "served");
        assert_eq!(plugind.status(bundle.name())["in_flight"], 1, "the unread stream is not done");
        (0..CHUNKS).for_each(|seq| assert_eq!(wire.notice("$/chunk")["seq"], seq));
        assert_eq!(wire.answer(&json!(1)), Ok(json!({"chunks": CHUNKS})));
    });
    assert!(growth <= BOUND, "{} MiB", growth >> 20);
    plugind.unharmed_but_for(&bundle);
}

#[test]
fn a_chunk_against_the_rules_fails_its_call_alone() {
    let bundle = Bundle::hostile();
    let plugind = started(&bundle);
    let mut wire = Wire::open(&plugind, RAW_CALL, &[bundle.name()]);
    wire.invoke(&json!("other"), &json!({"command": "hold", "arguments": {"key": "a"}}));
    for (arguments, credit, said) in [
        (json!({"n": 1, "ignore_credit": true}), 0, "without credit"),
        (json!({"n": 3, "ignore_credit": true}), 2, "without credit"),
        (json!({"n": 1, "wrong_seq": true}), 5, "chunk 1 where 0 comes next"),
    ] {
        chunks(&mut wire, &json!(1), &arguments, credit);
        let error = loop {
            let message = wire.message();
            if message["method"] != "$/chunk" {
                break fails(outcome(&message), Kind::ProtocolViolation);
            }
        };
        assert!(error.message.contains(said) && !error.outcome_known, "{error:?}");
    }
    let cancels = plugind.call(&bundle, "cancels", &json!({})).json();
    let reasons: Vec<&Value> =
        cancels["cancels"].as_array().unwrap().iter().map(|cancel| &cancel["reason"]).collect();
    assert_eq!(reasons, ["protocol violation"; 3]);
    // By D-Bus nobody takes chunks.
    plugind.call(&bundle, "chunks", &json!({"n": 1, "ignore_credit": true})).fails(Kind::ProtocolViolation);
    plugind.call(&bundle, "release", &json!({"key": "a"})).success();
    assert_eq!(wire.answer(&json!("other")), Ok(json!({"released": true})));
    plugind.unharmed_but_for(&bundle);
}

#[test]
fn a_flood_of_progress_is_bounded_and_the_result_comes() {
    const STEPS: u64 = 100_000;
    let bundle = Bundle::hostile();
    let plugind = started(&bundle);
    let mut wire = Wire::open(&plugind, RAW_CALL, &[bundle.name()]);
    let growth = memory::growth(plugind.pid(), || {
        wire.invoke(&json!("p"), &json!({"command": "progress", "arguments": {"n": STEPS}}));
        let (mut passed, mut last) = (0, None);
        let answer = loop {
            let message = wire.message();
            if message["method"] != "$/progress" {
                break outcome(&message);
            }
            assert_eq!(message["params"]["invocation"], "p");
            let at = message["params"]["data"]["at"].as_u64();
            assert!(at > last, "{message} after {last:?}");
            (passed, last) = (passed + 1, at);
        };
        assert_eq!(answer, Ok(json!({"steps": STEPS})));
        // How much passes depends on how long it takes; what is left out is counted.
        assert!((1..STEPS / 2).contains(&passed), "{passed} steps passed");
        assert_eq!(plugind.status(bundle.name())["progress_dropped"], STEPS - passed);
    });
    assert!(growth <= BOUND, "{} MiB", growth >> 20);
    // By D-Bus nobody takes progress.
    assert_eq!(plugind.call(&bundle, "progress", &json!({"n": 10})).json(), json!({"steps": 10}));
    plugind.unharmed_but_for(&bundle);
}

#[test]
fn a_caller_that_does_not_read_holds_up_nobody_else_and_gets_all_answers_later() {
    const CALLS: u64 = 200;
    let bundle = Bundle::hostile();
    let plugind = started(&bundle);
    let mut wire = Wire::open(&plugind, RAW_CALL, &[bundle.name()]);
    let mut other = Wire::open(&plugind, RAW_CALL, &[bundle.name()]);
    let growth = memory::growth(plugind.pid(), || {
        // 12 MiB of answers.
        for id in 0..CALLS {
            wire.invoke(&json!(id), &json!({"command": "big-result", "arguments": {"bytes": 60 << 10}}));
        }
        assert_eq!(other.call(&json!(1), "echo", &json!("other")), Ok(json!("other")));
        assert_eq!(plugind.call(&bundle, "echo", &json!("by D-Bus")).json(), "by D-Bus");
        // The plugin has answered what was read from it, and is free.
        idle(&plugind, &bundle);
        assert_eq!(other.call(&json!(2), "echo", &json!("again")), Ok(json!("again")));
        assert_eq!(plugind.call(&bundle, "echo", &json!("again")).json(), "again");
        let mut answers = BTreeMap::new();
        while answers.len() < usize::try_from(CALLS).unwrap() {
            let message = wire.message();
            let length = message["result"]["data"].as_str().map(str::len);
            assert_eq!(answers.insert(message["id"].as_u64(), length), None, "each id once");
        }
        assert!(answers.values().all(|length| *length == Some(60 << 10)), "{answers:?}");
    });
    assert!(growth <= BOUND, "{} MiB", growth >> 20);
    wire.goes_on();
    plugind.unharmed_but_for(&bundle);
}

#[test]
fn a_caller_whose_answers_pile_up_is_closed_and_only_that_one() {
    let bundle = Bundle::hostile();
    let plugind = started(&bundle);
    let mut wire = Wire::open(&plugind, RAW_CALL, &[bundle.name()]);
    let mut other = Wire::open(&plugind, RAW_CALL, &[bundle.name()]);
    let growth = memory::growth(plugind.pid(), || {
        // 60 MiB of answers, asked for in a few kilobytes.
        for id in 0..100 {
            wire.invoke(&json!(id), &json!({"command": "big-result", "arguments": {"bytes": 600 << 10}}));
        }
        until("it is closed", || plugind.log().contains("closed a channel").then_some(()));
        assert_eq!(other.call(&json!(1), "echo", &json!("other")), Ok(json!("other")));
        idle(&plugind, &bundle);
    });
    assert!(growth <= BOUND, "{} MiB", growth >> 20);
    wire.ended();
    plugind.unharmed_but_for(&bundle);
}

#[test]
fn a_channel_that_is_full_in_both_directions_moves_again_when_it_is_read() {
    let bundle = Bundle::hostile();
    let plugind = started(&bundle);
    let mut wire = Wire::open(&plugind, RAW_CALL, &[bundle.name()]);
    let fill = "x".repeat(100_000);
    let lines: Vec<String> = (0..400)
        .map(|id| {
            let params = json!({"command": "echo", "arguments": {"id": id, "fill": fill}});
            let call = json!({"jsonrpc": "2.0", "id": id, "method": "command/invoke", "params": params});
            format!("{call}\n")
        })
        .collect();
    let calls = lines.concat().into_bytes();
    let growth = memory::growth(plugind.pid(), || {
        // Until there is nothing more that anybody could do before this end reads.
        let mut written = 0;
        until("both directions are full", || {
            let more = wire.push(&calls[written..]);
            written += more;
            assert!(written < calls.len(), "it never became full");
            let status = plugind.status(bundle.name());
            let idle = status["in_flight"] == 0 && status["queued"] == 0;
            let last = wire.push(&calls[written..]);
            written += last;
            (idle && more + last == 0).then_some(())
        });
        let mut writer = wire.writer();
        std::thread::scope(|scope| {
            scope.spawn(|| writer.write_all(&calls[written..]).unwrap());
            let mut seen = BTreeMap::new();
            while seen.len() < lines.len() {
                let message = wire.message();
                let answered = match outcome(&message) {
                    Ok(result) => {
                        assert!(result["id"] == message["id"] && result["fill"] == fill.as_str());
                        true
                    }
                    Err(error) => {
                        assert_eq!(error.kind, Kind::Busy, "{error:?}");
                        false
                    }
                };
                assert_eq!(seen.insert(message["id"].as_u64(), answered), None, "each id once");
            }
            assert!(seen.into_values().any(|answered| answered));
        });
    });
    assert!(growth <= BOUND, "{} MiB", growth >> 20);
    wire.goes_on();
    plugind.unharmed_but_for(&bundle);
}
