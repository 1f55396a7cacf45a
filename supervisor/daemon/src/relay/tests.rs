//! The relay against a peer that behaves as each test says, over real pipes.

use std::os::fd::OwnedFd;
use std::time::Duration;

use plugind_protocol::Kind;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};

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

fn link() -> (Arc<Link>, Peer) {
    let (stdin_inside, stdin) = std::io::pipe().unwrap();
    let (stdout, stdout_inside) = std::io::pipe().unwrap();
    let (stderr, stderr_inside) = std::io::pipe().unwrap();
    let ours = [OwnedFd::from(stdin), OwnedFd::from(stdout), OwnedFd::from(stderr)];
    let link = Link::new("peer", BOUNDS, ours, Arc::new(PluginLog::new("peer"))).unwrap();
    let input = BufReader::new(pipe::Receiver::from_owned_fd(stdin_inside.into()).unwrap()).lines();
    let output = pipe::Sender::from_owned_fd(stdout_inside.into()).unwrap();
    (Arc::new(link), Peer { input, output, _stderr: stderr_inside })
}

type Call = JoinHandle<Result<Box<RawValue>, Failure>>;

fn call(link: &Arc<Link>, number: u32) -> Call {
    call_within(link, number, Duration::from_secs(20))
}

fn call_within(link: &Arc<Link>, number: u32, time: Duration) -> Call {
    let link = Arc::clone(link);
    tokio::spawn(async move {
        let invocation = format!("i{number}");
        link.request("command/invoke", &json!({ "n": number }), Some(&invocation), Instant::now() + time)
            .await
    })
}

async fn result(call: Call) -> String {
    call.await.unwrap().unwrap().get().to_owned()
}

async fn kind(call: Call) -> (Kind, bool) {
    match call.await.unwrap().unwrap_err() {
        Failure::Ours(error) => (error.kind, error.outcome_known),
        Failure::Plugin(error) => panic!("the plugin's: {error}"),
    }
}

async fn violation(link: &Link) -> Kind {
    match tokio::time::timeout(Duration::from_secs(10), link.ended()).await.unwrap() {
        End::Violation(error) => error.kind,
        End::Closed => panic!("closed"),
    }
}

#[tokio::test]
async fn answers_in_any_order_reach_their_own_calls() {
    let (link, mut peer) = link();
    let (one, two) = (call(&link, 1), call(&link, 2));
    let (first, second) = (peer.line().await, peer.line().await);
    peer.answer(&second, second["params"]["n"].clone()).await;
    peer.answer(&first, first["params"]["n"].clone()).await;
    assert_eq!((result(one).await, result(two).await), ("1".into(), "2".into()));
}

