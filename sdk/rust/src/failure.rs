//! What a command answers when it fails.

use std::error::Error as StdError;

use serde::Serialize;
use serde_json::Value;

/// The error codes that this crate answers with, JSON-RPC's and the protocol's.
pub mod code {
    pub use plugind_protocol::envelope::code::{
        ATTESTATION_FAILED, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR,
    };

    /// The command failed: the code of a [`Failure`](super::Failure) that names no other.
    pub const FAILED: i64 = -32000;
    /// More calls at a time than `in_flight` allows.
    pub const BUSY: i64 = -32003;
    /// The call was taken back, or its deadline passed before it began.
    pub const CANCELLED: i64 = -32800;
}

/// A command's failure: the caller sees its message, code and data, marked as the plugin's own words.
///
/// Every error type converts into one, so that `?` works; its message is the error's with its causes.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    pub(crate) code: i64,
    pub(crate) message: String,
    pub(crate) data: Option<Value>,
}

impl Failure {
    /// A failure with a message for the caller.
    pub fn new(message: impl Into<String>) -> Failure {
        Failure::of(code::FAILED, message)
    }

    /// What a command returns that stopped because [`Call::is_cancelled`](crate::Call::is_cancelled).
    #[must_use]
    pub fn cancelled() -> Failure {
        Failure::of(code::CANCELLED, "the call was cancelled")
    }

    /// The same failure with another code: a number that the plugin's documentation explains.
    #[must_use]
    pub fn with_code(mut self, code: i64) -> Failure {
        self.code = code;
        self
    }

    /// The same failure with facts for programs. Data that is not JSON is left out.
    #[must_use]
    pub fn with_data(mut self, data: impl Serialize) -> Failure {
        self.data = serde_json::to_value(data).ok();
        self
    }

    pub(crate) fn of(code: i64, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into(), data: None }
    }
}

impl<E: StdError> From<E> for Failure {
    fn from(error: E) -> Failure {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            message = format!("{message}: {error}");
            cause = error.source();
        }
        Failure::new(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_becomes_a_failure_by_question_mark() {
        fn parse(text: &str) -> Result<u8, Failure> {
            Ok(text.parse::<u8>()?)
        }
        assert_eq!(parse("7"), Ok(7));
        assert_eq!(parse("x"), Err(Failure::new("invalid digit found in string")));
    }

    #[test]
    fn code_and_data_are_kept() {
        let failure = Failure::new("no such page").with_code(404).with_data(["index"]);
        assert_eq!((failure.code, failure.data), (404, Some(serde_json::json!(["index"]))));
    }
}
