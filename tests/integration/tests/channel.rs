//! What a caller may say on a channel, and what it is told: ids, refusals, and the ways in which a call ends early.
#![cfg(feature = "stage")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Stdio;

use plugind_integration::channel::{self, Wire, fails};
use plugind_integration::{Bundle, Plugind, until};
use plugind_protocol::Kind;
use plugind_protocol::envelope::code;
use serde_json::{Value, json};

const RAW_CALL: &str = env!("CARGO_BIN_EXE_raw-call");

/// A plugind with a hostile plugin that runs.
fn started(bundle: &Bundle) -> Plugind {
    let plugind = Plugind::new();
    plugind.ctl(&["install", "--enable", bundle.path()]).success();
    plugind.ctl(&["start", bundle.name()]).success();
    plugind
}

/// The reasons of every `$/cancel` that the plugin got, once there are so many.
fn reasons(plugind: &Plugind, bundle: &Bundle, count: usize) -> Vec<Value> {
    until(&format!("{count} calls are cancelled at the plugin"), || {
        let cancels = plugind.call(bundle, "cancels", &json!({})).json();
        let cancels = cancels["cancels"].as_array().unwrap();
        (cancels.len() >= count).then(|| cancels.iter().map(|cancel| cancel["reason"].clone()).collect())
    })
}

/// Waits until the plugin works on so many calls.
fn working(plugind: &Plugind, bundle: &Bundle, count: u64) {
    until(&format!("{count} calls are at the plugin"), || {
        (plugind.status(bundle.name())["in_flight"] == count).then_some(())
    });
}

#[test]
fn ids_of_every_sort_come_back_exactly_as_they_were_written() {
    let bundle = Bundle::hostile();
    let plugind = started(&bundle);
    let mut wire = Wire::open(&plugind, RAW_CALL, &[bundle.name()]);
    let long = format!("\"{}\"", "x".repeat(254));
    for id in [
        "0",
        "7",
        "-7",
        "1.50",
        "1e3",
        "-0",
        "9007199254740993",
        "18446744073709551617",
        "\"7\"",
        "\"\"",
        r#""a\u0041\n\"\\\/""#,
        "\"Grüße 👩‍👩‍👧\"",
        &long,
    ] {
        let params = r#""params":{"command":"echo","arguments":[1]}"#;
        wire.raw(
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"command/invoke\",{params}}}\n")
                .as_bytes(),
        );
        assert_eq!(wire.line().unwrap(), format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":[1]}}"));
        // On an error, too, and in another order.
        wire.raw(format!("{{ \"method\":\"nothing\", \"id\" : {id},\"jsonrpc\":\"2.0\"}}\n").as_bytes());
        let line = wire.line().unwrap();
        assert!(line.starts_with(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":")), "{line}");
    }
    let too_long = format!("\"{}\"", "x".repeat(255));
    for id in ["null", "true", "[1]", "{}", &too_long] {
        wire.raw(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}\n").as_bytes());
        let (code, error) = wire.refusal(&Value::Null);
        assert_eq!((code, error.kind), (code::INVALID_REQUEST, Kind::ProtocolViolation), "{error:?}");
    }
    wire.goes_on();
    plugind.unharmed_but_for(&bundle);
}

#[test]
fn an_id_in_flight_is_refused_and_the_first_call_is_unharmed() {
    let bundle = Bundle::hostile();
    let plugind = started(&bundle);
    let mut wire = Wire::open(&plugind, RAW_CALL, &[bundle.name()]);
    let mut other = Wire::open(&plugind, RAW_CALL, &[bundle.name()]);
    let id = json!("again");
    wire.invoke(&id, &json!({"command": "hold", "arguments": {"key": "a"}}));
    for _ in 0..3 {
        wire.invoke(&id, &json!({"command": "echo"}));
        let error = fails(wire.answer(&json!(null)), Kind::Conflict);
        assert!(error.message.contains("\"again\"") && error.outcome_known, "{error:?}");
    }
    // Ids are the channel's own.
    assert_eq!(other.call(&id, "echo", &json!(2)), Ok(json!(2)));
    assert_eq!(other.call(&json!(1), "release", &json!({"key": "a"})), Ok(json!({})));
    assert_eq!(wire.answer(&id), Ok(json!({"released": true})));
    assert_eq!(wire.call(&id, "echo", &json!(3)), Ok(json!(3)), "free again");
    plugind.unharmed_but_for(&bundle);
}

