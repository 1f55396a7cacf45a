//! A channel over a socket whose other end is played by the test.

mod bus;
mod peer;
mod streams;

use std::os::unix::net::UnixStream;
use std::time::Duration;

use plugind_protocol::RpcError;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{Channel, Error, Event, Invocation, Kind};
use peer::channel;

const FRAME_MAX: usize = 64 << 10;

fn raw(value: &Value) -> Box<RawValue> {
    to_raw_value(value).unwrap()
}

/// A call of `textstats.count` that waits for its result.
fn call(channel: &Channel, arguments: Value) -> JoinHandle<Result<Value, Error>> {
    let channel = channel.clone();
    tokio::spawn(async move { channel.call("textstats", "count", &arguments).await })
}

async fn start(channel: &Channel) -> Invocation {
    channel.invoke("textstats", "lines", RawValue::NULL).start().await.unwrap()
}

/// A channel that is fine answers another call.
async fn assert_alive(channel: &Channel, peer: &mut peer::Peer) {
    let waiting = call(channel, json!("alive"));
    let id = peer.request().await;
    peer.answer(&id, "yes").await;
    assert_eq!(waiting.await.unwrap(), Ok(json!("yes")));
}

#[tokio::test]
async fn a_call_says_what_is_called_and_how() {
    let (channel, mut peer) = channel(FRAME_MAX);
    let waiting = call(&channel, json!({"text": "a\nb"}));
    let first = peer.next().await.unwrap();
    assert_eq!(
        first,
        json!({"jsonrpc": "2.0", "id": first["id"], "method": "command/invoke", "params": {
            "plugin": "textstats", "command": "count", "arguments": {"text": "a\nb"}, "meta": {"dry_run": false}}})
    );
    peer.answer(&first["id"], 7).await;
    assert_eq!(waiting.await.unwrap(), Ok(json!(7)));

    let arguments = RawValue::from_string("{\n\"a\": 1.50 }".to_owned()).unwrap();
    let invoke = channel.invoke("p", "c", &arguments).timeout(Duration::from_millis(1500)).dry_run(true);
    let invocation = invoke.stream(8).start().await.unwrap();
    let second = peer.next().await.unwrap();
    assert_eq!(second["params"]["meta"], json!({"deadline_ms": 1500, "dry_run": true, "credit": 8}));
    assert_eq!(second["params"]["arguments"], json!({"a": 1.50}));
    assert_ne!(first["id"], second["id"]);
    drop(invocation);
}

#[tokio::test]
async fn answers_come_in_any_order() {
    let (channel, mut peer) = channel(FRAME_MAX);
    let calls: Vec<_> = (0..20).map(|number| call(&channel, json!(number))).collect();
    let mut requests = Vec::new();
    for _ in &calls {
        requests.push(peer.next().await.unwrap());
    }
    for request in requests.iter().rev() {
        peer.answer(&request["id"], request["params"]["arguments"].clone()).await;
    }
    for (number, call) in calls.into_iter().enumerate() {
        assert_eq!(call.await.unwrap(), Ok(json!(number)));
    }
}

#[tokio::test]
async fn a_result_is_the_text_that_was_sent() {
    let (channel, mut peer) = channel(FRAME_MAX);
    let mut invocation = start(&channel).await;
    let id = peer.request().await;
    peer.send_raw(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\": [1.500, 2e1 ]}}\n").as_bytes())
        .await;
    let Event::Done(Ok(result)) = invocation.next().await else { panic!("no result") };
    assert_eq!(result.get(), "[1.500, 2e1 ]");
    let Event::Done(Err(over)) = invocation.next().await else { panic!("more came") };
    assert_eq!(over.kind, Kind::Conflict);
}

#[tokio::test]
async fn an_error_arrives_as_the_supervisor_wrote_it() {
    let (channel, mut peer) = channel(FRAME_MAX);
    let waiting = call(&channel, json!({}));
    let id = peer.request().await;
    let error = Error::new(Kind::PluginError, "the plugin's own words", "see its documentation")
        .outcome_unknown()
        .with_details(json!({"code": 7}));
    peer.send(&json!({"jsonrpc": "2.0", "id": id, "error": RpcError::from(&error)})).await;
    assert_eq!(waiting.await.unwrap(), Err(error));
}

