//! What a plugin promised in its manifest, ready to check calls against.

use std::sync::Arc;
use std::time::Duration;

use jsonschema::Validator;
use plugind_protocol::manifest::command_schema::accepts_everything;
use plugind_protocol::{BundleDigest, Error, Kind, Manifest, strict};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

/// A manifest with its schemas compiled once.
pub(crate) struct Contract {
    pub(crate) digest: BundleDigest,
    /// SHA-256 of the manifest's bytes.
    pub(crate) manifest_sha256: String,
    pub(crate) manifest: Manifest,
    checked: Vec<Checked>,
    checks: Arc<Semaphore>,
}

/// One command of the manifest, ready to be called.
pub(crate) struct Checked {
    pub(crate) name: String,
    /// The same as a JSON text.
    pub(crate) json: Arc<str>,
    /// The longest that a call may take.
    pub(crate) timeout: Duration,
    pub(crate) dry_run: bool,
    /// `None` where the schema accepts everything: then nothing is parsed.
    input: Option<Arc<Validator>>,
    output: Option<Arc<Validator>>,
}

/// A text of up to this many bytes is checked at once, a longer one beside the event loop.
const INLINE_MAX: usize = 1024;

/// Checks of one plugin's values that run beside the event loop at the same time.
const CHECKS: usize = 2;

/// The longest check.
const CHECK_DEADLINE: Duration = Duration::from_secs(10);

impl Contract {
    /// Compiles the manifest's schemas.
    pub(crate) fn new(
        digest: BundleDigest,
        manifest_sha256: String,
        manifest: Manifest,
    ) -> Result<Contract, Error> {
        let mut checked = Vec::new();
        for command in &manifest.commands {
            let field = |which: &str| format!("commands.{}.{which}", command.name);
            checked.push(Checked {
                name: command.name.clone(),
                json: serde_json::Value::from(command.name.as_str()).to_string().into(),
                timeout: Duration::from_millis(u64::from(command.timeout_ms)),
                dry_run: command.dry_run,
                input: compile(&command.input_schema, &field("input_schema"))?,
                output: compile(&command.output_schema, &field("output_schema"))?,
            });
        }
        Ok(Contract { digest, manifest_sha256, manifest, checked, checks: Arc::new(Semaphore::new(CHECKS)) })
    }

    /// A command by its place.
    pub(crate) fn checked(&self, at: usize) -> &Checked {
        &self.checked[at]
    }