#[test]
fn a_channel_reaches_the_plugins_that_it_is_for_and_no_other() {
    let (first, second, third) = (Bundle::hostile(), Bundle::hostile(), Bundle::hostile());
    let plugind = started(&first);
    for bundle in [&second, &third] {
        plugind.ctl(&["install", "--enable", bundle.path()]).success();
    }
    let mut wire = Wire::open(&plugind, RAW_CALL, &[first.name(), second.name()]);
    for (id, bundle) in [&first, &second, &first].into_iter().enumerate() {
        let environ = json!({"plugin": bundle.name(), "command": "probe", "arguments": {"what": "environ"}});
        wire.invoke(&json!(id), &environ);
        let answer = wire.answer(&json!(id)).unwrap();
        assert_eq!(answer["value"]["PLUGIND_NAME"], bundle.name(), "{answer}");
    }
    for name in [third.name(), "no-such-plugin", "../etc", ""] {
        wire.invoke(&json!(1), &json!({"plugin": name, "command": "echo"}));
        fails(wire.answer(&json!(1)), Kind::NoSuchPlugin);
    }
    let error = fails(wire.call(&json!(1), "echo", &json!({})), Kind::InvalidArguments);
    assert!(error.message.contains("params.plugin is missing"), "{error:?}");
    assert_eq!(plugind.status(third.name())["state"], "inactive", "it was not even started");
    wire.invoke(&json!(1), &json!({"plugin": first.name(), "command": "no-such-command"}));
    fails(wire.answer(&json!(1)), Kind::NoSuchCommand);
    for bundle in [&first, &second, &third] {
        plugind.ctl(&["remove", bundle.name()]).success();
    }
    plugind.unharmed();
}

