//! The JSON Schema of `plugin.json`, made from the structs that read it.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use crate::manifest::Manifest;

/// The schema of [`Manifest`].
#[must_use]
pub fn manifest() -> Value {
    let schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<Manifest>();
    sorted(schema.to_value())
}

/// The schema as it is published: pretty, with a line end at its end.
#[must_use]
pub fn manifest_text() -> String {
    format!("{:#}\n", manifest())
}

/// The same text whether or not another crate of the build makes `serde_json` keep the order of insertion.
fn sorted(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(sorted).collect(),
        Value::Object(map) => {
            let mut members: Vec<(String, Value)> =
                map.into_iter().map(|(key, value)| (key, sorted(value))).collect();
            members.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(members.into_iter().collect::<Map<_, _>>())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_schema_is_the_one_that_is_generated() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../units/plugind/plugin.schema.json");
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            committed == manifest_text(),
            "the committed schema is out of date; run: cargo run -p plugind-protocol --example manifest-schema > \
             units/plugind/plugin.schema.json"
        );
    }

    #[test]
    fn unknown_fields_are_refused_by_the_schema_too() {
        fn closed(value: &Value) {
            if let Some(properties) = value.get("properties") {
                assert_eq!(value["additionalProperties"], false, "{properties}");
            }
            match value {
                Value::Object(map) => map.values().for_each(closed),
                Value::Array(items) => items.iter().for_each(closed),
                _ => {}
            }
        }
        closed(&manifest());
    }

    #[test]
    fn it_is_no_stricter_than_the_reader_and_nearly_as_strict() {
        let schema = manifest();
        let validator = jsonschema::validator_for(&schema).unwrap();
        for document in crate::manifest::tests::accepted() {
            assert!(validator.is_valid(&document), "{document}");
        }
        let mut missed: Vec<&str> = crate::manifest::tests::broken()
            .into_iter()
            .filter(|(_, document)| validator.is_valid(document))
            .map(|(field, _)| field)
            .collect();
        missed.dedup();
        // Control characters, names that stand twice, rules between fields, reserved names, and the sizes themselves.
        let beyond_a_schema = [
            "/description",
            "/commands/1",
            "/commands/0/description",
            "/commands/0/input_schema",
            "/commands/0/output_schema",
            "/contributes/panel",
            "/permissions/mounts/1",
            "/permissions/env",
            "/resources/memory_max",
            "/resources/frame_max",
        ];
        assert_eq!(missed, beyond_a_schema);
    }

    #[test]
    fn it_keeps_within_the_bounds_of_the_schemas_that_plugins_bring() {
        crate::manifest::command_schema::check(&manifest()).unwrap();
    }
}
