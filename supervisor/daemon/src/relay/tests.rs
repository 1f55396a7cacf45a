//! The relay against a peer that behaves as each test says, over real pipes.

use std::os::fd::OwnedFd;
use std::time::Duration;

use plugind_protocol::Kind;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};

use std::borrow::Cow;
use std::sync::Arc;

use plugind_protocol::Error;
use serde_json::value::RawValue;
use tokio::net::unix::pipe;
use tokio::time::Instant;

use super::*;

struct Peer {
    input: Lines<BufReader<pipe::Receiver>>,
    output: pipe::Sender,
    _stderr: std::io::PipeWriter,
}

impl Peer {
    async fn line(&mut self) -> serde_json::Value {
        let line = tokio::time::timeout(Duration::from_secs(10), self.input.next_line()).await.unwrap();
        serde_json::from_str(&line.unwrap().unwrap()).unwrap()
    }

    async fn say(&mut self, text: &str) {
        self.output.write_all(text.as_bytes()).await.unwrap();
        self.output.write_all(b"\n").await.unwrap();
    }

    async fn answer(&mut self, request: &serde_json::Value, result: serde_json::Value) {
        self.say(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result}).to_string()).await;
    }
}

const BOUNDS: Bounds = Bounds { frame_max: 64 * 1024, in_flight: 4 };

fn pool() -> Arc<Pool> {
    Pool::new("peer", BOUNDS, Arc::default())
}

/// One more instance of a plugin, past its handshake but for `attested`.
fn instance(pool: &Arc<Pool>) -> (Arc<Link>, Peer) {
    let (stdin_inside, stdin) = std::io::pipe().unwrap();
    let (stdout, stdout_inside) = std::io::pipe().unwrap();
    let (stderr, stderr_inside) = std::io::pipe().unwrap();
    let ours = [OwnedFd::from(stdin), OwnedFd::from(stdout), OwnedFd::from(stderr)];
    let link =
        Link::new(pool, ours, Arc::new(PluginLog::new("peer")), &tokio::runtime::Handle::current()).unwrap();
    link.open();
    let input = BufReader::new(pipe::Receiver::from_owned_fd(stdin_inside.into()).unwrap()).lines();
    let output = pipe::Sender::from_owned_fd(stdout_inside.into()).unwrap();
    (Arc::new(link), Peer { input, output, _stderr: stderr_inside })
}

fn link() -> (Arc<Pool>, Arc<Link>, Peer) {
    let pool = pool();
    let (link, peer) = instance(&pool);
    (pool, link, peer)
}

fn new_call(
    caller: u64,
    arguments: &serde_json::Value,
    time: Duration,
    sink: Arc<dyn Sink>,
) -> NewCall<'static> {
    static TEXTS: std::sync::LazyLock<[Arc<str>; 2]> =
        std::sync::LazyLock::new(|| ["\"somebody\"".into(), "\"c\"".into()]);
    NewCall {
        caller,
        who: &TEXTS[0],
        command: &TEXTS[1],
        arguments: Cow::Owned(RawValue::from_string(arguments.to_string()).unwrap()),
        dry_run: false,
        time,
        until: Some(Instant::now() + time),
        credit: 0,
        sink,
    }
}

/// A call whose caller is still there.
struct Call {
    ticket: Ticket,
    answer: tokio::sync::oneshot::Receiver<Result<Box<RawValue>, Error>>,
}

fn call(pool: &Arc<Pool>, number: u32) -> Call {
    call_of(pool, 1, &json!({ "n": number }), Duration::from_secs(20))
}

fn call_of(pool: &Arc<Pool>, caller: u64, arguments: &serde_json::Value, time: Duration) -> Call {
    let (once, answer) = Once::new();
    let ticket = pool.ticket();
    pool.submit(&ticket, new_call(caller, arguments, time, Arc::new(once)), &mut Batch::default());
    Call { ticket, answer }
}

async fn result(call: Call) -> String {
    call.answer.await.unwrap().unwrap().get().to_owned()
}

