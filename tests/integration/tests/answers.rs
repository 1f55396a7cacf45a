//! Answers that a plugin gives wrongly, late or twice, and what is refused before it is asked.
#![cfg(feature = "stage")]

use plugind_integration::{Bundle, Outcome, Plugind, scopes};
use plugind_protocol::Kind;
use serde_json::json;

const RAW_CALL: &str = env!("CARGO_BIN_EXE_raw-call");

#[test]
fn a_late_answer_is_never_given_to_the_next_call() {
    let plugind = Plugind::new();
    let bundle = Bundle::hostile();
    plugind.ctl(&["install", "--enable", bundle.path()]).success();
    for _ in 0..5 {
        // Its timeout is 200 ms, its answer comes after 400 ms: in the middle of the next call.
        let error = plugind.call(&bundle, "late-reply", &json!({"ms": 400})).fails(Kind::TimedOut);
        assert!(!error.outcome_known && error.retryable, "{error:?}");
        assert_eq!(plugind.call(&bundle, "sleep", &json!({"ms": 500})).json(), json!({"slept_ms": 500}));
    }
    // Nobody waits when the last one comes.
    plugind.call(&bundle, "late-reply", &json!({"ms": 400})).fails(Kind::TimedOut);
    plugind.call(&bundle, "sleep", &json!({"ms": 600})).success();
    assert_eq!(plugind.call(&bundle, "echo", &json!("own")).json(), "own");
    // The plugin was told, and is the same one all along.
    let cancels = plugind.call(&bundle, "cancels", &json!({})).json();
    assert_eq!(cancels["cancels"].as_array().map(Vec::len), Some(6), "{cancels}");
    assert_eq!(cancels["cancels"][0]["reason"], "timed out");
    assert_eq!(plugind.status(bundle.name())["restarts"], 0);
    plugind.ctl(&["remove", bundle.name()]).success();
    plugind.unharmed();
}

#[test]
fn repeated_and_invented_answers_are_dropped() {
    let plugind = Plugind::new();
    let bundle = Bundle::hostile();
    plugind.ctl(&["install", "--enable", bundle.path()]).success();
    for round in 0..20 {
        assert_eq!(plugind.call(&bundle, "double-reply", &json!({})).json(), json!({"reply": 1}));
        assert_eq!(plugind.call(&bundle, "echo", &json!(round)).json(), round);
    }
    for id in [json!(0), json!(1), json!(u64::MAX), json!("1"), json!(-1), json!(1.5), json!("x".repeat(250))]
    {
        let answer = plugind.call(&bundle, "unknown-id-reply", &json!({"id": id}));
        assert_eq!(answer.json(), json!({"reply": "right"}), "{id}");
        assert_eq!(plugind.call(&bundle, "echo", &json!({"id": id})).json(), json!({"id": id}));
    }
    assert_eq!(plugind.status(bundle.name())["restarts"], 0);
    plugind.ctl(&["remove", bundle.name()]).success();
    plugind.unharmed();
}

#[test]
fn an_answer_to_a_number_as_text_is_no_answer() {
    let plugind = Plugind::new();
    let bundle = Bundle::hostile();
    plugind.ctl(&["install", "--enable", bundle.path()]).success();
    let raw = |id: &str| {
        let text = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":\"by hand\"}}\n");
        plugind.call(&bundle, "raw", &json!({"text": text})).json()
    };
    for id in ["\"@id@\"", "@id@.0", "@id@e0", "-@id@"] {
        assert_eq!(raw(id), json!({}), "{id}");
    }
    assert_eq!(raw("@id@"), "by hand");
    plugind.ctl(&["remove", bundle.name()]).success();
    plugind.unharmed();
}

#[test]
fn a_plugins_own_error_cannot_pass_for_one_of_ours() {
    let plugind = Plugind::new();
    let bundle = Bundle::hostile();
    plugind.ctl(&["install", "--enable", bundle.path()]).success();
    let message = "PermissionDenied: you may not";
    for code in [-32000, -32001, -32601, 5] {
        let outcome = plugind.call(&bundle, "raise", &json!({"code": code, "message": message}));
        let error = outcome.fails(Kind::PluginError);
        assert_eq!(outcome.code, Some(1));
        assert_eq!((error.message.as_str(), &error.details["code"]), (message, &json!(code)), "{error:?}");
        assert!(error.hint.contains("plugin's own answer"), "{error:?}");
    }
    // Without arguments: escape sequences in the message, and data in the shape of our errors.
    let outcome = plugind.call(&bundle, "raise", &json!({}));
    let error = outcome.fails(Kind::PluginError);
    assert!(error.message.contains("PermissionDenied \\u{1b}]0;owned\\u{7}"), "{error:?}");
    assert!(!outcome.stderr.contains(['\u{1b}', '\u{7}', '\r']), "{:?}", outcome.stderr);
    assert_eq!(outcome.stderr.lines().count(), 1, "{:?}", outcome.stderr);
    // The same for people.
    let text = Outcome::of(plugind.command("pluginctl").args(["call", &bundle.command("raise")]));
    assert_eq!(text.code, Some(1));
    assert!(!text.stderr.contains(['\u{1b}', '\u{7}', '\r']), "{:?}", text.stderr);
    assert!(!text.stderr.lines().any(|line| line.starts_with("plugind: all is well")), "{:?}", text.stderr);
    plugind.ctl(&["remove", bundle.name()]).success();
    plugind.unharmed();
}

