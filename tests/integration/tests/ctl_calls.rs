//! `pluginctl` over channels: streams on a terminal's own terms, a bench, and the live table.
#![cfg(feature = "stage")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use plugind_integration::{Bundle, Outcome, Plugind};
use plugind_protocol::Kind;
use serde_json::{Value, json};

fn textstats(plugind: &Plugind) -> Bundle {
    let bundle = Bundle::textstats();
    plugind.ctl(&["install", "--enable", bundle.path()]).success();
    bundle
}

fn plain(plugind: &Plugind, arguments: &[&str]) -> Outcome {
    Outcome::of(plugind.command("pluginctl").args(arguments))
}

fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|cause| panic!("{cause}: {line}")))
        .collect()
}

#[test]
fn a_stream_is_a_line_for_each_chunk_and_the_result_last() {
    let plugind = Plugind::new();
    let bundle = textstats(&plugind);
    let text = (0..200).map(|number| "w ".repeat(number)).collect::<Vec<_>>().join("\n") + "\n";
    let arguments = json!({"text": text}).to_string();
    let call = ["call", "--stream", "textstats.lines", "--args", &arguments];
    let outcome = plain(&plugind, &call);
    outcome.success();
    let mut printed = lines(&outcome.stdout);
    let result = printed.pop().unwrap();
    let words: Vec<u64> = printed.iter().map(|line| line["words"].as_u64().unwrap()).collect();
    assert_eq!(words, (0..200).collect::<Vec<_>>());
    assert_eq!((&result["lines"], &result["bytes"]), (&json!(200), &json!(text.len())));
    assert!(outcome.stderr.lines().all(|line| line.starts_with("progress: ")), "{}", outcome.stderr);

    let outcome = plugind.ctl(&call);
    outcome.success();
    let printed = lines(&outcome.stdout);
    let chunks = printed.iter().filter(|line| !line["chunk"].is_null()).count();
    assert_eq!((chunks, &printed.last().unwrap()["result"]), (200, &result));
    // Without a stream there are the totals alone.
    assert_eq!(plugind.ctl(&["call", "textstats.lines", "--args", &arguments]).json(), result);
    let errors = [
        (vec!["call", "--stream", "textstats.lines", "--args", "{}"], Kind::InvalidArguments),
        (vec!["call", "--stream", "textstats.no-such"], Kind::NoSuchCommand),
        (vec!["call", "--stream", "no-such.lines"], Kind::NoSuchPlugin),
    ];
    for (arguments, kind) in errors {
        plugind.ctl(&arguments).fails(kind);
    }
    plugind.unharmed_but_for(&bundle);
}

#[test]
fn a_bench_calls_as_often_as_it_is_told_and_reports_what_came_of_it() {
    let plugind = Plugind::new();
    let bundle = textstats(&plugind);
    let arguments = r#"{"text":"Grüße"}"#;
    let bench = ["bench", "textstats.count", "--args", arguments, "-n", "500", "-c", "4", "--in-flight", "8"];
    let report = plugind.ctl(&bench).json();
    assert_eq!((&report["calls"], &report["failed"]), (&json!(500), &json!(0)), "{report}");
    for key in ["calls_per_second", "bytes_per_second", "latency_p50_us", "latency_p99_us", "latency_max_us"]
    {
        assert!(report[key].as_f64().is_some_and(|number| number > 0.0), "{key}: {report}");
    }
    assert_eq!(plugind.status("textstats")["calls"], 500);
    let outcome = plain(&plugind, &bench);
    outcome.success();
    assert!(outcome.stdout.contains("500"), "{}", outcome.stdout);
    plugind.ctl(&["bench", "textstats.count", "-n", "5"]).fails(Kind::InvalidArguments);
    plugind.unharmed_but_for(&bundle);
}

#[test]
fn the_table_has_a_line_for_each_plugin() {
    let plugind = Plugind::new();
    let bundle = textstats(&plugind);
    plugind.ctl(&["start", "textstats"]).success();
    let outcome = plain(&plugind, &["top", "-n", "1", "-d", "100ms"]);
    outcome.success();
    assert!(outcome.stdout.lines().any(|line| line.contains("textstats")), "{}", outcome.stdout);
    let round = plugind.ctl(&["top", "-n", "1", "-d", "100ms", "textstats"]).json();
    assert_eq!(round["plugins"][0]["name"], "textstats", "{round}");
    plugind.ctl(&["top", "-n", "1", "no-such-plugin"]).fails(Kind::NoSuchPlugin);
    plugind.unharmed_but_for(&bundle);
}
