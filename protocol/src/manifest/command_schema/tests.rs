use serde_json::json;

use super::*;

fn refusal(schema: &Value) -> SchemaFault {
    check(schema).expect_err(&schema.to_string())
}

#[test]
fn everyday_schemas_pass() {
    for schema in [
        json!({}),
        json!(true),
        json!(false),
        json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": { "text": { "type": "string", "pattern": "^a" }, "$id": { "type": "string" } },
            "required": ["text"],
            "additionalProperties": false,
            "dependencies": { "a": ["b"], "c": { "required": ["d"] } },
        }),
        json!({ "const": { "$id": "data, no keyword" }, "enum": [{ "$ref": "elsewhere" }] }),
        json!({ "items": [{ "type": "string" }, {}], "additionalItems": false }),
        json!({ "oneOf": [{ "$ref": "#/$defs/a~1b" }, { "$ref": "#/$defs/c" }], "$defs": { "a/b": {}, "c": true } }),
    ] {
        assert_eq!(check(&schema), Ok(()), "{schema}");
    }
}

#[test]
fn trees_and_lists_may_recurse() {
    for schema in [
        json!({ "properties": { "name": { "type": "string" }, "children": { "items": { "$ref": "#" } } } }),
        json!({ "properties": { "left": { "$ref": "#" }, "right": { "$ref": "#" } } }),
        json!({
            "$ref": "#/$defs/value",
            "$defs": { "value": { "items": { "$ref": "#/$defs/value" }, "additionalProperties": { "$ref": "#/$defs/value" } } },
        }),
        json!({ "anyOf": [
            { "type": "string" },
            { "type": "array", "items": { "$ref": "#" } },
        ] }),
    ] {
        assert_eq!(check(&schema), Ok(()), "{schema}");
    }
}

#[test]
fn nothing_refers_outside_or_by_other_means() {
    for (schema, pointer) in [
        (json!({ "$ref": "https://example.org/a" }), "/$ref"),
        (json!({ "$ref": "other.json" }), "/$ref"),
        (json!({ "$ref": "#name" }), "/$ref"),
        (json!({ "$ref": "#/%24defs/a", "$defs": { "a": {} } }), "/$ref"),
        (json!({ "$ref": 7 }), "/$ref"),
        (json!({ "$ref": "#/$defs/missing" }), "/$ref"),
        (json!({ "$ref": "#/properties", "properties": { "a": {} } }), "/$ref"),
        (
            json!({ "properties": { "a/b": { "$ref": "#/unknown/0" } }, "unknown": [{}] }),
            "/properties/a~1b/$ref",
        ),
        (json!({ "$id": "a" }), ""),
        (json!({ "items": { "$anchor": "a" } }), "/items"),
        (json!({ "$dynamicRef": "#a" }), ""),
        (json!({ "not": { "$recursiveRef": "#" } }), "/not"),
        (json!({ "$schema": "http://json-schema.org/draft-04/schema#" }), "/$schema"),
        (
            json!({ "$defs": { "a": { "$schema": "https://json-schema.org/draft/2020-12/schema" } } }),
            "/$defs/a/$schema",
        ),
        (json!({ "unevaluatedProperties": false }), ""),
    ] {
        let fault = refusal(&schema);
        assert_eq!(fault.pointer, pointer, "{schema}: {fault}");
        assert!(!fault.hint.is_empty());
    }
}

#[test]
fn malformed_applicators_are_refused() {
    for schema in [
        json!(7),
        json!("a"),
        json!({ "properties": [] }),
        json!({ "allOf": {} }),
        json!({ "items": 3 }),
        json!({ "properties": { "a": 1 } }),
        json!({ "$defs": { "a": null } }),
    ] {
        refusal(&schema);
    }
}

#[test]
fn sizes_are_bounded() {
    let described = |length: usize| json!({ "description": "x".repeat(length) });
    assert_eq!(check(&described(SCHEMA_MAX - 18)), Ok(()));
    refusal(&described(SCHEMA_MAX - 17));

    let nested = |levels: usize| (1..levels).fold(json!({}), |inner, _| json!({ "not": inner }));
    assert_eq!(check(&nested(32)), Ok(()));
    refusal(&nested(33));

    assert_eq!(check(&json!({ "pattern": "a".repeat(256) })), Ok(()));
    assert_eq!(refusal(&json!({ "pattern": "a".repeat(257) })).pointer, "/pattern");
    assert_eq!(
        refusal(&json!({ "patternProperties": { "a".repeat(257): {} } })).pointer,
        "/patternProperties"
    );
}

#[test]
fn recursion_must_descend_into_the_value() {
    for schema in [
        json!({ "$ref": "#" }),
        json!({ "allOf": [{ "$ref": "#" }] }),
        json!({ "$ref": "#/$defs/a", "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "not": { "$ref": "#/$defs/a" } } } }),
    ] {
        assert!(refusal(&schema).cause.contains("without descending"), "{schema}");
    }
}

#[test]
fn work_must_not_grow_with_the_power_of_depth() {
    // Twice the work for each of 64 levels of an array.
    let doubling = json!({ "allOf": [{ "items": { "$ref": "#" } }, { "items": { "$ref": "#" } }] });
    // Twice the work for each of 20 definitions, with no recursion at all.
    let laughs: Map<String, Value> = (0..20)
        .map(|level| {
            let next = json!({ "$ref": format!("#/$defs/d{}", level + 1) });
            (format!("d{level}"), json!({ "allOf": [next, next] }))
        })
        .chain([("d20".to_owned(), json!({}))])
        .collect();
    // A choice at each level where to leave a chain of recursions: not exponential, and still far too much.
    let chain: Map<String, Value> = (0..20)
        .map(|step| {
            let own = json!({ "$ref": format!("#/$defs/d{step}") });
            let next = json!({ "$ref": format!("#/$defs/d{}", (step + 1).min(19)) });
            (format!("d{step}"), json!({ "properties": { "a": { "allOf": [own, next] } } }))
        })
        .collect();
    for schema in [
        doubling,
        json!({ "$ref": "#/$defs/d0", "$defs": laughs }),
        json!({ "$ref": "#/$defs/d0", "$defs": chain }),
        json!({ "allOf": vec![json!({}); COST_MAX as usize + 1] }),
    ] {
        assert!(refusal(&schema).cause.contains("along one path"), "{schema}");
    }
}

#[test]
fn a_large_flat_schema_passes() {
    let properties: Map<String, Value> =
        (0..1500).map(|number| (format!("p{number}"), json!({ "type": "integer" }))).collect();
    assert_eq!(check(&json!({ "properties": properties })), Ok(()));
}

#[test]
fn schemas_that_say_nothing_are_known() {
    for schema in [json!({}), json!(true), json!({ "title": "a", "$defs": { "b": false } })] {
        assert!(accepts_everything(&schema), "{schema}");
    }
    for schema in [
        json!(false),
        json!({ "type": "object" }),
        json!({ "$ref": "#" }),
        json!({ "properties": {} }),
        json!(1),
    ] {
        assert!(!accepts_everything(&schema), "{schema}");
    }
}

#[test]
fn long_names_do_not_multiply() {
    let leaves: Map<String, Value> = (0..3000).map(|number| (format!("{number}"), json!({}))).collect();
    let long = json!({ "properties": { "x".repeat(30_000): { "properties": leaves } } });
    assert_eq!(check(&long), Ok(()));
    let wrong = json!({ "properties": { "x".repeat(30_000): { "$id": "a" } } });
    assert!(refusal(&wrong).pointer.len() < 300);
}
