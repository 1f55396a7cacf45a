//! The SDK's side of the protocol, over streams in memory and over pipes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../sample/mod.rs"]
mod sample;
mod session;
mod streams;

use std::sync::mpsc;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use plugind_sdk::{Call, Error, Failure, Level, Plugin, code};
use sample::{initialize, invoke, manifest, plugin};
use serde::Deserialize;
use serde_json::{Value, json};
use session::{Session, talk};

#[derive(Clone, Copy, Deserialize)]
struct Add {
    left: i64,
    right: i64,
}

fn add(_: &Call, args: Add) -> Result<i64, Failure> {
    args.left.checked_add(args.right).ok_or_else(|| Failure::new("too large").with_code(7).with_data("sum"))
}

/// A plugin whose only command is `work`.
fn worker<F>(run: F) -> Plugin
where
    F: Fn(&Call, Value) -> Result<Value, Failure> + Send + Sync + 'static,
{
    plugin(&["work"]).command("work", run)
}

#[test]
fn a_call_is_answered_and_the_end_of_input_loses_nothing() {
    let own = plugin(&["add"]).command("add", add);
    let ping = json!({"jsonrpc": "2.0", "id": "last", "method": "ping"});
    let (end, answers) = talk(
        own,
        &[
            initialize(&["add"]),
            invoke(1, "add", json!({"left": 2, "right": 3})),
            invoke(2, "add", json!({"left": i64::MAX, "right": 1})),
            ping,
        ],
    );
    end.unwrap();
    assert_eq!(answers[&json!(0).to_string()]["result"]["name"], "sample");
    assert_eq!(answers["1"]["result"], 5);
    assert_eq!(answers["2"]["error"], json!({"code": 7, "message": "too large", "data": "sum"}));
    assert_eq!(answers["\"last\""]["result"], json!({}));
}

#[test]
fn the_handshake_states_the_compiled_in_values() {
    let (end, answers) = talk(plugin(&["add"]).command("add", add), &[initialize(&["add"])]);
    end.unwrap();
    let digest = plugind_protocol::digest::commands(&manifest(&["add"])).unwrap();
    assert_eq!(
        answers["0"]["result"],
        json!({"protocol": "plugind/1", "name": "sample", "version": "1.2.3", "commands_digest": digest})
    );
}

#[test]
fn another_program_is_refused_and_nothing_follows() {
    for (key, value) in
        [("protocol", "plugind/2"), ("name", "other"), ("version", "1.2.4"), ("commands_digest", "00")]
    {
        let mut request = initialize(&["add"]);
        request["params"][key] = json!(value);
        let (end, answers) =
            talk(plugin(&["add"]).command("add", add), &[request, invoke(1, "add", json!({}))]);
        let Err(Error::Attestation(differences)) = end else { panic!("{key}: {end:?}") };
        assert!(differences.contains(key) && differences.contains(value), "{differences}");
        assert_eq!(answers.len(), 1);
        assert_eq!(answers["0"]["error"]["code"], code::ATTESTATION_FAILED);
    }
}

#[test]
fn what_does_not_fit_is_refused_by_its_own_code() {
    let own = plugin(&["add"]).command("add", add);
    let mut dry = invoke(6, "add", json!({"left": 1, "right": 1}));
    dry["params"]["meta"]["dry_run"] = json!(true);
    let mut late = invoke(7, "add", json!({"left": 1, "right": 1}));
    late["params"]["meta"]["deadline_ms"] = json!(0);
    let (end, answers) = talk(
        own,
        &[
            invoke(1, "add", json!({"left": 1, "right": 1})),
            initialize(&["add"]),
            invoke(2, "add", json!({"left": "one"})),
            invoke(3, "subtract", json!({})),
            json!({"jsonrpc": "2.0", "id": 4, "method": "http/request", "params": {}}),
            json!({"jsonrpc": "2.0", "id": 5, "method": "initialize", "params": {}}),
            dry,
            late,
            json!({"jsonrpc": "2.0", "method": "$/event", "params": {"topic": "x"}}),
            json!({"jsonrpc": "2.0", "id": 8, "result": {}}),
        ],
    );
    end.unwrap();
    let codes: Vec<i64> =
        (1..=7).map(|id| answers[&id.to_string()]["error"]["code"].as_i64().unwrap()).collect();
    assert_eq!(
        codes,
        [
            code::INVALID_REQUEST,
            code::INVALID_PARAMS,
            code::METHOD_NOT_FOUND,
            code::METHOD_NOT_FOUND,
            code::INVALID_REQUEST,
            code::INVALID_PARAMS,
            code::CANCELLED
        ]
    );
    assert_eq!(answers.len(), 8);
}

