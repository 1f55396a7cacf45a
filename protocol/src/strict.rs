//! JSON read without tolerance: what our own documents are written in.
//!
//! `serde_json::Value` keeps the last of two equal keys, so two readers of one document could see different plugins;
//! and numbers that a double cannot hold would change in the canonical form that digests are made of.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Reads a value that others will read too, from the same text: no object may have a key twice.
///
/// Numbers are taken as they are; what a schema says of them is the reader's own business.
pub fn unique(text: &str) -> serde_json::Result<Value> {
    serde_json::from_str::<Strict<false>>(text).map(|Strict(value)| value)
}

/// A JSON value with no key twice in any object; `EXACT` refuses numbers that readers do not agree on.
pub(crate) struct Strict<const EXACT: bool>(pub(crate) Value);

impl<'de, const EXACT: bool> Deserialize<'de> for Strict<EXACT> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Strict<EXACT>, D::Error> {
        deserializer.deserialize_any(StrictVisitor::<EXACT>).map(Strict)
    }
}

struct StrictVisitor<const EXACT: bool>;

impl<'de, const EXACT: bool> Visitor<'de> for StrictVisitor<EXACT> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!("the key `{key}` stands twice in one object")));
            }
            // serde_json itself gives such keys a meaning, in objects that look like any other.
            if key.starts_with("$serde_json::") {
                return Err(A::Error::custom(format!("the key `{key}` is reserved")));
            }
            let Strict::<EXACT>(value) = access.next_value()?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(Strict::<EXACT>(item)) = access.next_element()? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        if EXACT && number > MAX_EXACT { Err(inexact()) } else { Ok(Value::Number(number.into())) }
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        if EXACT && number.unsigned_abs() > MAX_EXACT {
            Err(inexact())
        } else {
            Ok(Value::Number(number.into()))
        }
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        // Integers of more than 64 bits arrive here. From 1e21 on every language writes an exponent.
        if EXACT
            && (1e15..1e21).contains(&number.abs())
            && number.fract() == 0.0
            && number.abs() > 9_007_199_254_740_991.0
        {
            return Err(inexact());
        }
        Number::from_f64(number).map(Value::Number).ok_or_else(inexact)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Bool(flag))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
}

/// 2^53 − 1, the largest integer that RFC 8785 lets two readers agree on.
const MAX_EXACT: u64 = (1 << 53) - 1;

fn inexact<E: Error>() -> E {
    E::custom("the number is beyond ±9007199254740991, where readers of JSON no longer agree")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Value, String> {
        serde_json::from_str::<Strict<true>>(text)
            .map(|Strict(value)| value)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn accepts_what_serde_json_accepts() {
        let text = r#"{"a": [1, -2, 3.5, 1e30, true, null, "é\u00e9"], "b": {"a": {}}}"#;
        assert_eq!(read(text).unwrap(), serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn refuses_repeated_keys_at_any_depth() {
        for text in [r#"{"a":1,"a":1}"#, r#"[{"b":{"a":1,"\u0061":2}}]"#] {
            assert!(read(text).unwrap_err().contains("`a` stands twice"), "{text}");
        }
    }

    #[test]
    fn refuses_numbers_that_digests_would_change() {
        assert!(read("9007199254740991").is_ok());
        assert!(read("-9007199254740991").is_ok());
        for text in ["9007199254740992", "-9007199254740992", "18446744073709551615", "123456789012345678901"]
        {
            assert!(read(text).unwrap_err().contains("beyond"), "{text}");
        }
    }

    #[test]
    fn a_value_for_a_schema_may_have_any_number_and_no_key_twice() {
        assert!(unique("[18446744073709551615, -9223372036854775808]").is_ok());
        assert!(unique(r#"{"a":"evil","a":1}"#).unwrap_err().to_string().contains("stands twice"));
    }

    #[test]
    fn refuses_the_private_keys_of_serde_json() {
        assert!(read(r#"{"$serde_json::private::RawValue":"[1]"}"#).unwrap_err().contains("reserved"));
    }
}
