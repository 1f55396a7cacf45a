//! What a plugin promised in its manifest, ready to check calls against.

use std::collections::HashMap;

use jsonschema::Validator;
use plugind_protocol::manifest::Command;
use plugind_protocol::{BundleDigest, Error, Kind, Manifest};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// A manifest with its schemas compiled once.
pub(crate) struct Contract {
    pub(crate) digest: BundleDigest,
    pub(crate) manifest: Manifest,
    schemas: HashMap<String, Schemas>,
}

/// `None` where the schema accepts everything: then nothing is parsed.
struct Schemas {
    input: Option<Validator>,
    output: Option<Validator>,
}

impl Contract {
    /// Compiles the manifest's schemas.
    pub(crate) fn new(digest: BundleDigest, manifest: Manifest) -> Result<Contract, Error> {
        let mut schemas = HashMap::new();
        for command in &manifest.commands {
            let field = |which: &str| format!("commands.{}.{which}", command.name);
            let compiled = Schemas {
                input: compile(&command.input_schema, &field("input_schema"))?,
                output: compile(&command.output_schema, &field("output_schema"))?,
            };
            schemas.insert(command.name.clone(), compiled);
        }
        Ok(Contract { digest, manifest, schemas })
    }

    /// The command of that name.
    pub(crate) fn command(&self, name: &str) -> Result<&Command, Error> {
        self.manifest.commands.iter().find(|command| command.name == name).ok_or_else(|| {
            let known: Vec<&str> =
                self.manifest.commands.iter().map(|command| command.name.as_str()).collect();
            Error::new(
                Kind::NoSuchCommand,
                format!("{} has no command {name:?}", self.manifest.name),
                if known.is_empty() {
                    "it has no commands".to_owned()
                } else {
                    format!("it has: {}", known.join(", "))
                },
            )
        })
    }

    /// Checks a call's arguments.
    pub(crate) fn check_arguments(&self, command: &str, arguments: &RawValue) -> Result<(), Error> {
        let Some(schema) = self.schemas.get(command).and_then(|schemas| schemas.input.as_ref()) else {
            return Ok(());
        };
        violations(schema, arguments).map_err(|cause| {
            Error::new(
                Kind::InvalidArguments,
                format!("the arguments of {}.{command} break its input schema: {cause}", self.manifest.name),
                format!("see the schema: pluginctl describe {}", self.manifest.name),
            )
        })
    }

    /// Checks a call's result.
    pub(crate) fn check_result(&self, command: &str, result: &RawValue) -> Result<(), Error> {
        let Some(schema) = self.schemas.get(command).and_then(|schemas| schemas.output.as_ref()) else {
            return Ok(());
        };
        violations(schema, result).map_err(|cause| {
            Error::new(
                Kind::ProtocolViolation,
                format!("the result of {}.{command} breaks its output schema: {cause}", self.manifest.name),
                "report it to the plugin's author: the manifest promises another shape",
            )
            .outcome_unknown()
        })
    }
}

fn compile(schema: &Value, field: &str) -> Result<Option<Validator>, Error> {
    let accepts_all = matches!(schema, Value::Bool(true)) || schema.as_object().is_some_and(Map::is_empty);
    if accepts_all {
        return Ok(None);
    }
    // `regex` instead of the default engine: it cannot be made to backtrack.
    jsonschema::options()
        .with_pattern_options(jsonschema::PatternOptions::regex().size_limit(64 * 1024))
        .build(schema)
        .map(Some)
        .map_err(|cause| {
            Error::new(
                Kind::InvalidManifest,
                format!("{field}: {cause}"),
                "write a JSON Schema (draft 2020-12)",
            )
        })
}

fn violations(schema: &Validator, text: &RawValue) -> Result<(), String> {
    let value: Value = serde_json::from_str(text.get()).map_err(|cause| cause.to_string())?;
    let Some(first) = schema.iter_errors(&value).next() else { return Ok(()) };
    let place = first.instance_path().to_string();
    let mut cause = first.masked().to_string();
    if cause.len() > 300 {
        let end = (0..=300).rev().find(|&at| cause.is_char_boundary(at)).unwrap_or(0);
        cause.truncate(end);
        cause.push('…');
    }
    Err(if place.is_empty() { cause } else { format!("{place}: {cause}") })
}
