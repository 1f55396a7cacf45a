use proptest::prelude::*;
use serde_json::json;

use super::*;

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

fn cause(frame: &str) -> String {
    match parse(frame).unwrap_err() {
        FrameError::NotJsonRpc { cause } => cause,
        other => panic!("{frame}: {other:?}"),
    }
}

#[test]
fn each_class_is_told_apart() {
    for (frame, class) in [
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{}}"#, Class::Request),
        (r#"{"method":"ping","jsonrpc":"2.0","id":"a"}"#, Class::Request),
        (r#"{"jsonrpc":"2.0","method":"log","params":[1]}"#, Class::Notification),
        (r#"{"jsonrpc":"2.0","id":1,"result":null}"#, Class::Response),
        (r#"{"jsonrpc":"2.0","id":1,"result":3,"error":null}"#, Class::Response),
        (r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}"#, Class::Response),
        (r#"{"jsonrpc":"2.0","id":1,"result":{},"extra":true}"#, Class::Response),
    ] {
        assert_eq!(parse(frame).unwrap().class(), class, "{frame}");
    }
}

#[test]
fn what_is_no_message_names_the_rule_it_breaks() {
    for (frame, expected) in [
        (r#"{"id":1,"result":1}"#, "`jsonrpc` is not"),
        (r#"{"jsonrpc":"1.0","id":1,"result":1}"#, "`jsonrpc` is not"),
        (r#"{"jsonrpc":"2.0"}"#, "neither a `method` nor an `id`"),
        (r#"{"jsonrpc":"2.0","id":1}"#, "no `method`, `result` or `error`"),
        (r#"{"jsonrpc":"2.0","result":1}"#, "neither a `method` nor an `id`"),
        (
            r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{"code":1,"message":""}}"#,
            "a `result` and an `error`",
        ),
        (r#"{"jsonrpc":"2.0","id":1,"method":"a","result":1}"#, "a `method` and a `result`"),
        (r#"{"jsonrpc":"2.0","id":null,"method":"a"}"#, "request is null"),
        (r#"{"jsonrpc":"2.0","id":null,"result":1}"#, "result is null"),
        (r#"{"jsonrpc":"2.0","id":{},"result":1}"#, "neither a number nor a string"),
        (r#"{"jsonrpc":"2.0","id":true,"result":1}"#, "neither a number nor a string"),
        (r#"{"jsonrpc":"2.0","method":"a","params":1}"#, "neither an object nor an array"),
        (r#"{"jsonrpc":"2.0","id":1,"result":1,"params":{}}"#, "has `params`"),
        (r#"{"jsonrpc":"2.0","id":1,"id":1,"result":1}"#, "duplicate field `id`"),
        (r#"{"jsonrpc":"2.0","id":1,"\u0069d":2,"result":1}"#, "duplicate field `id`"),
        (r#"{"jsonrpc":"2.0","id":1,"error":"no"}"#, "invalid type"),
    ] {
        let cause = cause(frame);
        assert!(cause.contains(expected), "{frame}: {cause}");
    }
    let long = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"a"}}"#, "x".repeat(ID_MAX));
    assert!(cause(&long).contains("longer than 256"));
}

#[test]
fn text_of_a_plugin_in_a_cause_is_bounded() {
    let frame = format!(r#"{{"jsonrpc":"2.0","id":1,"error":"{}"}}"#, "\u{9b}x".repeat(100_000));
    assert!(cause(&frame).len() < 1500);
}

#[test]
fn what_is_no_json_is_told_from_what_is_no_message() {
    for frame in
        ["{", "{\"a\":}", "{} {}", "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":[1,]}", "{\"a\":\"\t\"}"]
    {
        assert!(matches!(parse(frame), Err(FrameError::InvalidJson { .. })), "{frame}");
    }
}

#[test]
fn ids_are_given_back_exactly() {
    for text in ["7", "-1", "1.0", "1e3", "123456789012345678901234567890", r#""a\u0041\/""#, r#""""#] {
        let frame = format!(r#"{{"jsonrpc":"2.0","id":{text},"method":"host/kv.get"}}"#);
        let id = parse(&frame).unwrap().id.unwrap();
        assert_eq!(id.as_json(), text);
        let mut line = Vec::new();
        response(&mut line, &id, &json!(1)).unwrap();
        assert_eq!(
            String::from_utf8(line).unwrap(),
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{text},\"result\":1}}\n")
        );
    }
    assert_eq!(Id::from(7).as_u64(), Some(7));
    let of = |text: &str| serde_json::from_str::<Id>(text).unwrap().as_u64();
    assert_eq!([of("7"), of("\"7\""), of("7.0"), of("-7"), of("null")], [Some(7), None, None, None, None]);
}

#[test]
fn raw_params_pass_through_and_stay_on_one_line() {
    let params = raw("{\n\t\"text\" :\r\n \"a\\nb\\u00fc\", \"n\": 1.50}");
    let mut line = b"before\n".to_vec();
    request(&mut line, 3, "command/invoke", &*params).unwrap();
    let text = String::from_utf8(line).unwrap();
    let frame = text.strip_prefix("before\n").unwrap().strip_suffix('\n').unwrap();
    assert!(!frame.contains(['\n', '\r']));
    let envelope = parse(frame).unwrap();
    assert_eq!(envelope.params.unwrap().get(), params.get().replace(['\n', '\r'], " "));
}

#[test]
fn what_cannot_be_written_leaves_nothing() {
    let mut line = b"kept".to_vec();
    let unwritable = std::collections::BTreeMap::from([((1, 2), 3)]);
    assert!(notification(&mut line, "a", &unwritable).is_err());
    assert_eq!(line, b"kept");
}

#[test]
fn an_error_carries_its_data() {
    let mut error = RpcError::new(code::ATTESTATION_FAILED, "attestation failed");
    error.data = Some(raw(r#"{"field":"version"}"#));
    let mut line = Vec::new();
    error_response(&mut line, &Id::null(), &error).unwrap();
    let envelope = parse(std::str::from_utf8(&line).unwrap()).unwrap();
    let read = envelope.error.unwrap();
    assert_eq!((read.code, read.message.as_str()), (-32001, "attestation failed"));
    assert_eq!(read.data.unwrap().get(), r#"{"field":"version"}"#);
}

#[test]
fn the_short_way_reads_nothing_that_the_long_way_reads_otherwise() {
    let whole = r#"{"jsonrpc":"2.0","id":7,"result":{"a":[1,"}"]}}"#;
    let (id, result) = plain_result(whole).unwrap();
    assert_eq!((id, result.get()), (7, r#"{"a":[1,"}"]}"#));
    for frame in [
        r#"{"jsonrpc":"2.0","id":7,"result":1,"error":{"code":1,"message":""}}"#,
        r#"{"jsonrpc":"2.0","id":7,"result":1,"id":8}"#,
        r#"{"jsonrpc":"2.0","id":7,"result":1}}"#,
        r#"{"jsonrpc":"2.0","id":7,"result":}"#,
        r#"{"jsonrpc":"2.0","id":07,"result":1}"#,
        r#"{"jsonrpc":"2.0","id":,"result":1}"#,
        r#"{"jsonrpc":"2.0","id":99999999999999999999,"result":1}"#,
        r#"{"jsonrpc":"2.0","id":"7","result":1}"#,
        r#"{"jsonrpc": "2.0","id":7,"result":1}"#,
        r#"{"jsonrpc":"2.0","id":7,"result":1"#,
    ] {
        assert!(plain_result(frame).is_none(), "{frame}");
    }
    let request = r#"{"jsonrpc":"2.0","id":7,"method":"a/b","params":{"x":1}}"#;
    let (id, params) = plain_request(request, "a/b").unwrap();
    assert_eq!((id.as_u64(), params), (Some(7), r#"{"x":1}"#));
    assert!(plain_request(request, "a").is_none() && plain_request(request, "a/bc").is_none());
}

#[test]
fn an_id_of_any_length_is_given_back_and_told_apart() {
    for length in [1, 21, 22, 23, 24, 254] {
        let text = format!("\"{}\"", "x".repeat(length - 1));
        let id: Id = serde_json::from_str(&text).unwrap();
        assert_eq!(id.as_json(), text);
        assert_eq!(id, id.clone());
        assert_ne!(id, serde_json::from_str::<Id>(&format!("\"{}\"", "y".repeat(length))).unwrap());
    }
    assert_eq!(Id::from(u64::MAX).as_u64(), Some(u64::MAX));
}

proptest! {
    #[test]
    fn the_short_way_and_the_long_way_agree(id in any::<u64>(), text in ".{0,30}", tail in "[,}\\]a:\"0-9 ]{0,6}") {
        let frame = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{}{tail}}}", json!(text));
        if let Some((number, result)) = plain_result(&frame) {
            let whole = parse(&frame).unwrap();
            prop_assert_eq!(whole.id.unwrap().as_u64(), Some(number));
            prop_assert_eq!(whole.result.unwrap().get().trim(), result.get());
        }
    }

    #[test]
    fn any_text_survives_the_wire(method in ".{0,20}", text in ".{0,60}", id in any::<u64>()) {
        let mut line = Vec::new();
        request(&mut line, id, &method, &json!({ "text": text })).unwrap();
        let mut frames = Vec::new();
        crate::frame::Decoder::new(1 << 16).push(&line, |frame| frames.push(frame.unwrap().to_owned()));
        prop_assert_eq!(frames.len(), 1);
        let envelope = parse(&frames[0]).unwrap();
        prop_assert_eq!(envelope.method.as_deref(), Some(method.as_str()));
        prop_assert_eq!(envelope.id.unwrap().as_u64(), Some(id));
        let params: serde_json::Value = serde_json::from_str(envelope.params.unwrap().get()).unwrap();
        prop_assert_eq!(params, json!({ "text": text }));
    }

    #[test]
    fn no_text_makes_it_panic(text in ".{0,200}") {
        let _ = parse(&text);
    }
}