#[tokio::test]
async fn a_wrong_a_repeated_and_a_late_answer_reach_nobody() {
    let (link, mut peer) = link();
    let one = call(&link, 1);
    let request = peer.line().await;
    peer.say(r#"{"jsonrpc":"2.0","id":999,"result":"wrong"}"#).await;
    peer.say(r#"{"jsonrpc":"2.0","id":"1","result":"a string is not our number"}"#).await;
    peer.answer(&request, json!("right")).await;
    peer.answer(&request, json!("repeated")).await;
    assert_eq!(result(one).await, "\"right\"");
    let two = call(&link, 2);
    let request = peer.line().await;
    peer.answer(&request, json!("second")).await;
    assert_eq!(result(two).await, "\"second\"");
    assert_eq!(link.stray_answers(), 3);
}

#[tokio::test]
async fn a_call_out_of_time_is_cancelled_at_the_plugin_and_its_late_answer_dropped() {
    let (link, mut peer) = link();
    let late = call_within(&link, 1, Duration::from_millis(50));
    let request = peer.line().await;
    assert_eq!(kind(late).await, (Kind::TimedOut, false));
    let cancel = peer.line().await;
    assert_eq!(
        (cancel["method"].as_str(), cancel["params"]["invocation"].as_str()),
        (Some("$/cancel"), Some("i1"))
    );
    peer.answer(&request, json!("late")).await;
    let next = call(&link, 2);
    let request = peer.line().await;
    peer.answer(&request, json!("mine")).await;
    assert_eq!(result(next).await, "\"mine\"");
}

#[tokio::test]
async fn a_caller_that_goes_away_cancels_its_call() {
    let (link, mut peer) = link();
    let gone = call(&link, 1);
    peer.line().await;
    gone.abort();
    assert_eq!(peer.line().await["params"]["reason"], "caller gone");
}

#[tokio::test]
async fn more_calls_than_in_flight_are_busy_and_never_wait() {
    let (link, mut peer) = link();
    let calls: Vec<_> = (0..4).map(|number| call(&link, number)).collect();
    for _ in 0..4 {
        peer.line().await;
    }
    assert_eq!(kind(call(&link, 5)).await, (Kind::Busy, true));
    let shutdown = {
        let link = Arc::clone(&link);
        tokio::spawn(async move {
            link.request("shutdown", &json!({}), None, Instant::now() + Duration::from_secs(20)).await
        })
    };
    let request = peer.line().await;
    assert_eq!(request["method"], "shutdown", "a busy plugin is still asked to end");
    peer.answer(&request, json!({})).await;
    assert_eq!(result(shutdown).await, "{}");
    for call in calls {
        call.abort();
    }
}

#[tokio::test]
async fn a_frame_that_is_too_large_is_refused_before_it_is_sent() {
    let (link, _peer) = link();
    let big = json!({ "x": "y".repeat(BOUNDS.frame_max) });
    let outcome = link.request("m", &big, None, Instant::now() + Duration::from_secs(5)).await;
    let Err(Failure::Ours(error)) = outcome else { panic!("sent") };
    assert_eq!((error.kind, error.outcome_known), (Kind::FrameTooLarge, true));
}

#[tokio::test]
async fn junk_is_tolerated_before_the_handshake_and_not_after() {
    let (link, mut peer) = link();
    let first = call(&link, 1);
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
    let (link, mut peer) = link();
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
        let (link, mut peer) = link();
        peer.say(text).await;
        assert_eq!(violation(&link).await, expected, "{}", &text[..text.len().min(20)]);
    }
    let (link, mut peer) = link();
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(BOUNDS.frame_max));
    peer.say(&long).await;
    assert_eq!(violation(&link).await, Kind::FrameTooLarge);
}

#[tokio::test]
async fn both_directions_full_at_once_do_not_deadlock() {
    let (link, mut peer) = link();
    let text = "x".repeat(BOUNDS.frame_max - 1000);
    let calls: Vec<_> = (0..4)
        .map(|_| {
            let (link, params) = (Arc::clone(&link), json!({ "text": text }));
            tokio::spawn(async move {
                link.request("m", &params, None, Instant::now() + Duration::from_secs(20)).await
            })
        })
        .collect();
    // The peer writes large answers before it reads the next request.
    for _ in 0..4 {
        let request = peer.line().await;
        peer.answer(&request, request["params"]["text"].clone()).await;
    }
    for call in calls {
        assert!(call.await.unwrap().unwrap().get().len() > BOUNDS.frame_max - 2000);
    }
}

#[tokio::test]
async fn the_end_of_the_plugin_fails_every_call_with_its_cause() {
    let (link, mut peer) = link();
    let one = call(&link, 1);
    peer.line().await;
    drop(peer);
    assert_eq!(link.ended().await, End::Closed);
    link.fail_all(&Error::new(Kind::Crashed, "it ended", "see its log"));
    assert_eq!(kind(one).await, (Kind::Crashed, false));
    assert_eq!(kind(call(&link, 2)).await, (Kind::Crashed, true), "nothing was sent any more");
}

#[tokio::test]
async fn a_request_of_the_plugin_is_answered_as_unknown() {
    let (link, mut peer) = link();
    peer.say(r#"{"jsonrpc":"2.0","id":"mine-1","method":"host/kv.get","params":{}}"#).await;
    let answer = peer.line().await;
    assert_eq!((answer["id"].as_str(), answer["error"]["code"].as_i64()), (Some("mine-1"), Some(-32601)));
    drop(link);
}
