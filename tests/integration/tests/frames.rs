//! Lines that are no frames: each has its own error, at the handshake and later, and none of them is relayed.
#![cfg(feature = "stage")]

use plugind_integration::{Bundle, Plugind, memory};
use plugind_protocol::{Error, Kind};
use serde_json::json;

/// What a supervisor's memory may rise by, whatever a plugin writes.
const BOUND: u64 = 32 << 20;

/// What the plugin does at its handshake, and what comes of it.
const AT_THE_HANDSHAKE: [(&str, Kind, &str, &str); 10] = [
    ("bom", Kind::ProtocolViolation, "begins with a byte order mark", "utf-8-sig"),
    ("nul", Kind::ProtocolViolation, "contains a NUL byte", "UTF-16"),
    ("invalid-utf8", Kind::ProtocolViolation, "is not UTF-8: byte 34 of it", "UTF-8"),
    ("array", Kind::ProtocolViolation, "is not a JSON object; it begins with `[]`", "standard error"),
    ("scalar", Kind::ProtocolViolation, "is not a JSON object; it begins with `7`", "standard error"),
    ("brackets", Kind::ProtocolViolation, "is not a JSON object; it begins with `[[[[", "standard error"),
    ("nested", Kind::ProtocolViolation, "nests deeper than 64 levels", "nest"),
    ("lsp", Kind::ProtocolViolation, "the framing of the Language Server Protocol", "no headers"),
    ("junk-endless", Kind::ProtocolViolation, "begins with `this is no frame`", "standard error"),
    ("endless-line", Kind::FrameTooLarge, "longer than frame_max, 1048576 bytes", "frame_max"),
];

/// The same from a plugin that passed its handshake: what it writes beside the answer to a call.
const LATER: [(&str, &str); 10] = [
    ("\u{feff}{}\n", "begins with a byte order mark"),
    ("{\"jsonrpc\":\"2.0\",\0}\n", "contains a NUL byte"),
    ("[]\n", "is not a JSON object; it begins with `[]`"),
    ("7\n", "is not a JSON object; it begins with `7`"),
    ("loading…\n", "is not a JSON object; it begins with `loading"),
    ("{\"jsonrpc\":\"2.0\",\n", "is not JSON"),
    ("{}\n", "is not a JSON-RPC 2.0 message"),
    ("{\"jsonrpc\":\"1.0\",\"id\":1,\"result\":{}}\n", "is not a JSON-RPC 2.0 message"),
    ("{\"jsonrpc\":\"2.0\",\"id\":[1],\"result\":{}}\n", "is not a JSON-RPC 2.0 message"),
    ("Content-Length: 2\r\n\r\n{}", "the framing of the Language Server Protocol"),
];

fn explains(error: &Error, said: &str, hint: &str) {
    assert!(error.message.contains(said), "{error:?}");
    assert!(error.hint.contains(hint), "{error:?}");
}

#[test]
fn a_line_that_is_no_frame_ends_the_start_and_costs_no_memory() {
    let plugind = Plugind::new();
    plugind.unharmed();
    for (mode, kind, said, hint) in AT_THE_HANDSHAKE {
        let growth = memory::growth(plugind.pid(), || {
            let outcome = plugind.attempt(&Bundle::hostile().mode(mode), "echo", &json!([1]));
            explains(&outcome.fails(kind), said, hint);
        });
        assert!(growth <= BOUND, "{mode}: {} MiB", growth >> 20);
        plugind.unharmed();
    }
}

#[test]
fn text_before_the_handshake_and_carriage_returns_are_tolerated() {
    let plugind = Plugind::new();
    for mode in ["junk-lines", "crlf"] {
        let outcome = plugind.attempt(&Bundle::hostile().mode(mode), "echo", &json!({"mode": mode}));
        assert_eq!(outcome.json(), json!({"mode": mode}));
    }
    plugind.unharmed();
}

#[test]
fn a_line_that_is_no_frame_fails_the_call_and_the_next_call_starts_the_plugin_again() {
    let plugind = Plugind::new();
    let bundle = Bundle::hostile();
    plugind.ctl(&["install", "--enable", bundle.path()]).success();
    for (text, said) in LATER {
        let error = plugind.call(&bundle, "raw", &json!({"text": text})).fails(Kind::ProtocolViolation);
        explains(&error, said, "");
        assert!(!error.outcome_known, "the command may have been done: {error:?}");
        assert_eq!(plugind.call(&bundle, "echo", &json!("next")).json(), "next");
    }
    let deep = format!("{{\"a\":{}{}}}\n", "[".repeat(200_000), "]".repeat(200_000));
    let error = plugind.call(&bundle, "raw", &json!({"text": deep})).fails(Kind::ProtocolViolation);
    explains(&error, "nests deeper than 64 levels", "");
    let error = plugind.call(&bundle, "big-result", &json!({"bytes": 2 << 20})).fails(Kind::FrameTooLarge);
    explains(&error, "longer than frame_max", "frame_max");
    assert_eq!(plugind.call(&bundle, "echo", &json!("next")).json(), "next");
    plugind.ctl(&["remove", bundle.name()]).success();
    plugind.unharmed();
}

