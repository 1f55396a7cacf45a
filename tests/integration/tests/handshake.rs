//! A program that is not the reviewed one, or that never gets as far as an answer: each has its own error, and the
//! supervisor goes on.
#![cfg(feature = "stage")]

use plugind_integration::{Bundle, Outcome, Plugind};
use plugind_protocol::{Error, Kind};
use serde_json::json;

fn start(plugind: &Plugind, mode: &str) -> Outcome {
    plugind.attempt(&Bundle::hostile().mode(mode), "echo", &json!([mode]))
}

fn refused(plugind: &Plugind, mode: &str, kind: Kind, said: &str) -> Error {
    let error = start(plugind, mode).fails(kind);
    assert!(error.message.contains(said), "{mode}: {error:?}");
    error
}

#[test]
fn a_child_of_another_protocol_name_version_or_descriptors_is_told_apart() {
    let plugind = Plugind::new();
    let mut messages = Vec::new();
    for (mode, said) in [
        ("wrong-name", "says its name is"),
        ("wrong-version", "says its version is \"99.0.0\", and the reviewed manifest says \"1.0.0\""),
        ("wrong-digest", "says its commands_digest is \"0000"),
        (
            "wrong-protocol",
            "says its protocol is \"plugind/0\", and the reviewed manifest says \"plugind/1\"",
        ),
        ("refuse", "refused the handshake: attestation failed"),
    ] {
        let error = refused(&plugind, mode, Kind::AttestationFailed, said);
        assert!(error.outcome_known && !error.retryable, "nothing was asked of it: {error:?}");
        messages.push(error.message);
    }
    messages.dedup();
    assert_eq!(messages.len(), 5);
    plugind.unharmed();
}

#[test]
fn a_child_that_exits_at_once_has_its_status_and_last_words_told() {
    let plugind = Plugind::new();
    let error = refused(&plugind, "exit", Kind::Crashed, "ended before its handshake");
    assert_eq!(error.details["exit_code"], 0, "{error:?}");

    let error = refused(&plugind, "exit-code-7", Kind::Crashed, "ended before its handshake");
    assert_eq!(error.details["exit_code"], 7, "{error:?}");
    assert_eq!(error.details["stderr"], json!(["hostile: leaving with 7"]), "{error:?}");

    let error = refused(&plugind, "half-line-then-exit", Kind::Crashed, "ended before its handshake");
    assert_eq!(error.details["exit_code"], 0, "{error:?}");
    plugind.unharmed();
}

#[test]
fn a_child_that_does_not_answer_is_given_up_after_the_start_timeout() {
    let plugind = Plugind::new();
    // All at once: each takes the whole 15 s.
    std::thread::scope(|scope| {
        for mode in ["hang", "nothing", "close-stdout", "wrong-id", "string-id", "flood-stdout"] {
            let plugind = &plugind;
            scope.spawn(move || {
                let error = refused(plugind, mode, Kind::TimedOut, "did not answer `initialize` within 15 s");
                assert!(error.hint.contains("JSON lines"), "{mode}: {error:?}");
            });
        }
    });
    plugind.unharmed();
}

#[test]
fn an_answer_that_comes_twice_counts_once() {
    let plugind = Plugind::new();
    assert_eq!(start(&plugind, "repeated-id").json(), json!(["repeated-id"]));
    plugind.unharmed();
}

#[test]
fn a_child_that_floods_its_stderr_works_all_the_same() {
    let plugind = Plugind::new();
    assert_eq!(start(&plugind, "flood-stderr").json(), json!(["flood-stderr"]));
    plugind.unharmed();
}

#[test]
fn a_failed_start_shows_in_status_and_the_next_one_may_succeed() {
    let plugind = Plugind::new();
    let bundle = Bundle::hostile().mode("exit-code-7");
    plugind.ctl(&["install", "--enable", bundle.path()]).success();
    plugind.ctl(&["start", bundle.name()]).fails(Kind::Crashed);
    let status = plugind.status(bundle.name());
    assert_eq!(status["state"], "failed", "{status}");
    assert!(status["last_exit"].as_str().unwrap().contains("exit code 7"), "{status}");
    assert_eq!((&status["main_pid"], &status["unit"]), (&json!(0), &json!("")), "{status}");
    assert_eq!(plugind.ctl(&["status", bundle.name()]).code, Some(3));
    plugind.ctl(&["start", bundle.name()]).fails(Kind::Crashed);
    plugind.ctl(&["remove", bundle.name()]).success();
    plugind.unharmed();
}