async fn kind(call: Call) -> (Kind, bool) {
    let error = call.answer.await.unwrap().unwrap_err();
    (error.kind, error.outcome_known)
}

fn n(request: &serde_json::Value) -> u64 {
    request["params"]["arguments"]["n"].as_u64().unwrap()
}

async fn violation(link: &Link) -> Kind {
    match tokio::time::timeout(Duration::from_secs(10), link.ended()).await.unwrap() {
        End::Violation(error) => error.kind,
        End::Closed => panic!("closed"),
    }
}

#[tokio::test]
async fn answers_in_any_order_reach_their_own_calls() {
    let (pool, _link, mut peer) = link();
    let (one, two) = (call(&pool, 1), call(&pool, 2));
    let (first, second) = (peer.line().await, peer.line().await);
    peer.answer(&second, n(&second).into()).await;
    peer.answer(&first, n(&first).into()).await;
    assert_eq!((result(one).await, result(two).await), ("1".into(), "2".into()));
}

#[tokio::test]
async fn a_wrong_a_repeated_and_a_late_answer_reach_nobody() {
    let (pool, _link, mut peer) = link();
    let one = call(&pool, 1);
    let request = peer.line().await;
    peer.say(r#"{"jsonrpc":"2.0","id":999999,"result":"wrong"}"#).await;
    peer.say(&format!(
        r#"{{"jsonrpc":"2.0","id":"{}","result":"a string is not our number"}}"#,
        request["id"]
    ))
    .await;
    peer.answer(&request, json!("right")).await;
    peer.answer(&request, json!("repeated")).await;
    assert_eq!(result(one).await, "\"right\"");
    let two = call(&pool, 2);
    let request = peer.line().await;
    peer.answer(&request, json!("second")).await;
    assert_eq!(result(two).await, "\"second\"");
    assert_eq!(pool.counters().strays(), 3);
}

#[tokio::test]
async fn an_instance_cannot_answer_a_call_of_another() {
    let (pool, _one, mut first) = link();
    let (_two, mut second) = instance(&pool);
    let (a, b) = (call(&pool, 1), call(&pool, 2));
    let (asked, other) = (first.line().await, second.line().await);
    second.answer(&asked, json!("forged")).await;
    second.answer(&other, json!("own")).await;
    assert_eq!(result(b).await, "\"own\"");
    first.answer(&asked, json!("right")).await;
    assert_eq!(result(a).await, "\"right\"");
}

#[tokio::test]
async fn calls_go_to_the_instance_with_the_least_to_do() {
    let (pool, _one, mut first) = link();
    let (_two, mut second) = instance(&pool);
    let calls: Vec<Call> = (0..4).map(|number| call(&pool, number)).collect();
    let mine = [first.line().await, first.line().await];
    let others = [second.line().await, second.line().await];
    for request in &others {
        second.answer(request, json!(1)).await;
    }
    let (mut calls, mut done) = (calls.into_iter(), Vec::new());
    for _ in 0..2 {
        let (_, answered) = (calls.next(), calls.next().unwrap());
        done.push(result(answered).await);
    }
    let _next = [call(&pool, 5), call(&pool, 6)];
    assert_eq!([n(&second.line().await), n(&second.line().await)], [5, 6], "the first has {mine:?}");
}

#[tokio::test]
async fn a_call_out_of_time_is_cancelled_at_the_plugin_and_its_late_answer_dropped() {
    let (pool, _link, mut peer) = link();
    let late = call_of(&pool, 1, &json!({ "n": 1 }), Duration::from_millis(50));
    let request = peer.line().await;
    assert_eq!(kind(late).await, (Kind::TimedOut, false));
    let cancel = peer.line().await;
    assert_eq!(
        (cancel["method"].as_str(), &cancel["params"]["invocation"]),
        (Some("$/cancel"), &request["params"]["meta"]["invocation"])
    );
    peer.answer(&request, json!("late")).await;
    let next = call(&pool, 2);
    let request = peer.line().await;
    peer.answer(&request, json!("mine")).await;
    assert_eq!(result(next).await, "\"mine\"");
}

#[tokio::test]
async fn a_caller_that_goes_away_cancels_its_call() {
    let (pool, _link, mut peer) = link();
    let gone = call(&pool, 1);
    peer.line().await;
    gone.ticket.cancel("caller gone", &mut Batch::default());
    assert_eq!(peer.line().await["params"]["reason"], "caller gone");
    assert_eq!(kind(gone).await, (Kind::Cancelled, false));
}

#[tokio::test]
async fn calls_beyond_in_flight_wait_their_turn_and_callers_take_turns() {
    let (pool, _link, mut peer) = link();
    let calls: Vec<Call> = (0..10).map(|number| call(&pool, number)).collect();
    let other = call_of(&pool, 2, &json!({ "n": 100 }), Duration::from_secs(20));
    assert_eq!(pool.load(), (4, 7));
    let mut order = Vec::new();
    for _ in 0..11 {
        let request = peer.line().await;
        order.push(n(&request));
        peer.answer(&request, json!(1)).await;
    }
    assert_eq!(
        order,
        [0, 1, 2, 3, 4, 100, 5, 6, 7, 8, 9],
        "the second caller comes right after one of the first"
    );
    for call in calls {
        result(call).await;
    }
    result(other).await;
    assert_eq!(pool.load(), (0, 0));
}

#[tokio::test]
async fn more_calls_than_may_wait_are_busy_and_another_caller_still_has_a_place() {
    let (pool, _link, _peer) = link();
    let mut calls: Vec<Call> = (0..4 + 1024).map(|number| call(&pool, number)).collect();
    assert_eq!(kind(call(&pool, 9999)).await, (Kind::Busy, true));
    let mut other = call_of(&pool, 2, &json!({ "n": 1 }), Duration::from_secs(20));
    let newest = calls.pop().unwrap();
    assert_eq!(kind(newest).await, (Kind::Busy, true), "the greediest gives way");
    assert!(other.answer.try_recv().is_err(), "the newcomer waits");
}

#[tokio::test]
async fn a_waiting_call_is_taken_back_without_a_word_to_the_plugin() {
    let (pool, _link, mut peer) = link();
    let mut calls: Vec<Call> = (0..5).map(|number| call(&pool, number)).collect();
    let last = calls.pop().unwrap();
    last.ticket.cancel("never mind", &mut Batch::default());
    assert_eq!(kind(last).await, (Kind::Cancelled, true));
    let late = call_of(&pool, 1, &json!({ "n": 6 }), Duration::from_millis(20));
    assert_eq!(kind(late).await, (Kind::TimedOut, true), "it never began");
    for _ in 0..4 {
        assert_eq!(peer.line().await["method"], "command/invoke");
    }
    let first = calls.remove(0);
    first.ticket.cancel("done with it", &mut Batch::default());
    assert_eq!(peer.line().await["method"], "$/cancel");
}

#[tokio::test]
async fn a_busy_plugin_is_still_asked_to_end() {
    let (pool, link, mut peer) = link();
    let _calls: Vec<Call> = (0..9).map(|number| call(&pool, number)).collect();
    for _ in 0..4 {
        peer.line().await;
    }
    let shutdown = {
        let link = Arc::clone(&link);
        tokio::spawn(async move {
            link.request("shutdown", &json!({}), Instant::now() + Duration::from_secs(20)).await
        })
    };
    let request = peer.line().await;
    assert_eq!(request["method"], "shutdown");
    peer.answer(&request, json!({})).await;
    assert_eq!(shutdown.await.unwrap().unwrap().get(), "{}");
}

#[tokio::test]
async fn a_frame_that_is_too_large_is_refused_before_it_is_sent() {
    let (pool, _link, mut peer) = link();
    for size in [BOUNDS.frame_max, BOUNDS.frame_max - 100] {
        let big = call_of(&pool, 1, &json!({ "x": "y".repeat(size) }), Duration::from_secs(5));
        assert_eq!(kind(big).await, (Kind::FrameTooLarge, true), "{size}");
    }
    let _small = call(&pool, 7);
    assert_eq!(n(&peer.line().await), 7, "nothing of them is left on the wire");
}

#[tokio::test]
async fn junk_is_tolerated_before_the_handshake_and_not_after() {
    let (pool, link, mut peer) = link();
    let first = call(&pool, 1);
    let request = peer.line().await;
    for _ in 0..30 {
        peer.say("[INFO] loading libfoo").await;
    }
    peer.answer(&request, json!(1)).await;
    result(first).await;
    link.attested();
    peer.say("a stray print").await;
    assert_eq!(violation(&link).await, Kind::ProtocolViolation);
}

#[tokio::test]
async fn endless_junk_before_the_handshake_ends() {
    let (_pool, link, mut peer) = link();
    for _ in 0..65 {
        peer.say("junk").await;
    }
    assert_eq!(violation(&link).await, Kind::ProtocolViolation);
}

#[tokio::test]
async fn what_is_no_frame_is_a_violation_at_once() {
    let brackets = "[".repeat(50_000);
    for (text, expected) in [
        ("[]", Kind::ProtocolViolation),
        ("7", Kind::ProtocolViolation),
        ("Content-Length: 12\r", Kind::ProtocolViolation),
        ("\u{feff}{}", Kind::ProtocolViolation),
        (brackets.as_str(), Kind::ProtocolViolation),
        ("{\"a\":\"\0\"}", Kind::ProtocolViolation),
    ] {
        let (_pool, link, mut peer) = link();
        peer.say(text).await;
        assert_eq!(violation(&link).await, expected, "{}", &text[..text.len().min(20)]);
    }
    let (_pool, link, mut peer) = link();
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(BOUNDS.frame_max));
    peer.say(&long).await;
    assert_eq!(violation(&link).await, Kind::FrameTooLarge);
}

