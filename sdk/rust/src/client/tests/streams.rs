//! Chunks and progress on their way to a reader.

use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::peer::{self, Peer};
use super::{FRAME_MAX, assert_alive, channel, start};
use crate::client::{Channel, Event, Invocation, Kind};

async fn stream(channel: &Channel, peer: &mut Peer, window: u32) -> (Invocation, Value) {
    let invocation =
        channel.invoke("textstats", "lines", RawValue::NULL).stream(window).start().await.unwrap();
    let id = peer.request().await;
    (invocation, id)
}

/// The next event as a word and its data.
async fn next(invocation: &mut Invocation) -> (&'static str, Value) {
    let event = tokio::time::timeout(peer::PATIENCE, invocation.next()).await.expect("no event came");
    let (word, data) = match event {
        Event::Progress(data) => ("progress", data),
        Event::Chunk(data) => ("chunk", data),
        Event::Done(result) => ("done", result.unwrap()),
    };
    (word, serde_json::from_str(data.get()).unwrap())
}

async fn violation(invocation: &mut Invocation) {
    let Event::Done(Err(error)) = invocation.next().await else { panic!("no violation") };
    assert_eq!((error.kind, error.outcome_known), (Kind::ProtocolViolation, false));
}

#[tokio::test]
async fn chunks_and_progress_come_in_order_and_the_result_last() {
    let (channel, mut peer) = channel(FRAME_MAX);
    let (mut invocation, id) = stream(&channel, &mut peer, 4).await;
    peer.chunk(&id, 0, "first").await;
    peer.progress(&id, json!({"done": 1})).await;
    peer.chunk(&id, 1, Value::Null).await;
    peer.answer(&id, "end").await;
    assert_eq!(next(&mut invocation).await, ("chunk", json!("first")));
    assert_eq!(next(&mut invocation).await, ("progress", json!({"done": 1})));
    assert_eq!(next(&mut invocation).await, ("chunk", json!(null)));
    assert_eq!(next(&mut invocation).await, ("done", json!("end")));
}

#[tokio::test]
async fn credit_comes_back_only_as_chunks_are_taken() {
    let (channel, mut peer) = channel(FRAME_MAX);
    let (mut slow, id) = stream(&channel, &mut peer, 4).await;
    for seq in 0..4 {
        peer.chunk(&id, seq, seq).await;
    }
    // The slow reader stalls itself only, and gives no credit before it reads.
    assert_alive(&channel, &mut peer).await;
    next(&mut slow).await;
    next(&mut slow).await;
    assert_eq!(peer.notification("$/credit").await, json!({"invocation": id, "n": 2}));
    let (mut sent, mut taken, mut credit) = (4, 2, 2);
    while taken < 40 {
        while credit > 0 {
            peer.chunk(&id, sent, sent).await;
            (sent, credit) = (sent + 1, credit - 1);
        }
        assert!(sent - taken <= 4, "no more than the window waits");
        for _ in 0..2 {
            assert_eq!(next(&mut slow).await, ("chunk", json!(taken)));
            taken += 1;
        }
        credit += peer.notification("$/credit").await["n"].as_u64().unwrap();
    }
    // What is taken after the end gives no credit.
    peer.chunk(&id, sent, "last").await;
    peer.answer(&id, "end").await;
    assert_alive(&channel, &mut peer).await;
    while next(&mut slow).await != ("done", json!("end")) {}
    assert_alive(&channel, &mut peer).await;
}

#[tokio::test]
async fn a_window_of_one_is_enough() {
    let (channel, mut peer) = channel(FRAME_MAX);
    let (mut invocation, id) = stream(&channel, &mut peer, 1).await;
    for seq in 0..5 {
        peer.chunk(&id, seq, seq).await;
        assert_eq!(next(&mut invocation).await, ("chunk", json!(seq)));
        assert_eq!(peer.notification("$/credit").await, json!({"invocation": id, "n": 1}));
    }
}

#[tokio::test]
async fn a_chunk_without_credit_or_out_of_order_ends_its_call_only() {
    let (channel, mut peer) = channel(FRAME_MAX);
    for (window, seqs) in [(2, [0, 1, 2].as_slice()), (2, &[1]), (2, &[0, 0]), (0, &[0])] {
        let (mut invocation, id) = stream(&channel, &mut peer, window).await;
        for &seq in seqs {
            peer.chunk(&id, seq, "data").await;
        }
        assert_eq!(peer.notification("$/cancel").await, json!({"invocation": id}));
        peer.answer(&id, "late").await;
        for _ in 1..seqs.len() {
            assert_eq!(next(&mut invocation).await, ("chunk", json!("data")));
        }
        violation(&mut invocation).await;
    }
    assert_alive(&channel, &mut peer).await;
}

#[tokio::test]
async fn of_progress_the_newest_is_kept() {
    let (channel, mut peer) = channel(FRAME_MAX);
    let (mut invocation, id) = stream(&channel, &mut peer, 1).await;
    peer.progress(&id, "old").await;
    peer.chunk(&id, 0, "chunk").await;
    for number in 0..1000 {
        peer.progress(&id, number).await;
    }
    peer.answer(&id, "end").await;
    assert_alive(&channel, &mut peer).await;
    assert_eq!(next(&mut invocation).await, ("chunk", json!("chunk")));
    for number in 984..1000 {
        assert_eq!(next(&mut invocation).await, ("progress", json!(number)));
    }
    assert_eq!(next(&mut invocation).await, ("done", json!("end")));
}

#[tokio::test]
async fn who_wants_only_the_result_lets_everything_else_pass() {
    let (channel, mut peer) = channel(FRAME_MAX);
    let waiting = {
        let channel = channel.clone();
        tokio::spawn(async move { channel.invoke("p", "c", RawValue::NULL).stream(1).result().await })
    };
    let id = peer.request().await;
    for seq in 0..3 {
        peer.progress(&id, seq).await;
        peer.chunk(&id, seq, seq).await;
        peer.notification("$/credit").await;
    }
    peer.answer(&id, "end").await;
    assert_eq!(waiting.await.unwrap().unwrap().get(), "\"end\"");
}

#[tokio::test]
async fn waiting_for_an_event_may_be_broken_off() {
    let (channel, mut peer) = channel(FRAME_MAX);
    let mut invocation = start(&channel).await;
    let id = peer.request().await;
    for _ in 0..3 {
        assert!(tokio::time::timeout(Duration::from_millis(5), invocation.next()).await.is_err());
    }
    peer.answer(&id, "end").await;
    assert_eq!(next(&mut invocation).await, ("done", json!("end")));
}