#[tokio::test]
async fn a_result_of_another_shape_is_an_error_of_this_call_only() {
    let (channel, mut peer) = channel(FRAME_MAX);
    let waiting = {
        let channel = channel.clone();
        tokio::spawn(async move { channel.call::<_, u8>("textstats", "count", "").await })
    };
    let id = peer.request().await;
    peer.answer(&id, "no number").await;
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!((error.kind, error.outcome_known), (Kind::PluginError, true));
    assert_alive(&channel, &mut peer).await;
}

#[tokio::test]
async fn late_and_foreign_answers_are_ignored() {
    let (channel, mut peer) = channel(FRAME_MAX);
    let waiting = call(&channel, json!({}));
    let id = peer.request().await;
    for foreign in [json!(999), json!("0"), json!(1.5), json!(-1)] {
        peer.answer(&foreign, "foreign").await;
        peer.progress(&foreign, 1).await;
        peer.chunk(&foreign, 0, 1).await;
    }
    peer.send(&json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "what"}})).await;
    peer.send(&json!({"jsonrpc": "2.0", "method": "$/later", "params": [1]})).await;
    peer.send(&json!({"jsonrpc": "2.0", "id": id, "method": "ask"})).await;
    peer.answer(&id, "own").await;
    peer.answer(&id, "late").await;
    peer.chunk(&id, 0, "late").await;
    assert_eq!(waiting.await.unwrap(), Ok(json!("own")));
    assert_alive(&channel, &mut peer).await;
}

#[tokio::test]
async fn a_call_that_fits_no_frame_is_refused_here() {
    let (channel, mut peer) = channel(1000);
    let around = {
        let waiting = call(&channel, json!(""));
        let request = peer.next().await.unwrap();
        peer.answer(&request["id"], 0).await;
        waiting.await.unwrap().unwrap();
        request.to_string().len()
    };
    let error = channel.call::<_, Value>("textstats", "count", &"x".repeat(1001 - around)).await.unwrap_err();
    assert_eq!((error.kind, error.outcome_known), (Kind::FrameTooLarge, true));
    assert_eq!(error.details, json!({"bytes": 1001, "frame_max": 1000}));
    let deep = (0..64).fold(json!(0), |inner, _| json!([inner]));
    let error = channel.call::<_, Value>("textstats", "count", &deep).await.unwrap_err();
    assert_eq!(error.kind, Kind::InvalidArguments);
    let no_json = std::collections::HashMap::from([((1, 2), 3)]);
    let error = channel.call::<_, Value>("textstats", "count", &no_json).await.unwrap_err();
    assert_eq!(error.kind, Kind::InvalidArguments);

    let waiting = call(&channel, json!("x".repeat(1000 - around)));
    let id = peer.request().await;
    peer.answer(&id, 0).await;
    assert_eq!(waiting.await.unwrap(), Ok(json!(0)));
}

#[tokio::test]
async fn a_call_that_nobody_waits_for_is_cancelled() {
    let (channel, mut peer) = channel(FRAME_MAX);
    let invocation = start(&channel).await;
    let id = peer.request().await;
    drop(invocation);
    assert_eq!(peer.notification("$/cancel").await, json!({"invocation": id}));

    let waiting = call(&channel, json!({}));
    let id = peer.request().await;
    waiting.abort();
    assert_eq!(peer.notification("$/cancel").await, json!({"invocation": id}));
    assert_alive(&channel, &mut peer).await;
}

#[tokio::test]
async fn a_call_that_is_taken_back_still_has_its_end() {
    let (channel, mut peer) = channel(FRAME_MAX);
    let mut invocation = start(&channel).await;
    let id = peer.request().await;
    invocation.cancel();
    invocation.cancel();
    assert_eq!(peer.notification("$/cancel").await, json!({"invocation": id}));
    let error = Error::new(Kind::Cancelled, "taken back", "call again");
    peer.send(&json!({"jsonrpc": "2.0", "id": id, "error": RpcError::from(&error)})).await;
    let Event::Done(end) = invocation.next().await else { panic!("no end") };
    assert_eq!(end.unwrap_err(), error);
    invocation.cancel();
    drop(invocation);
    // No other `$/cancel` came before this call.
    assert_alive(&channel, &mut peer).await;
}