#[tokio::test]
async fn both_directions_full_at_once_do_not_deadlock() {
    let (pool, _link, mut peer) = link();
    let text = "x".repeat(BOUNDS.frame_max - 1000);
    let calls: Vec<_> =
        (0..4).map(|_| call_of(&pool, 1, &json!({ "text": text }), Duration::from_secs(20))).collect();
    // The peer writes large answers before it reads the next request.
    for _ in 0..4 {
        let request = peer.line().await;
        peer.answer(&request, request["params"]["arguments"]["text"].clone()).await;
    }
    for call in calls {
        assert!(result(call).await.len() > BOUNDS.frame_max - 2000);
    }
}

#[tokio::test]
async fn the_end_of_the_plugin_fails_every_call_with_its_cause() {
    let (pool, link, mut peer) = link();
    let one = call(&pool, 1);
    peer.line().await;
    drop(peer);
    assert_eq!(link.ended().await, End::Closed);
    link.fail_all(&Error::new(Kind::Crashed, "it ended", "see its log"));
    assert_eq!(kind(one).await, (Kind::Crashed, false));
    let mut next = call(&pool, 2);
    assert!(next.answer.try_recv().is_err(), "it waits for another instance");
    tokio::time::timeout(Duration::from_secs(5), pool.wanted()).await.expect("one is asked for");
}