#[test]
fn lines_that_are_no_frames_are_answered_and_passed_over() {
    for (line, expected) in [
        ("{", code::PARSE_ERROR),
        ("[]", code::INVALID_REQUEST),
        ("{\"id\":1}", code::INVALID_REQUEST),
        ("junk", code::INVALID_REQUEST),
    ] {
        let input = format!("{line}\r\n\r\n{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}}\r\n{{\"half");
        let (end, answers) = session::talk_raw(plugin(&["add"]).command("add", add), input.as_bytes());
        end.unwrap();
        assert_eq!(answers["null"]["error"]["code"], expected, "{line}");
        assert_eq!(answers["1"]["result"], json!({}));
    }
}

#[test]
fn a_panic_is_the_failure_of_its_call_only() {
    let own = worker(|_, args| {
        assert!(args != json!("bad"), "cannot stand {args}");
        Ok(args)
    });
    let (end, answers) = talk(
        own.workers(1),
        &[initialize(&["work"]), invoke(1, "work", json!("bad")), invoke(2, "work", json!("good"))],
    );
    end.unwrap();
    assert_eq!(answers["1"]["error"]["code"], code::INTERNAL_ERROR);
    assert_eq!(answers["1"]["error"]["message"], "the command panicked: cannot stand \"bad\"");
    assert_eq!(answers["2"]["result"], "good");
}

#[test]
fn frames_over_frame_max_are_errors_in_both_directions() {
    let own =
        worker(|_, args| Ok(json!("x".repeat(usize::try_from(args["size"].as_u64().unwrap()).unwrap()))));
    let mut handshake = initialize(&["work"]);
    handshake["params"]["limits"] = json!({"frame_max": 1000, "in_flight": 8});
    // The answer is {"jsonrpc":"2.0","id":1,"result":"…"}.
    let around = 36;
    let mut input = Vec::new();
    for request in [
        handshake,
        invoke(1, "work", json!({"size": 1000 - around})),
        invoke(2, "work", json!({"size": 1001 - around})),
        invoke(3, "work", json!({"size": 1, "padding": "x".repeat(1000)})),
    ] {
        input.extend(format!("{request}\n").into_bytes());
    }
    input.extend(vec![b'x'; (16 << 20) + 10]);
    input.push(b'\n');
    input.extend(format!("{}\n", invoke(4, "work", json!({"size": 1}))).into_bytes());
    let (end, answers) = session::talk_raw(own, &input);
    end.unwrap();
    assert_eq!(answers["1"].to_string().len(), 1000);
    assert_eq!(answers["2"]["error"]["code"], code::INTERNAL_ERROR);
    assert!(answers["2"]["error"]["message"].as_str().unwrap().contains("frame_max is 1000"));
    assert_eq!(answers["3"]["error"]["code"], code::INVALID_REQUEST);
    assert_eq!(answers["null"]["error"]["code"], code::INVALID_REQUEST);
    assert_eq!(answers["4"]["result"], "x");
}

#[test]
fn a_result_that_nests_too_deep_is_an_error() {
    let own = worker(|_, args| Ok((1..args.as_u64().unwrap()).fold(json!([]), |inner, _| json!([inner]))));
    let (end, answers) =
        talk(own, &[initialize(&["work"]), invoke(1, "work", json!(63)), invoke(2, "work", json!(64))]);
    end.unwrap();
    assert!(answers["1"]["result"].is_array());
    assert_eq!(answers["2"]["error"]["code"], code::INTERNAL_ERROR);
}