#[tokio::test]
async fn the_end_of_the_socket_ends_every_call() {
    let (channel, mut peer) = channel(FRAME_MAX);
    let waiting = [call(&channel, json!(0)), call(&channel, json!(1))];
    for _ in &waiting {
        peer.request().await;
    }
    let answered = call(&channel, json!(2));
    let id = peer.request().await;
    peer.answer(&id, "in time").await;
    drop(peer);
    assert_eq!(answered.await.unwrap(), Ok(json!("in time")));
    for call in waiting {
        let error = call.await.unwrap().unwrap_err();
        assert_eq!((error.kind, error.outcome_known, error.retryable), (Kind::Unavailable, false, true));
    }
    let error = channel.call::<_, Value>("textstats", "count", &()).await.unwrap_err();
    assert_eq!((error.kind, error.outcome_known), (Kind::Unavailable, true), "nothing was sent");
}

#[tokio::test]
async fn a_stream_that_breaks_the_protocol_ends_the_channel() {
    for line in [
        format!("{{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":\"{}\"}}", "x".repeat(FRAME_MAX)),
        "junk".to_owned(),
    ] {
        let (channel, mut peer) = channel(FRAME_MAX);
        let waiting = call(&channel, json!({}));
        peer.request().await;
        peer.send_raw(line.as_bytes()).await;
        peer.send_raw(b"\n").await;
        let error = waiting.await.unwrap().unwrap_err();
        assert_eq!((error.kind, error.outcome_known), (Kind::ProtocolViolation, false));
        assert_eq!(peer.next().await, None);
    }
}

#[tokio::test]
async fn the_last_of_a_channel_closes_its_socket() {
    let (channel, mut peer) = channel(FRAME_MAX);
    let invocation = start(&channel.clone()).await;
    drop(channel);
    let id = peer.request().await;
    peer.progress(&id, 1).await;
    let mut invocation = invocation;
    assert!(matches!(invocation.next().await, Event::Progress(_)), "an invocation keeps the channel");
    drop(invocation);
    assert_eq!(peer.notification("$/cancel").await, json!({"invocation": id}));
    assert_eq!(peer.next().await, None);
}

#[tokio::test]
async fn requests_that_the_supervisor_does_not_read_wait_here_within_bounds() {
    let (channel, mut peer) = channel(FRAME_MAX);
    let big = "x".repeat(FRAME_MAX - 1000);
    let mut begun = Vec::new();
    // The socket's buffer, then a MiB, then no more.
    let refused = loop {
        let arguments = raw(&json!({"number": begun.len(), "text": big}));
        let starting = channel.invoke("textstats", "lines", &arguments).start();
        match tokio::time::timeout(Duration::from_millis(200), starting).await {
            Ok(invocation) => begun.push(invocation.unwrap()),
            Err(_) => break begun.len(),
        }
        assert!(begun.len() < 100);
    };
    assert!(refused > (1 << 20) / FRAME_MAX, "{refused}");
    // The next one waits for its turn; the one that was given up is never sent, and not cancelled either.
    let waiting = call(&channel, json!({"number": refused, "text": big}));
    for number in 0..=refused {
        let request = peer.next().await.unwrap();
        assert_eq!(request["params"]["arguments"]["number"], number);
        peer.answer(&request["id"], number).await;
    }
    assert_eq!(waiting.await.unwrap(), Ok(json!(refused)));
    assert_alive(&channel, &mut peer).await;
}

#[tokio::test]
async fn who_waits_to_send_learns_that_the_channel_ended() {
    let (channel, peer) = channel(FRAME_MAX);
    let big = json!("x".repeat(FRAME_MAX - 1000));
    let calls: Vec<_> = (0..60).map(|_| call(&channel, big.clone())).collect();
    // All have begun: most of them wait for the socket, the last ones for their turn.
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(peer);
    let mut known = 0;
    for call in calls {
        let error = call.await.unwrap().unwrap_err();
        assert_eq!(error.kind, Kind::Unavailable);
        known += usize::from(error.outcome_known);
    }
    assert!((1..60).contains(&known), "{known}");
}

#[test]
fn a_channel_needs_a_runtime() {
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let Err(error) = Channel::from_stream(ours, FRAME_MAX) else { panic!("a channel without a runtime") };
    assert_eq!(error.kind, Kind::Conflict);
}

#[test]
fn a_call_learns_that_the_runtime_of_its_channel_ended() {
    let own = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let other = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (channel, mut invocation, peer) = other.block_on(async {
        let (channel, peer) = channel(FRAME_MAX);
        let invocation = start(&channel).await;
        (channel, invocation, peer)
    });
    drop(other);
    let event = own.block_on(invocation.next());
    let Event::Done(Err(error)) = event else { panic!("{event:?}") };
    assert_eq!((error.kind, error.outcome_known), (Kind::Unavailable, false));
    drop((channel, peer));
}