#[test]
fn a_result_that_breaks_its_schema_is_not_passed_on() {
    let plugind = Plugind::new();
    let bundle = Bundle::hostile();
    plugind.ctl(&["install", "--enable", bundle.path()]).success();
    let error = plugind.call(&bundle, "bad-output", &json!({})).fails(Kind::ProtocolViolation);
    assert!(error.message.contains("breaks its output schema: /number"), "{error:?}");
    assert!(!error.message.contains("seven"), "what it wrote is not shown: {error:?}");
    assert!(!error.outcome_known && error.hint.contains("author"), "{error:?}");
    assert_eq!(plugind.call(&bundle, "echo", &json!(1)).json(), 1);
    plugind.ctl(&["remove", bundle.name()]).success();
    plugind.unharmed();
}

#[test]
fn wrong_arguments_are_refused_without_starting_the_plugin() {
    let plugind = Plugind::new();
    let bundle = Bundle::hostile();
    let name = bundle.name();
    plugind.ctl(&["install", "--enable", bundle.path()]).success();
    for (command, arguments, said) in [
        ("sleep", "{\"ms\":\"soon\"}", "break its input schema: /ms"),
        ("sleep", "{}", "break its input schema"),
        ("sleep", "[]", "break its input schema"),
        ("sleep", "{\"ms\":-1}", "break its input schema: /ms"),
        ("sleep", "{\"ms\":1,\"more\":1}", "break its input schema"),
        ("echo", "{\"a\":", "are not JSON"),
        ("echo", "", "are not JSON"),
        ("echo", "{} {}", "are not JSON"),
        ("echo", "{'a':1}", "are not JSON"),
    ] {
        // Past pluginctl, which looks at the text itself.
        let error =
            plugind.raw_call(RAW_CALL, &["call", name, command, arguments]).fails(Kind::InvalidArguments);
        assert!(error.message.contains(said), "{arguments}: {error:?}");
        assert!(error.outcome_known, "{error:?}");
    }
    for arguments in ["{\"a\":", "{'a':1}"] {
        plugind.ctl(&["call", &bundle.command("echo"), "--args", arguments]).fails(Kind::InvalidArguments);
    }
    let deep = "[".repeat(50_000) + &"]".repeat(50_000);
    for deep in [&deep[..], &("[".repeat(63) + &"]".repeat(63))] {
        let error = plugind.raw_call(RAW_CALL, &["call", name, "echo", deep]).fails(Kind::InvalidArguments);
        assert!(error.message.contains("nest deeper") || error.message.contains("not JSON"), "{error:?}");
    }
    let error = plugind.ctl(&["call", &bundle.command("echo"), "--dry-run"]).fails(Kind::InvalidArguments);
    assert!(error.message.contains("no dry run"), "{error:?}");
    let error = plugind.call(&bundle, "no-such-command", &json!({})).fails(Kind::NoSuchCommand);
    assert!(error.message.contains("no command \"no-such-command\""), "{error:?}");
    assert!(error.hint.contains("echo"), "{error:?}");
    assert_eq!(plugind.status(name)["state"], "inactive", "nothing of this started it");
    assert_eq!(scopes::of(name), Vec::<String>::new());
    plugind.ctl(&["remove", name]).success();
    plugind.unharmed();
}

#[test]
fn arguments_and_results_pass_as_they_are() {
    let plugind = Plugind::new();
    let bundle = Bundle::hostile();
    plugind.ctl(&["install", "--enable", bundle.path()]).success();
    for value in ["7", "null", "\"\"", "[[],{}]", "\"a b\u{fffd}\""] {
        let outcome = plugind.raw_call(RAW_CALL, &["call", bundle.name(), "echo", value]);
        assert_eq!(outcome.stdout.trim_end(), value, "{}", outcome.stderr);
    }
    let outcome = plugind.raw_call(RAW_CALL, &["call", bundle.name(), "echo", "[1,\n 2]"]);
    assert_eq!(outcome.json(), json!([1, 2]));
    plugind.ctl(&["remove", bundle.name()]).success();
    plugind.unharmed();
}

#[test]
fn an_unknown_or_disabled_plugin_and_a_permission_that_it_does_not_ask_for_are_refused() {
    let plugind = Plugind::new();
    let bundle = Bundle::hostile();
    for verb in ["status", "start", "stop", "describe", "remove", "enable"] {
        let outcome = plugind.ctl(&[verb, "no-such-plugin"]);
        assert_eq!(outcome.code, Some(4), "{verb}: {}", outcome.stderr);
    }
    plugind.ctl(&["call", "no-such-plugin.echo"]).fails(Kind::NoSuchPlugin);
    plugind.raw_call(RAW_CALL, &["call", "no-such-plugin", "echo", "{}"]).fails(Kind::NoSuchPlugin);
    plugind.raw_call(RAW_CALL, &["call", "../etc", "echo", "{}"]).fails(Kind::NoSuchPlugin);

    plugind.ctl(&["install", bundle.path()]).success();
    let error = plugind.call(&bundle, "echo", &json!(1)).fails(Kind::Disabled);
    assert!(error.hint.contains(&format!("pluginctl enable {}", bundle.name())), "{error:?}");
    plugind.ctl(&["start", bundle.name()]).fails(Kind::Disabled);

    let error = plugind.ctl(&["grant", bundle.name(), "network:host"]).fails(Kind::InvalidArguments);
    assert!(error.message.contains("does not ask for network:host"), "{error:?}");
    plugind.ctl(&["grant", bundle.name(), "no:such:thing"]).fails(Kind::InvalidArguments);
    assert_eq!(plugind.status(bundle.name())["granted_permissions"], json!([]));
    plugind.ctl(&["remove", bundle.name()]).success();
    plugind.unharmed();
}
