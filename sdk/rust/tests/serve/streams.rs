//! What a command sends before its result.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use plugind_sdk::{Call, Failure, code};
use serde_json::{Value, json};

use crate::sample::{initialize, invoke};
use crate::session::{Session, talk};
use crate::worker;

/// A plugin whose command sends its argument's numbers as chunks, and answers how many went out.
fn counting(call: &Call, args: Value) -> Result<Value, Failure> {
    let count: u64 = serde_json::from_value(args)?;
    for number in 0..count {
        call.chunk(&number)?;
    }
    Ok(json!({"sent": count, "stream": call.takes_chunks()}))
}

fn with_credit(mut request: Value, credit: u64) -> Value {
    request["params"]["meta"]["credit"] = json!(credit);
    request
}

fn credit(id: u64, n: u64) -> Value {
    json!({"jsonrpc": "2.0", "method": "$/credit", "params": {"invocation": format!("call-{id}"), "n": n}})
}

fn chunk(id: u64, seq: u64, data: impl Into<Value>) -> Value {
    json!({"jsonrpc": "2.0", "method": "$/chunk",
           "params": {"invocation": format!("call-{id}"), "seq": seq, "data": data.into()}})
}

/// The session after its handshake.
fn start<F>(run: F) -> Session
where
    F: Fn(&Call, Value) -> Result<Value, Failure> + Send + Sync + 'static,
{
    let mut session = Session::start(worker(run));
    session.send(&initialize(&["work"]));
    assert!(session.receive()["result"].is_object());
    session
}

#[test]
fn chunks_go_out_as_credit_allows_and_the_result_last() {
    let mut session = start(counting);
    session.send(&with_credit(invoke(1, "work", json!(5)), 2));
    assert_eq!(session.receive(), chunk(1, 0, 0));
    assert_eq!(session.receive(), chunk(1, 1, 1));
    // Nothing else is on its way: the answer to a ping comes next.
    session.send(&json!({"jsonrpc": "2.0", "id": 2, "method": "ping"}));
    assert_eq!(session.receive()["id"], 2);
    session.send(&credit(1, 1));
    assert_eq!(session.receive(), chunk(1, 2, 2));
    session.send(&credit(7, 100));
    session
        .send(&json!({"jsonrpc": "2.0", "method": "$/credit", "params": {"invocation": "call-1", "n": -1}}));
    session.send(&json!({"jsonrpc": "2.0", "id": 3, "method": "ping"}));
    assert_eq!(session.receive()["id"], 3, "credit of another call, or none, is none");
    session.send(&credit(1, u64::MAX));
    assert_eq!(session.receive(), chunk(1, 3, 3));
    assert_eq!(session.receive(), chunk(1, 4, 4));
    assert_eq!(session.receive()["result"], json!({"sent": 5, "stream": true}));
    session.finish().unwrap();
}

#[test]
fn a_caller_that_takes_no_chunks_is_sent_none() {
    let (end, answers) = talk(
        worker(counting),
        &[initialize(&["work"]), invoke(1, "work", json!(0)), invoke(2, "work", json!(1))],
    );
    end.unwrap();
    assert_eq!(answers["1"]["result"], json!({"sent": 0, "stream": false}));
    assert_eq!(answers["2"]["error"]["code"], code::FAILED);
    assert_eq!(answers.len(), 3, "{answers:?}");
}

#[test]
fn a_call_that_waits_for_credit_learns_that_it_is_cancelled() {
    let mut session = start(counting);
    session.send(&with_credit(invoke(1, "work", json!(2)), 1));
    assert_eq!(session.receive(), chunk(1, 0, 0));
    session.send(&json!({"jsonrpc": "2.0", "method": "$/cancel", "params": {"invocation": "call-1"}}));
    assert_eq!(session.receive()["error"]["code"], code::CANCELLED);
    session.finish().unwrap();
}

#[test]
fn a_call_that_waits_for_credit_stops_at_its_deadline() {
    let mut session = start(counting);
    let mut request = with_credit(invoke(1, "work", json!(2)), 1);
    request["params"]["meta"]["deadline_ms"] = json!(50);
    let start = Instant::now();
    session.send(&request);
    assert_eq!(session.receive(), chunk(1, 0, 0));
    assert_eq!(session.receive()["error"]["code"], code::CANCELLED);
    assert!(start.elapsed() >= Duration::from_millis(50));
    session.finish().unwrap();
}

#[test]
fn the_end_of_input_leaves_the_credit_that_was_given_and_no_hope_for_more() {
    let mut session = start(counting);
    session.send(&with_credit(invoke(1, "work", json!(2)), 2));
    session.send(&with_credit(invoke(2, "work", json!(2)), 1));
    let mut frames: Vec<Value> = (0..4).map(|_| session.receive()).collect();
    frames.sort_by_key(|frame| (frame["id"].to_string(), frame["params"].to_string()));
    assert_eq!(frames[0]["result"]["sent"], 2);
    assert_eq!(frames[1..], [chunk(1, 0, 0), chunk(2, 0, 0), chunk(1, 1, 1)]);
    // The second call waits for credit, well before its deadline.
    let start = Instant::now();
    session.finish().unwrap();
    assert!(start.elapsed() < Duration::from_secs(15));
}

#[test]
fn a_chunk_that_fits_no_frame_fails_and_takes_no_credit() {
    let mut session = start(|call, _| {
        assert!(call.chunk(&"x".repeat(2 << 20)).is_err());
        let deep = (0..70).fold(json!(0), |inner, _| json!([inner]));
        assert!(call.chunk(&deep).is_err());
        call.progress(&deep);
        call.chunk("fits")?;
        Ok(json!("done"))
    });
    session.send(&with_credit(invoke(1, "work", json!(null)), 1));
    assert_eq!(session.receive(), chunk(1, 0, "fits"));
    assert_eq!(session.receive()["result"], "done");
    session.finish().unwrap();
}

#[test]
fn progress_needs_no_credit_and_is_marked_with_its_call() {
    let mut session = start(|call, _| {
        call.progress(&json!({"done": 1, "of": 2}));
        Ok(json!(null))
    });
    session.send(&invoke(1, "work", json!(null)));
    let progress = session.receive();
    assert_eq!(progress["method"], "$/progress");
    assert_eq!(progress["params"], json!({"invocation": "call-1", "data": {"done": 1, "of": 2}}));
    assert!(session.receive()["result"].is_null());
    session.finish().unwrap();
}

#[test]
fn chunks_of_several_threads_are_numbered_in_the_order_they_go() {
    let failures = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&failures);
    let mut session = start(move |call, _| {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..25 {
                        seen.lock().unwrap().extend(call.chunk(&()).err());
                    }
                });
            }
        });
        Ok(json!("done"))
    });
    session.send(&with_credit(invoke(1, "work", json!(null)), 1));
    for seq in 0..100 {
        assert_eq!(session.receive(), chunk(1, seq, json!(null)));
        session.send(&credit(1, 1));
    }
    assert_eq!(session.receive()["result"], "done");
    assert!(failures.lock().unwrap().is_empty());
    session.finish().unwrap();
}