#[test]
fn a_line_that_is_no_request_is_answered_clearly_and_the_channel_goes_on() {
    let bundle = Bundle::hostile();
    let plugind = started(&bundle);
    let mut wire = Wire::open(&plugind, RAW_CALL, &[bundle.name()]);
    let too_long = format!("{{\"x\":\"{}\"}}", "x".repeat(wire.frame_max));
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    for (line, code, said) in [
        (&b"what?"[..], code::INVALID_REQUEST, "not a JSON object"),
        (b"[]", code::INVALID_REQUEST, "not a JSON object"),
        (br#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, code::INVALID_REQUEST, "not a JSON object"),
        (b"7", code::INVALID_REQUEST, "not a JSON object"),
        (br#"{"jsonrpc":"2.0","#, code::PARSE_ERROR, "not JSON"),
        (br#"{"jsonrpc":"2.0","id":1,"method":"ping"}}"#, code::PARSE_ERROR, "not JSON"),
        (b"{}", code::INVALID_REQUEST, "not a JSON-RPC 2.0 message"),
        (br#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, code::INVALID_REQUEST, "not a JSON-RPC 2.0 message"),
        (br#"{"jsonrpc":"2.0","id":1,"method":7}"#, code::INVALID_REQUEST, "not a JSON-RPC 2.0 message"),
        (br#"{"jsonrpc":"2.0","id":1,"method":"ping","params":7}"#, code::INVALID_REQUEST, "params"),
        (b"{\"jsonrpc\":\"2.0\",\0}", code::INVALID_REQUEST, "NUL byte"),
        (b"\xef\xbb\xbf{}", code::INVALID_REQUEST, "byte order mark"),
        (b"{\"a\":\"\xff\"}", code::INVALID_REQUEST, "not UTF-8"),
        (too_long.as_bytes(), code::INVALID_REQUEST, "longer than frame_max"),
        (deep.as_bytes(), code::INVALID_REQUEST, "nests deeper"),
    ] {
        wire.raw(line);
        wire.raw(b"\n");
        let (got, error) = wire.refusal(&Value::Null);
        let shown = String::from_utf8_lossy(&line[..line.len().min(60)]);
        assert!(got == code && error.message.contains(said), "{shown}: {got} {error:?}");
        wire.goes_on();
    }
    // What has no answer: blank lines, answers to nobody, unknown or wrong notifications, calls without an id.
    wire.raw(b"\n\r\n  \n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n");
    wire.notify("command/invoke", &json!({"command": "exit", "arguments": {"code": 1}}));
    wire.notify("$/unknown", &json!({}));
    for method in ["$/cancel", "$/credit"] {
        for params in [json!({}), json!([]), json!({"invocation": 1}), json!({"invocation": [1], "n": -1})] {
            wire.notify(method, &params);
        }
    }
    wire.goes_on();
    plugind.unharmed_but_for(&bundle);
}

#[test]
fn params_that_are_not_right_are_refused_by_name() {
    let bundle = Bundle::hostile();
    let plugind = started(&bundle);
    let mut wire = Wire::open(&plugind, RAW_CALL, &[bundle.name()]);
    for (params, said) in [
        (r#"{"command":"echo","more":1}"#, "more"),
        (r#"{"command":"echo","meta":{"caller":"root"}}"#, "caller"),
        (r#"{"command":"echo","meta":{"invocation":"i1"}}"#, "invocation"),
        (r#"{"command":"echo","meta":7}"#, "7"),
        (r#"{"command":"echo","meta":{"deadline_ms":-1}}"#, "-1"),
        (r#"{"command":"echo","meta":{"deadline_ms":"1s"}}"#, "1s"),
        (r#"{"command":"echo","meta":{"dry_run":1}}"#, "1"),
        (r#"{"command":"echo","meta":{"credit":1.5}}"#, "1.5"),
        (r#"{"command":7}"#, "7"),
        (r#"{"command":"echo","command":"exit"}"#, "command"),
        (r#"{"command":"echo","plugin":7}"#, "7"),
        (r#"{"arguments":{}}"#, "command"),
        (r"{}", "command"),
    ] {
        wire.raw(b"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"command/invoke\",\"params\":");
        wire.raw(format!("{params}}}\n").as_bytes());
        let (code, error) = wire.refusal(&json!(5));
        assert_eq!((code, error.kind), (code::INVALID_PARAMS, Kind::InvalidArguments), "{params}: {error:?}");
        assert!(error.message.contains(said) && error.outcome_known, "{params}: {error:?}");
    }
    for params in ["", ",\"params\":[\"echo\"]"] {
        wire.raw(
            format!("{{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"command/invoke\"{params}}}\n").as_bytes(),
        );
        assert_eq!(wire.refusal(&json!(5)).0, code::INVALID_PARAMS, "{params}");
    }
    for method in ["shutdown", "initialize", "", "Ping", "$/cancel"] {
        wire.send(&json!({"jsonrpc": "2.0", "id": 6, "method": method, "params": {}}));
        let (code, error) = wire.refusal(&json!(6));
        assert_eq!(
            (code, error.kind),
            (code::METHOD_NOT_FOUND, Kind::InvalidArguments),
            "{method}: {error:?}"
        );
    }
    // What breaks the command's own contract.
    let error = fails(wire.call(&json!(7), "sleep", &json!({"ms": "soon"})), Kind::InvalidArguments);
    assert!(error.message.contains("break its input schema: /ms"), "{error:?}");
    wire.invoke(&json!(7), &json!({"command": "echo", "meta": {"dry_run": true}}));
    assert!(fails(wire.answer(&json!(7)), Kind::InvalidArguments).message.contains("no dry run"));
    wire.goes_on();
    plugind.unharmed_but_for(&bundle);
}

#[test]
fn a_cancelled_call_is_answered_so_and_the_plugin_is_told_why() {
    let bundle = Bundle::hostile();
    let plugind = started(&bundle);
    let mut wire = Wire::open(&plugind, RAW_CALL, &[bundle.name()]);
    let hold = json!({"command": "hold", "arguments": {"key": "never"}});
    for (id, cancel) in [
        (json!(1), json!({"invocation": 1, "reason": "changed\u{1b}my mind"})),
        (json!("one"), json!({"invocation": "one"})),
    ] {
        wire.invoke(&id, &hold);
        wire.notify("$/cancel", &json!({"invocation": "nobody's"}));
        wire.notify("$/cancel", &cancel);
        wire.notify("$/cancel", &cancel);
        assert!(!fails(wire.answer(&id), Kind::Cancelled).outcome_known, "it was at the plugin");
    }
    let reasons = reasons(&plugind, &bundle, 2);
    assert_eq!(reasons, ["changed\\u{1b}my mind", "cancelled by its caller"]);
    assert_eq!(wire.call(&json!(1), "echo", &json!(1)), Ok(json!(1)));
    plugind.unharmed_but_for(&bundle);
}

#[test]
fn a_call_ends_at_its_deadline_which_the_caller_can_only_bring_forward() {
    let bundle = Bundle::hostile();
    let plugind = started(&bundle);
    let mut wire = Wire::open(&plugind, RAW_CALL, &[bundle.name()]);
    let hold = json!({"command": "hold", "arguments": {"key": "never"}, "meta": {"deadline_ms": 300}});
    wire.invoke(&json!(1), &hold);
    let error = fails(wire.answer(&json!(1)), Kind::TimedOut);
    assert!(!error.outcome_known && error.retryable, "{error:?}");
    assert_eq!(reasons(&plugind, &bundle, 1), ["timed out"]);
    for (asked, told) in
        [(json!(u64::MAX), 10_000), (json!(10_001), 10_000), (json!(5000), 5000), (Value::Null, 10_000)]
    {
        wire.invoke(&json!(2), &json!({"command": "meta", "meta": {"deadline_ms": asked}}));
        let meta = wire.answer(&json!(2)).unwrap();
        assert!(meta["deadline_ms"].as_u64().unwrap() <= told, "{asked}: {meta}");
        assert!(meta["credit"].is_null() && meta["dry_run"] == false, "{meta}");
        assert!(meta["caller"].as_str().unwrap().starts_with("uid:"), "{meta}");
    }
    plugind.unharmed_but_for(&bundle);
}

#[test]
fn the_calls_of_a_caller_that_goes_away_are_cancelled_at_the_plugin() {
    let bundle = Bundle::hostile();
    let plugind = started(&bundle);
    let mut wire = Wire::open(&plugind, RAW_CALL, &[bundle.name()]);
    for id in 0..3 {
        wire.invoke(&json!(id), &json!({"command": "hold", "arguments": {"key": "never"}}));
    }
    working(&plugind, &bundle, 3);
    // Half a request at the end is none.
    wire.raw(br#"{"jsonrpc":"2.0","id":9,"method":"command/invoke","params":{"command":"exit","arguments":{"code":1}}}"#);
    drop(wire);
    assert_eq!(reasons(&plugind, &bundle, 3), ["caller gone", "caller gone", "caller gone"]);

    // The same by D-Bus: whoever leaves the bus does not want its answers.
    let mut caller = plugind.command(RAW_CALL);
    caller.args(["call", bundle.name(), "hold", r#"{"key":"never"}"#]);
    let mut caller = caller.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    working(&plugind, &bundle, 1);
    caller.kill().unwrap();
    caller.wait().unwrap();
    assert_eq!(reasons(&plugind, &bundle, 4)[3], "caller gone");
    working(&plugind, &bundle, 0);
    assert_eq!(plugind.status(bundle.name())["errors_by_kind"]["Cancelled"], 4);
    plugind.unharmed_but_for(&bundle);
}

#[test]
fn a_channel_is_opened_to_1_to_64_plugins_that_are_there() {
    let bundle = Bundle::hostile();
    let plugind = started(&bundle);
    let name = bundle.name();
    let many: Vec<String> = (0..65).map(|number| format!("plugin-{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (arguments, kind, said) in [
        (&[][..], Kind::InvalidArguments, "for 1 to 64 plugins, not for 0"),
        (&many, Kind::InvalidArguments, "not for 65"),
        (&many[1..], Kind::NoSuchPlugin, "plugin-1"),
        (&[name, "no-such-plugin"], Kind::NoSuchPlugin, "no-such-plugin"),
        (&["../etc"], Kind::NoSuchPlugin, ""),
        (&[name, name], Kind::InvalidArguments, "named twice"),
        (&["--option", "timeout", name], Kind::InvalidArguments, "no option \"timeout\""),
    ] {
        let error = channel::open(&plugind, RAW_CALL, arguments).0.fails(kind);
        assert!(error.message.contains(said), "{arguments:?}: {error:?}");
    }
    // A disabled one is opened, and called in vain.
    plugind.ctl(&["disable", name]).success();
    let mut wire = Wire::open(&plugind, RAW_CALL, &[name]);
    fails(wire.call(&json!(1), "echo", &json!(1)), Kind::Disabled);
    plugind.unharmed_but_for(&bundle);
}