#[test]
fn a_dry_run_reaches_a_command_that_has_one() {
    let manifest = String::from_utf8(manifest(&["work"])).unwrap();
    let manifest = manifest.replace("\"risk\"", "\"dry_run\":true,\"risk\"").into_bytes();
    let own = Plugin::from_manifest(&manifest).unwrap();
    let own = own.command("work", |call: &Call, (): ()| Ok::<_, Failure>(call.dry_run()));
    let mut handshake = initialize(&["work"]);
    handshake["params"]["commands_digest"] = json!(plugind_protocol::digest::commands(&manifest).unwrap());
    let mut dry = invoke(1, "work", json!(null));
    dry["params"]["meta"]["dry_run"] = json!(true);
    let (end, answers) = talk(own, &[handshake, dry]);
    end.unwrap();
    assert_eq!(answers["1"]["result"], true);
}

#[test]
fn commands_run_side_by_side() {
    let both = Barrier::new(2);
    let own = worker(move |_, args| {
        both.wait();
        Ok(args)
    });
    let (end, answers) =
        talk(own, &[initialize(&["work"]), invoke(1, "work", json!(1)), invoke(2, "work", json!(2))]);
    end.unwrap();
    assert_eq!((&answers["1"]["result"], &answers["2"]["result"]), (&json!(1), &json!(2)));
}

/// A plugin of one thread, whose commands each wait for a word on the channel.
fn blocked() -> (Session, mpsc::Sender<()>) {
    let (release, wait) = mpsc::channel();
    let wait = Mutex::new(wait);
    let own = worker(move |call, args| {
        call.log(Level::Info, "began");
        wait.lock().unwrap().recv_timeout(session::PATIENCE).map_err(Failure::from)?;
        Ok(args)
    });
    let mut session = Session::start(own.workers(1));
    session.send(&initialize(&["work"]));
    assert!(session.receive()["result"].is_object());
    (session, release)
}

#[test]
fn ping_is_answered_while_every_worker_is_busy() {
    let (mut session, release) = blocked();
    session.send(&invoke(1, "work", json!("first")));
    assert_eq!(session.receive()["params"]["message"], "began");
    session.send(&json!({"jsonrpc": "2.0", "id": 2, "method": "ping"}));
    assert_eq!(session.receive(), json!({"jsonrpc": "2.0", "id": 2, "result": {}}));
    release.send(()).unwrap();
    assert_eq!(session.receive()["result"], "first");
    session.finish().unwrap();
}

#[test]
fn a_waiting_call_that_is_cancelled_never_begins() {
    let (mut session, release) = blocked();
    session.send(&invoke(1, "work", json!("first")));
    assert_eq!(session.receive()["params"]["fields"]["invocation"], "call-1");
    session.send(&invoke(2, "work", json!("second")));
    session.send(&json!({"jsonrpc": "2.0", "method": "$/cancel", "params": {"invocation": "call-2", "reason": "test"}}));
    // Frames are handled in their order, so the answer shows that the cancel was.
    session.send(&json!({"jsonrpc": "2.0", "id": 3, "method": "ping"}));
    assert_eq!(session.receive()["id"], 3);
    release.send(()).unwrap();
    assert_eq!(session.receive()["result"], "first");
    assert_eq!(session.receive()["error"]["code"], code::CANCELLED);
    session.finish().unwrap();
}

#[test]
fn more_calls_than_in_flight_are_refused_at_once() {
    let (release, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let own = worker(move |_, args| {
        wait.lock().unwrap().recv_timeout(session::PATIENCE).map_err(Failure::from)?;
        Ok(args)
    });
    let mut session = Session::start(own);
    let mut handshake = initialize(&["work"]);
    handshake["params"]["limits"] = json!({"in_flight": 1});
    session.send(&handshake);
    assert!(session.receive()["result"].is_object());
    // One more than in_flight may be answered and not signed off, and the third is too many.
    for id in 1..=3 {
        session.send(&invoke(id, "work", json!(id)));
    }
    let refused = session.receive();
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(3), &json!(code::BUSY)));
    for id in 1..=2 {
        release.send(()).unwrap();
        assert_eq!(session.receive()["result"], id);
    }
    session.finish().unwrap();
}