#[tokio::test]
async fn a_request_of_the_plugin_is_answered_as_unknown() {
    let (_pool, _link, mut peer) = link();
    peer.say(r#"{"jsonrpc":"2.0","id":"mine-1","method":"host/kv.get","params":{}}"#).await;
    let answer = peer.line().await;
    assert_eq!((answer["id"].as_str(), answer["error"]["code"].as_i64()), (Some("mine-1"), Some(-32601)));
}

#[tokio::test]
async fn a_plugin_that_floods_answers_to_nobody_is_counted_and_not_kept() {
    let (pool, link, mut peer) = link();
    for _ in 0..2000 {
        peer.say(r#"{"jsonrpc":"2.0","id":1000000007,"result":"x"}"#).await;
    }
    let one = call(&pool, 1);
    let request = peer.line().await;
    peer.answer(&request, json!(1)).await;
    assert_eq!(result(one).await, "1");
    assert_eq!(pool.counters().strays(), 2000);
    drop(link);
}

/// A caller that takes streams and notes what it gets.
#[derive(Default)]
struct Notes {
    words: std::sync::Mutex<Vec<String>>,
    full: std::sync::atomic::AtomicBool,
    more: tokio::sync::Notify,
}

impl Notes {
    fn note(&self, word: String) {
        self.words.lock().unwrap().push(word);
        self.more.notify_one();
    }

    async fn until(&self, word: &str) -> Vec<String> {
        loop {
            let words = self.words.lock().unwrap().clone();
            if words.last().is_some_and(|last| last.starts_with(word)) {
                return words;
            }
            tokio::time::timeout(Duration::from_secs(10), self.more.notified()).await.expect(word);
        }
    }
}

impl Sink for Notes {
    fn done(&self, outcome: Outcome<'_>, _: &mut Batch) {
        self.note(match outcome {
            Ok(result) => format!("done {result}"),
            Err(error) => format!("failed {} {}", error.kind, error.outcome_known),
        });
    }

    fn progress(&self, data: &RawValue, _: &mut Batch) -> bool {
        self.note(format!("progress {data}"));
        true
    }

    fn chunk(&self, seq: u64, data: &RawValue, _: &mut Batch) {
        self.note(format!("chunk {seq} {data}"));
    }

    fn has_room(&self) -> bool {
        !self.full.load(std::sync::atomic::Ordering::Relaxed)
    }
}

async fn stream(pool: &Arc<Pool>, peer: &mut Peer, credit: u64) -> (Arc<Notes>, Ticket, serde_json::Value) {
    let notes = Arc::new(Notes::default());
    let ticket = pool.ticket();
    let sink = Arc::clone(&notes) as Arc<dyn Sink>;
    let new = NewCall { credit, ..new_call(1, &json!({}), Duration::from_secs(20), sink) };
    pool.submit(&ticket, new, &mut Batch::default());
    let request = peer.line().await;
    (notes, ticket, request)
}

async fn part(peer: &mut Peer, method: &str, request: &serde_json::Value, seq: u64) {
    let params = json!({ "invocation": request["params"]["meta"]["invocation"], "seq": seq, "data": seq });
    peer.say(&json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string()).await;
}

#[tokio::test]
async fn chunks_and_progress_come_in_order_before_the_result() {
    let (pool, _link, mut peer) = link();
    let (notes, _ticket, request) = stream(&pool, &mut peer, 2).await;
    assert_eq!(request["params"]["meta"]["credit"], 2);
    part(&mut peer, "$/chunk", &request, 0).await;
    part(&mut peer, "$/progress", &request, 7).await;
    part(&mut peer, "$/chunk", &request, 1).await;
    peer.answer(&request, json!("end")).await;
    assert_eq!(notes.until("done").await, ["chunk 0 0", "progress 7", "chunk 1 1", "done \"end\""]);
    part(&mut peer, "$/chunk", &request, 2).await;
    let next = call(&pool, 1);
    let request = peer.line().await;
    peer.answer(&request, json!(1)).await;
    result(next).await;
    assert_eq!(pool.counters().strays(), 1, "what comes after the result is nobody's");
}

#[tokio::test]
async fn a_chunk_without_credit_or_out_of_order_ends_its_call_alone() {
    let (pool, link, mut peer) = link();
    link.attested();
    for (credit, seq) in [(0, 0), (5, 1)] {
        let (notes, _ticket, request) = stream(&pool, &mut peer, credit).await;
        let other = call(&pool, 9);
        let asked = peer.line().await;
        part(&mut peer, "$/chunk", &request, seq).await;
        assert_eq!(notes.until("failed").await, ["failed ProtocolViolation false"]);
        assert_eq!(peer.line().await["method"], "$/cancel");
        peer.answer(&asked, json!("well")).await;
        assert_eq!(result(other).await, "\"well\"");
    }
}

#[tokio::test]
async fn credit_passes_on_within_a_window_and_only_while_the_caller_has_room() {
    let (pool, _link, mut peer) = link();
    let (notes, ticket, request) = stream(&pool, &mut peer, 1_000_000).await;
    assert_eq!(request["params"]["meta"]["credit"], 16);
    for seq in 0..8 {
        part(&mut peer, "$/chunk", &request, seq).await;
    }
    let credit = peer.line().await;
    assert_eq!((credit["method"].as_str(), credit["params"]["n"].as_u64()), (Some("$/credit"), Some(8)));
    notes.full.store(true, std::sync::atomic::Ordering::Relaxed);
    for seq in 8..24 {
        part(&mut peer, "$/chunk", &request, seq).await;
    }
    notes.until("chunk 23").await;
    let ping = call(&pool, 5);
    let asked = peer.line().await;
    assert_eq!(n(&asked), 5, "no credit came before it");
    peer.answer(&asked, json!(1)).await;
    result(ping).await;
    notes.full.store(false, std::sync::atomic::Ordering::Relaxed);
    ticket.credit(0, &mut Batch::default());
    assert_eq!(peer.line().await["params"]["n"], 16);
}

#[tokio::test]
async fn progress_that_is_too_fast_is_left_out_and_counted_and_no_answer_is() {
    let (pool, _link, mut peer) = link();
    let (notes, _ticket, request) = stream(&pool, &mut peer, 0).await;
    for seq in 0..500 {
        part(&mut peer, "$/progress", &request, seq).await;
    }
    peer.answer(&request, json!("end")).await;
    let words = notes.until("done").await;
    assert!(words.len() < 100, "{}", words.len());
    assert_eq!(pool.counters().progress_dropped() + words.len() as u64 - 1, 500);
}

#[tokio::test]
async fn another_instance_cannot_speak_for_a_call() {
    let (pool, _one, mut first) = link();
    let (notes, _ticket, request) = stream(&pool, &mut first, 5).await;
    let (_two, mut second) = instance(&pool);
    part(&mut second, "$/chunk", &request, 0).await;
    part(&mut second, "$/progress", &request, 0).await;
    let ping = call(&pool, 1);
    let asked = second.line().await;
    second.answer(&asked, json!(1)).await;
    result(ping).await;
    first.answer(&request, json!("end")).await;
    assert_eq!(notes.until("done").await, ["done \"end\""]);
    assert_eq!(pool.counters().strays(), 2);
}

#[tokio::test]
async fn a_plugin_that_streams_and_never_reads_its_credit_is_ended() {
    let (pool, link, mut peer) = link();
    let (notes, _ticket, request) = stream(&pool, &mut peer, u64::MAX).await;
    let invocation = request["params"]["meta"]["invocation"].as_str().unwrap();
    let Peer { output, .. } = &mut peer;
    let flood = async {
        for seq in 0_u64.. {
            let chunk = json!({ "jsonrpc": "2.0", "method": "$/chunk",
                "params": { "invocation": invocation, "seq": seq, "data": 0 } });
            if output.write_all(format!("{chunk}\n").as_bytes()).await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        () = flood => panic!("nobody reads"),
        kind = violation(&link) => assert_eq!(kind, Kind::ProtocolViolation),
    }
    link.fail_all(&Error::new(Kind::ProtocolViolation, "it does not read", "mend it"));
    notes.until("failed ProtocolViolation").await;
}

#[tokio::test]
async fn an_instance_that_has_ended_gets_no_further_call() {
    let (pool, one, first) = link();
    drop(first);
    assert_eq!(one.ended().await, End::Closed);
    let (_two, mut second) = instance(&pool);
    let calls = [call(&pool, 1), call(&pool, 2)];
    for call in calls {
        let request = second.line().await;
        second.answer(&request, json!("served")).await;
        assert_eq!(result(call).await, "\"served\"");
    }
}
