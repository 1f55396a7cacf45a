//! The bounds of the JSON Schemas that a plugin brings for its commands.
//!
//! They come from the plugin's author and are run by the supervisor against what the plugin and its callers send. So
//! nothing in them may reach outside of the schema, and checking any value must take a bounded time: a schema of a few
//! lines can otherwise recurse forever, or double its work with each level of the value.

mod graph;

use serde_json::{Map, Value};

use graph::Graph;

/// The largest schema, bytes of compact JSON.
pub const SCHEMA_MAX: usize = 64 << 10;
/// How deep a schema's JSON may nest.
pub const SCHEMA_DEPTH_MAX: usize = 32;
/// The longest regular expression in a schema, bytes.
pub const PATTERN_MAX: usize = 256;
/// How many subschemas may apply along one path into a value.
pub const COST_MAX: u32 = 512;

/// A schema that is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the schema at `#{pointer}` {cause}")]
pub struct SchemaFault {
    /// Where in the schema, as a JSON pointer; empty for its root.
    pub pointer: String,
    /// What is wrong there.
    pub cause: String,
    /// What to do about it.
    pub hint: String,
}

/// Whether a schema keeps within the bounds. That its keywords are otherwise right is left to the one who compiles it.
pub fn check(schema: &Value) -> Result<(), SchemaFault> {
    if depth(schema, SCHEMA_DEPTH_MAX).is_none() {
        let cause = format!("nests deeper than {SCHEMA_DEPTH_MAX} levels");
        return fault(String::new(), cause, "move parts of it to `$defs`");
    }
    if schema.to_string().len() > SCHEMA_MAX {
        return fault(
            String::new(),
            format!("is larger than {SCHEMA_MAX} bytes"),
            "describe less of the value",
        );
    }
    let mut graph = Graph::default();
    walk(&mut graph, None, String::new(), schema)?;
    graph.resolve(schema)?;
    graph.check_cost()
}

/// Whether a schema accepts every value, so that nothing needs to be checked.
#[must_use]
pub fn accepts_everything(schema: &Value) -> bool {
    const SAYS_NOTHING: [&str; 9] = [
        "$schema",
        "$comment",
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "$defs",
        "definitions",
    ];
    match schema {
        Value::Bool(accepts) => *accepts,
        Value::Object(map) => map.keys().all(|key| SAYS_NOTHING.contains(&key.as_str())),
        _ => false,
    }
}

/// How the value of a keyword holds subschemas.
enum Holds {
    Schema,
    Map,
    List,
    /// A schema, or a list of them (`items` before 2020-12).
    SchemaOrList,
    /// A map to schemas or to lists of names (`dependencies` of draft 7).
    Dependencies,
}

/// Which part of the value a subschema applies to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    /// The same value.
    Same,
    /// Each item of an array.
    Items,
    /// The one item at its own index.
    Item,
    /// The members of an object, or their names.
    Members,
    /// The one member of its own name.
    Member,
    /// Nothing by itself; only what refers to it.
    Nothing,
}

fn applicator(keyword: &str) -> Option<(Holds, Target)> {
    Some(match keyword {
        "allOf" | "anyOf" | "oneOf" => (Holds::List, Target::Same),
        "not" | "if" | "then" | "else" => (Holds::Schema, Target::Same),
        "dependentSchemas" => (Holds::Map, Target::Same),
        "dependencies" => (Holds::Dependencies, Target::Same),
        "items" => (Holds::SchemaOrList, Target::Items),
        "prefixItems" => (Holds::List, Target::Item),
        "additionalItems" | "contains" => (Holds::Schema, Target::Items),
        "properties" => (Holds::Map, Target::Member),
        "patternProperties" => (Holds::Map, Target::Members),
        "additionalProperties" | "propertyNames" => (Holds::Schema, Target::Members),
        "$defs" | "definitions" => (Holds::Map, Target::Nothing),
        _ => return None,
    })
}

/// Adds a schema and all below it to the graph; `token` leads to it from its parent.
fn walk(
    graph: &mut Graph,
    parent: Option<usize>,
    token: String,
    schema: &Value,
) -> Result<usize, SchemaFault> {
    let node = graph.add(parent, token, schema);
    let map = match schema {
        Value::Bool(_) => return Ok(node),
        Value::Object(map) => map,
        _ => {
            return fault(
                graph.pointer(node),
                "is neither an object nor true or false",
                "write a schema there",
            );
        }
    };
    check_keywords(map, node == 0).map_err(|fault| fault.below(&graph.pointer(node)))?;
    if let Some(reference) = map.get("$ref") {
        graph.refer(node, local_reference(reference).map_err(|fault| fault.below(&graph.pointer(node)))?);
    }
    for (keyword, value) in map {
        let Some((holds, target)) = applicator(keyword) else { continue };
        // A list under `items` is what `prefixItems` is now.
        let target = if keyword == "items" && value.is_array() { Target::Item } else { target };
        let schemas =
            subschemas(keyword, &holds, value).map_err(|fault| fault.below(&graph.pointer(node)))?;
        for (token, schema) in schemas {
            let child = walk(graph, Some(node), token, schema)?;
            graph.apply(node, target, child);
        }
    }
    Ok(node)
}