    /// The place of the command of that name.
    pub(crate) fn find(&self, name: &str) -> Result<usize, Error> {
        self.checked.iter().position(|checked| checked.name == name).ok_or_else(|| {
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

    /// Checks a call's arguments, if that is short work.
    pub(crate) fn check_arguments_now(
        &self,
        command: &Checked,
        arguments: &RawValue,
    ) -> Option<Result<(), Error>> {
        match &command.input {
            None => Some(Ok(())),
            Some(schema) => short(arguments).then(|| {
                violation(schema, arguments.get()).map_err(|cause| self.bad_arguments(command, &cause))
            }),
        }
    }

    /// Checks a call's arguments.
    pub(crate) async fn check_arguments(&self, command: &Checked, arguments: &RawValue) -> Result<(), Error> {
        if let Some(checked) = self.check_arguments_now(command, arguments) {
            return checked;
        }
        let Some(schema) = &command.input else { return Ok(()) };
        self.check(schema, arguments).await?.map_err(|cause| self.bad_arguments(command, &cause))
    }

    /// Checks a call's result, if that is short work.
    pub(crate) fn check_result_now(&self, command: &Checked, result: &RawValue) -> Option<Result<(), Error>> {
        match &command.output {
            None => Some(Ok(())),
            Some(schema) => short(result)
                .then(|| violation(schema, result.get()).map_err(|cause| self.bad_result(command, &cause))),
        }
    }

    /// Checks a call's result.
    pub(crate) async fn check_result(&self, command: &Checked, result: &RawValue) -> Result<(), Error> {
        if let Some(checked) = self.check_result_now(command, result) {
            return checked;
        }
        let Some(schema) = &command.output else { return Ok(()) };
        let checked = self.check(schema, result).await.map_err(Error::outcome_unknown)?;
        checked.map_err(|cause| self.bad_result(command, &cause))
    }

    fn bad_arguments(&self, command: &Checked, cause: &str) -> Error {
        let command = &command.name;
        Error::new(
            Kind::InvalidArguments,
            format!("the arguments of {}.{command} break its input schema: {cause}", self.manifest.name),
            format!("see the schema: pluginctl describe {}", self.manifest.name),
        )
    }

    fn bad_result(&self, command: &Checked, cause: &str) -> Error {
        let command = &command.name;
        Error::new(
            Kind::ProtocolViolation,
            format!("the result of {}.{command} breaks its output schema: {cause}", self.manifest.name),
            "report it to the plugin's author: the manifest promises another shape",
        )
        .outcome_unknown()
    }

    /// The first violation of a schema. Both sides are the plugin's own, so a long check must not hold up others: it
    /// goes on beside the event loop, few at a time.
    async fn check(&self, schema: &Arc<Validator>, text: &RawValue) -> Result<Result<(), String>, Error> {
        let too_long = || {
            Error::new(
                Kind::TimedOut,
                format!(
                    "{}'s values take more than {} s to check against their schema",
                    self.manifest.name,
                    CHECK_DEADLINE.as_secs()
                ),
                "send less at once, or let the manifest's author write a simpler schema",
            )
        };
        let deadline = Instant::now() + CHECK_DEADLINE;
        let permit =
            timeout_at(deadline, Arc::clone(&self.checks).acquire_owned()).await.map_err(|_| too_long())?;
        let (schema, text) = (Arc::clone(schema), text.get().to_owned());
        let check = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            violation(&schema, &text)
        });
        let checked = timeout_at(deadline, check).await.map_err(|_| too_long())?;
        checked.map_err(|cause| Error::internal(format!("a check was cut off: {cause}")))
    }
}

fn short(text: &RawValue) -> bool {
    text.get().len() <= INLINE_MAX
}

fn compile(schema: &Value, field: &str) -> Result<Option<Arc<Validator>>, Error> {
    if accepts_everything(schema) {
        return Ok(None);
    }
    // `regex` instead of the default engine: it cannot be made to backtrack.
    jsonschema::options()
        .with_pattern_options(jsonschema::PatternOptions::regex().size_limit(64 * 1024))
        .build(schema)
        .map(|schema| Some(Arc::new(schema)))
        .map_err(|cause| {
            Error::new(
                Kind::InvalidManifest,
                format!("{field}: {cause}"),
                "write a JSON Schema (draft 2020-12)",
            )
        })
}

fn violation(schema: &Validator, text: &str) -> Result<(), String> {
    let value: Value = strict::unique(text).map_err(|cause| cause.to_string())?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn contract() -> Contract {
        let manifest = r#"{"manifest":1,"name":"x","version":"1.0.0","description":"x","protocol":"plugind/1",
            "exec":["bin/x"],"commands":[{"name":"c","description":"c","risk":"read-only","output_schema":
            {"type":"object","properties":{"a":{"type":"integer","maximum":10}},"required":["a"]}}]}"#;
        let manifest = Manifest::parse(manifest.as_bytes()).unwrap();
        Contract::new(BundleDigest([0; 32]), String::new(), manifest).unwrap()
    }

    async fn accepts(result: &str) -> bool {
        let result = RawValue::from_string(result.to_owned()).unwrap();
        let contract = contract();
        let command = contract.checked(contract.find("c").unwrap());
        contract.check_result(command, &result).await.is_ok()
    }

    #[tokio::test]
    async fn a_result_with_a_key_twice_cannot_show_two_faces() {
        assert!(accepts(r#"{"a":1}"#).await);
        assert!(!accepts(r#"{"a":11}"#).await);
        assert!(!accepts(r#"{"a":"evil","a":1}"#).await);
        assert!(!accepts(r#"{"a":1,"b":{"c":1,"c":2}}"#).await);
    }
}