#[test]
fn blank_lines_between_frames_are_nothing() {
    let plugind = Plugind::new();
    let outcome = plugind.attempt(&Bundle::hostile(), "raw", &json!({"text": "\n\r\n  \n\t\r\n"}));
    assert_eq!(outcome.json(), json!({}));
    plugind.unharmed();
}

#[test]
fn half_a_line_is_never_taken_for_a_whole_one() {
    let plugind = Plugind::new();
    let bundle = Bundle::hostile();
    plugind.ctl(&["install", "--enable", bundle.path()]).success();
    // The other half never comes.
    let call = ["call", &bundle.command("half-line"), "--args", "{}", "--timeout", "300ms"];
    let error = plugind.ctl(&call).fails(Kind::TimedOut);
    assert!(!error.outcome_known, "{error:?}");
    // The next frame is written behind it.
    let error = plugind.call(&bundle, "echo", &json!(1)).fails(Kind::ProtocolViolation);
    explains(&error, "is not JSON", "JSON encoder");
    // The stream ends within it.
    let error = plugind.call(&bundle, "half-line", &json!({"exit": true})).fails(Kind::Crashed);
    assert_eq!(error.details["exit_code"], 0, "{error:?}");
    assert_eq!(plugind.call(&bundle, "echo", &json!(2)).json(), 2);
    plugind.ctl(&["remove", bundle.name()]).success();
    plugind.unharmed();
}

#[test]
fn floods_cost_no_memory_and_hold_nobody_up() {
    let plugind = Plugind::new();
    let flooding = Bundle::hostile().mode("flood-stderr");
    plugind.ctl(&["install", "--enable", flooding.path()]).success();
    let growth = memory::growth(plugind.pid(), || {
        plugind.ctl(&["start", flooding.name()]).success();
        let much = json!({"bytes": 16 << 20});
        assert_eq!(plugind.attempt(&Bundle::hostile(), "flood-stderr", &much).json(), json!({}));
        plugind.attempt(&Bundle::hostile(), "flood-stdout-junk", &much).fails(Kind::ProtocolViolation);
        // Both the flooding plugin and others are served.
        assert_eq!(plugind.call(&flooding, "echo", &json!("through the flood")).json(), "through the flood");
        plugind.ctl(&["list"]).success();
        plugind.ctl(&["stop", flooding.name()]).success();
    });
    assert!(growth <= BOUND, "{} MiB", growth >> 20);
    let lines = plugind.ctl(&["logs", flooding.name(), "-n", "1000"]).json();
    let lines = lines.as_array().unwrap();
    assert!(!lines.is_empty() && lines.iter().all(|line| line.as_str().unwrap().len() <= 1100), "{lines:?}");
    plugind.ctl(&["remove", flooding.name()]).success();
    plugind.unharmed();
}

#[test]
fn a_flood_of_log_frames_costs_no_memory() {
    let plugind = Plugind::new();
    let bundle = Bundle::hostile().mode("flood-stdout");
    let growth = memory::growth(plugind.pid(), || {
        plugind.attempt(&bundle, "echo", &json!(1)).fails(Kind::TimedOut);
    });
    assert!(growth <= BOUND, "{} MiB", growth >> 20);
    plugind.unharmed();
}

#[test]
fn a_flood_is_left_out_of_the_journal_and_said_so_once_in_a_while() {
    let plugind = Plugind::new();
    let outcome = plugind.attempt(&Bundle::hostile(), "flood-stderr", &json!({"bytes": 32 << 20}));
    assert_eq!(outcome.json(), json!({}));
    let log = plugind.log();
    let announced = log.lines().filter(|line| line.contains("faster than")).count();
    assert!((1..=10).contains(&announced), "announced {announced} times");
    // 32,768 lines were written; 1,000 pass at once and 100 a second.
    let passed = log.lines().filter(|line| line.contains("flood ")).count();
    assert!((500..5000).contains(&passed), "{passed} lines passed");
    plugind.unharmed();
}