/// A plugin whose command runs until it is cancelled, or its deadline passed.
fn until_cancelled() -> Session {
    let own = worker(|call, _| {
        call.log(Level::Info, "began");
        while !call.is_cancelled() && !call.time_left().is_zero() {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        if call.is_cancelled() { Err(Failure::cancelled()) } else { Err(Failure::new("nobody cancelled")) }
    });
    let mut session = Session::start(own);
    session.send(&initialize(&["work"]));
    assert!(session.receive()["result"].is_object());
    session.send(&invoke(1, "work", json!(null)));
    assert_eq!(session.receive()["params"]["message"], "began");
    session
}

#[test]
fn a_running_call_learns_that_it_is_cancelled() {
    let mut session = until_cancelled();
    session.send(&json!({"jsonrpc": "2.0", "method": "$/cancel", "params": {"invocation": "call-1"}}));
    assert_eq!(session.receive()["error"]["code"], code::CANCELLED);
    session.finish().unwrap();
}

#[test]
fn shutdown_cancels_what_runs_and_answers_last() {
    let mut session = until_cancelled();
    session.send(&json!({"jsonrpc": "2.0", "id": 2, "method": "shutdown"}));
    assert_eq!(session.receive()["error"]["code"], code::CANCELLED);
    assert_eq!(session.receive(), json!({"jsonrpc": "2.0", "id": 2, "result": {}}));
    session.wait().unwrap();
}

#[test]
fn a_call_tells_what_it_is_and_logs_are_bounded() {
    let own = worker(|call, _| {
        call.log(Level::Warn, "ü".repeat(8 << 10));
        Ok(json!({"caller": call.caller(), "invocation": call.invocation(), "dry_run": call.dry_run(),
                  "has_time": call.time_left() > Duration::ZERO && call.deadline() > std::time::Instant::now()}))
    });
    let mut session = Session::start(own);
    session.send(&initialize(&["work"]));
    session.receive();
    session.send(&invoke(1, "work", json!({})));
    let log = session.receive();
    assert_eq!((&log["method"], &log["params"]["level"]), (&json!("log"), &json!("warn")));
    assert_eq!(log["params"]["message"], "ü".repeat(4 << 10));
    assert_eq!(
        session.receive()["result"],
        json!({"caller": "tester", "invocation": "call-1", "dry_run": false, "has_time": true})
    );
    session.finish().unwrap();
}

#[test]
fn a_supervisor_that_is_gone_ends_the_plugin() {
    let own = plugin(&["add"]).command("add", add);
    let mut session = Session::start(own);
    session.drop_output();
    session.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}));
    let Err(Error::Io(cause)) = session.wait() else { panic!("the plugin goes on") };
    assert_eq!(cause.kind(), std::io::ErrorKind::BrokenPipe);
}

#[test]
fn a_plugin_serves_only_what_its_manifest_says() {
    let refused = |plugin: Plugin| match plugin.serve_on(&b""[..], std::io::sink()) {
        Err(Error::Commands(cause)) => cause,
        other => panic!("{other:?}"),
    };
    assert!(refused(plugin(&["add"])).contains("`add` has no function"));
    assert!(refused(plugin(&[]).command("add", add)).contains("`add` is not in the manifest"));
    let twice = plugin(&["add"]).command("add", add).command("add", add);
    assert!(refused(twice).contains("twice"));
    let Err(Error::Manifest(_)) = Plugin::from_manifest(b"{}") else {
        panic!("an empty manifest is accepted")
    };
    let unused = Arc::new(());
    let own = plugin(&["add"]).command("add", move |_: &Call, (): ()| Ok(Arc::strong_count(&unused)));
    own.serve_on(&b""[..], std::io::sink()).unwrap();
}