/// The schemas under a keyword, each with the pointer that leads there from the keyword's own schema.
fn subschemas<'a>(
    keyword: &str,
    holds: &Holds,
    value: &'a Value,
) -> Result<Vec<(String, &'a Value)>, SchemaFault> {
    match (holds, value) {
        (Holds::List | Holds::SchemaOrList, Value::Array(items)) => {
            Ok(items.iter().enumerate().map(|(index, item)| (format!("/{keyword}/{index}"), item)).collect())
        }
        (Holds::Schema | Holds::SchemaOrList, _) => Ok(vec![(format!("/{keyword}"), value)]),
        (Holds::Map | Holds::Dependencies, Value::Object(map)) => Ok(map
            .iter()
            .filter(|(_, schema)| !matches!((holds, schema), (Holds::Dependencies, Value::Array(_))))
            .map(|(name, schema)| (format!("/{keyword}/{}", escape(name)), schema))
            .collect()),
        (Holds::Map | Holds::Dependencies, _) => {
            fault(format!("/{keyword}"), "is not an object", "write names with schemas")
        }
        (Holds::List, _) => fault(format!("/{keyword}"), "is not a list", "write a list of schemas"),
    }
}

/// The keywords that refer to other places or by other means than a pointer, and those whose checking looks again at
/// the whole value for each of its members.
fn check_keywords(map: &Map<String, Value>, root: bool) -> Result<(), SchemaFault> {
    const REFUSED: [(&str, &str); 9] = [
        ("$id", "leave it out: a manifest's schemas have no address"),
        ("$anchor", "refer by pointer, e.g. \"#/$defs/name\""),
        ("$dynamicRef", "use `$ref`"),
        ("$dynamicAnchor", "refer by pointer, e.g. \"#/$defs/name\""),
        ("$recursiveRef", "use `$ref`"),
        ("$recursiveAnchor", "refer by pointer, e.g. \"#/$defs/name\""),
        ("$vocabulary", "leave it out"),
        ("unevaluatedItems", "use `items`"),
        ("unevaluatedProperties", "use `additionalProperties`"),
    ];
    for (keyword, hint) in REFUSED {
        if map.contains_key(keyword) {
            return fault(String::new(), format!("uses `{keyword}`"), hint);
        }
    }
    if let Some(dialect) = map.get("$schema") {
        check_dialect(dialect, root)?;
    }
    if map.get("pattern").and_then(Value::as_str).is_some_and(|pattern| pattern.len() > PATTERN_MAX) {
        return long_pattern("/pattern");
    }
    let patterns = map.get("patternProperties").and_then(Value::as_object);
    if patterns.is_some_and(|patterns| patterns.keys().any(|pattern| pattern.len() > PATTERN_MAX)) {
        return long_pattern("/patternProperties");
    }
    Ok(())
}

fn check_dialect(dialect: &Value, root: bool) -> Result<(), SchemaFault> {
    const KNOWN: [&str; 3] = [
        "https://json-schema.org/draft/2020-12/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "http://json-schema.org/draft-07/schema",
    ];
    let known = dialect.as_str().is_some_and(|text| KNOWN.contains(&text.trim_end_matches('#')));
    if known && root {
        Ok(())
    } else {
        let cause = "is an unknown dialect, or does not stand at the schema's root";
        fault("/$schema".to_owned(), cause, "leave it out: draft 2020-12 is meant")
    }
}

fn long_pattern(pointer: &str) -> Result<(), SchemaFault> {
    fault(
        pointer.to_owned(),
        format!("has a regular expression of more than {PATTERN_MAX} bytes"),
        "write a shorter one, or check the text in the plugin",
    )
}

fn local_reference(reference: &Value) -> Result<String, SchemaFault> {
    match reference.as_str().and_then(|text| text.strip_prefix('#')) {
        Some(target) if (target.is_empty() || target.starts_with('/')) && !target.contains('%') => {
            Ok(target.to_owned())
        }
        _ => fault(
            "/$ref".to_owned(),
            format!("refers to {}", crate::text::clip(&reference.to_string(), 80)),
            "refer within the schema by an unescaped pointer, e.g. \"#/$defs/name\"",
        ),
    }
}

/// The value's depth, unless it is more than `most`.
fn depth(value: &Value, most: usize) -> Option<usize> {
    let below = |deepest: Option<usize>, item: &Value| Some(deepest?.max(depth(item, most - 1)?));
    match value {
        Value::Array(_) | Value::Object(_) if most == 0 => None,
        Value::Array(items) => Some(1 + items.iter().fold(Some(0), below)?),
        Value::Object(map) => Some(1 + map.values().fold(Some(0), below)?),
        _ => Some(0),
    }
}

fn escape(token: &str) -> String {
    token.replace('~', "~0").replace('/', "~1")
}

fn fault<T>(pointer: String, cause: impl Into<String>, hint: impl Into<String>) -> Result<T, SchemaFault> {
    Err(SchemaFault { pointer, cause: cause.into(), hint: hint.into() })
}

impl SchemaFault {
    fn below(mut self, parent: &str) -> SchemaFault {
        self.pointer.insert_str(0, parent);
        self
    }
}

#[cfg(test)]
mod tests;
