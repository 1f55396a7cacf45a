//! `call --stream` and `bench`, which speak over a channel.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

mod fake;

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use fake::session::{Session, seen};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// The fake writes its journal in its own time.
fn wait_for(session: &Session, line: &str) {
    let start = Instant::now();
    while !session.journal().lines().any(|found| found == line) {
        assert!(start.elapsed() < Duration::from_secs(10), "no `{line}` in:\n{}", session.journal());
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_stream_is_lines_with_the_result_last_and_progress_aside() {
    let session = Session::start();
    let (code, out, err) = session.run(&["call", "--stream", "demo.lines", "--args", "{\"of\":3}"]);
    let expected = "{\"line\":0,\"text\":\"\\u009b2J\"}\n{\"line\":1,\"text\":\"\\u009b2J\"}\n\
                    {\"line\":2,\"text\":\"\\u009b2J\"}\n{\"lines\":3}\n";
    assert_eq!((code, out.as_str()), (0, expected));
    assert!(err.starts_with("progress: {\"done\":1,\"of\":3}\n"), "{err}");
    wait_for(&session, "channel closed");
    assert_eq!(session.run(&["call", "--stream", "-q", "demo.lines", "--args", "{\"of\":1}"]).2, "");
}

#[test]
fn a_stream_in_json_says_what_each_line_is() {
    let session = Session::start();
    let (code, out, err) =
        session.run(&["call", "--stream", "-o", "json", "demo.lines", "--args", "{\"of\":2}"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let keys: Vec<&str> =
        lines.iter().map(|line| line.as_object().unwrap().keys().next().unwrap().as_str()).collect();
    assert_eq!(keys.iter().filter(|key| **key == "chunk").count(), 2);
    assert!(keys.contains(&"progress"));
    assert_eq!(lines.last().unwrap(), &serde_json::json!({"result": {"lines": 2}}));
}

#[test]
fn a_stream_longer_than_its_window_goes_on_as_it_is_read() {
    let session = Session::start();
    let (code, out, _) = session.run(&["call", "--stream", "-q", "demo.lines", "--args", "{\"of\":1000}"]);
    assert_eq!((code, out.lines().count()), (0, 1001));
    assert!(out.contains("\n{\"line\":999,"), "{out}");
}

#[test]
fn a_stream_ends_as_a_call_does() {
    let session = Session::start();
    // A command that gives no chunks.
    let words = ["call", "--stream", "demo", "echo", "--args", "[1.50]", "--timeout", "7s", "--dry-run"];
    assert_eq!(session.run(&words), (0, "[1.50]\n".into(), String::new()));
    let journal = session.journal();
    assert!(journal.contains("\"deadline_ms\":7000") && journal.contains("\"dry_run\":true"), "{journal}");

    let (code, out, err) = session.run(&["call", "--stream", "demo.fail"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.starts_with("pluginctl: PluginError: it failed\n"), "{err}");
    assert_eq!(session.run(&["call", "--stream", "absent.echo"]).0, 4);
    assert_eq!(session.run(&["call", "--stream", "demo.echo", "--args", "{nope"]).0, 2);
}

#[test]
fn a_reader_that_goes_away_ends_the_stream() {
    let session = Session::start();
    let mut child = session
        .command(&["call", "--stream", "-q", "demo.lines", "--args", "{\"of\":1000000000}"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("{\"line\":0,"), "{first}");
    assert!(child.wait().unwrap().success());
    wait_for(&session, "channel closed");
}

#[test]
fn a_bench_counts_times_and_ends() {
    let session = Session::start();
    let words =
        ["bench", "demo.echo", "--args", "{\"text\":\"x\"}", "-n", "100", "-c", "3", "--in-flight", "2"];
    let (code, out, err) = session.run(&words);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.starts_with("demo.echo: 3 callers, 2 in flight each, "), "{out}");
    assert!(out.contains("\n      Calls: 100 (0 failed), "), "{out}");
    assert!(out.contains("\n    Latency: p50 "), "{out}");
    let journal = session.journal();
    assert_eq!(journal.matches("invoke echo\n").count(), 100);
    assert_eq!(journal.matches("channel demo\n").count(), 3);
    assert!(journal.starts_with("describe demo\nstart demo\nchannel demo\n"), "{journal}");
}

#[test]
fn a_bench_tells_errors_by_kind_and_fails_only_with_all_calls() {
    let session = Session::start();
    let (code, out, _) = session.run(&["bench", "demo.flaky", "-n", "100", "-o", "json"]);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &report["calls"], &report["failed"]), (0, &100.into(), &50.into()));
    assert_eq!(report["errors_by_kind"], serde_json::json!({"Busy": 50}));
    assert!(report["calls_per_second"].as_f64().unwrap() > 0.0 && report["latency_p99_us"].is_u64(), "{out}");

    let (code, out, err) = session.run(&["bench", "demo.fail", "-n", "10"]);
    assert_eq!(code, 1);
    assert!(out.contains("     Errors: PluginError 10, the first: it failed\n"), "{out}");
    assert!(err.starts_with("pluginctl: PluginError: it failed\n"), "{err}");
    assert_eq!(session.run(&["bench", "absent.echo"]).0, 4);
}

#[test]
fn a_bench_ends_with_its_time_and_with_a_signal() {
    let session = Session::start();
    let (code, out, _) = session.run(&["bench", "demo.echo", "--time", "200ms", "-o", "json"]);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(code, 0);
    assert!(report["calls"].as_u64().unwrap() > 0 && report["seconds"].as_f64().unwrap() >= 0.2, "{out}");

    let child = session.command(&["bench", "demo.hang"]).stdout(Stdio::piped()).spawn().unwrap();
    wait_for(&session, "invoke hang");
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    let (code, out, _) = seen(&child.wait_with_output().unwrap());
    assert_eq!(code, 130);
    assert!(out.contains("Calls: 0 (0 failed)"), "{out}");
}
