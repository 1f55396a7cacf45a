//! One call on its way: what the plugin is told of it, and where its answer goes.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::Sink;
use super::stream::{Credit, Pace};

/// A call as it comes to the pool, checked and ready.
pub(crate) struct NewCall<'a> {
    /// Who takes turns with others: a channel, a bus connection.
    pub(crate) caller: u64,
    /// The same in words, as a JSON text, for `meta.caller`.
    pub(crate) who: &'a Arc<str>,
    /// The command's name as a JSON text.
    pub(crate) command: &'a Arc<str>,
    /// JSON without a line end.
    pub(crate) arguments: Cow<'a, RawValue>,
    pub(crate) dry_run: bool,
    /// How long the plugin may work on it.
    pub(crate) time: Duration,
    /// When its caller stops waiting, whatever has become of it.
    pub(crate) until: Option<Instant>,
    /// Chunks that the caller takes for now.
    pub(crate) credit: u64,
    pub(crate) sink: Arc<dyn Sink>,
}

/// A call that the pool has.
pub(super) struct Call {
    pub(super) caller: u64,
    /// Of the wait, and then of the answer.
    pub(super) deadline: Instant,
    pub(super) sink: Arc<dyn Sink>,
    pub(super) credit: Credit,
    pub(super) pace: Pace,
    pub(super) place: Place,
}

/// Where a call is.
pub(super) enum Place {
    /// In the queue.
    Waits(Box<Request<'static>>),
    /// At the instance with that link.
    Sent(u64),
}

/// What is sent once it is the call's turn.
pub(super) struct Request<'a> {
    pub(super) who: Cow<'a, Arc<str>>,
    pub(super) command: Cow<'a, Arc<str>>,
    pub(super) arguments: Cow<'a, RawValue>,
    pub(super) dry_run: bool,
    pub(super) lent: u32,
    pub(super) time: Duration,
    pub(super) until: Option<Instant>,
}

impl Request<'_> {
    /// The same, independent of the frame that it came in.
    pub(super) fn into_owned(self) -> Request<'static> {
        Request {
            who: Cow::Owned(self.who.into_owned()),
            command: Cow::Owned(self.command.into_owned()),
            arguments: Cow::Owned(self.arguments.into_owned()),
            dry_run: self.dry_run,
            lent: self.lent,
            time: self.time,
            until: self.until,
        }
    }

    /// When the plugin must have answered, if it is sent now.
    pub(super) fn deadline(&self, now: Instant) -> Instant {
        let own = now + self.time;
        self.until.map_or(own, |until| own.min(until))
    }

    /// The frame of `command/invoke`. `who` and `command` are JSON texts, `arguments` is JSON.
    pub(super) fn write(&self, frame: &mut Vec<u8>, number: u64, left: Duration) {
        let arguments = self.arguments.get();
        frame.reserve(arguments.len() + self.command.len() + self.who.len() + 200);
        frame.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
        decimal(frame, number);
        frame.extend_from_slice(b",\"method\":\"command/invoke\",\"params\":{\"command\":");
        frame.extend_from_slice(self.command.as_bytes());
        frame.extend_from_slice(b",\"arguments\":");
        frame.extend_from_slice(arguments.as_bytes());
        frame.extend_from_slice(b",\"meta\":{\"invocation\":\"i");
        decimal(frame, number);
        frame.extend_from_slice(b"\",\"deadline_ms\":");
        decimal(frame, u64::try_from(left.as_micros().div_ceil(1000)).unwrap_or(u64::MAX));
        frame.extend_from_slice(b",\"caller\":");
        frame.extend_from_slice(self.who.as_bytes());
        frame.extend_from_slice(if self.dry_run { b",\"dry_run\":true" } else { b",\"dry_run\":false" });
        if self.lent > 0 {
            frame.extend_from_slice(b",\"credit\":");
            decimal(frame, u64::from(self.lent));
        }
        frame.extend_from_slice(b"}}}\n");
    }

    /// What it takes while it waits.
    pub(super) fn size(&self) -> usize {
        self.arguments.get().len() + self.command.len() + size_of::<Request<'_>>()
    }
}

fn decimal(frame: &mut Vec<u8>, number: u64) {
    let mut digits = [0; 20];
    let (mut at, mut rest) = (digits.len(), number);
    loop {
        at -= 1;
        digits[at] = b"0123456789"[usize::try_from(rest % 10).unwrap_or(0)];
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    frame.extend_from_slice(&digits[at..]);
}

/// A call's name at the plugin, `i` and its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Invocation(pub(super) u64);

impl Invocation {
    /// The number, where the text is one that we gave.
    pub(super) fn parse(text: &str) -> Option<u64> {
        let digits = text.strip_prefix('i')?;
        let plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
        digits.parse().ok().filter(|_| plain)
    }
}

impl std::fmt::Display for Invocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "i{}", self.0)
    }
}

impl Serialize for Invocation {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_one_line_of_json_with_all_that_the_plugin_is_told() {
        let arguments = RawValue::from_string(r#"{"a" : 1.10}"#.to_owned()).unwrap();
        let mut request = Request {
            who: Cow::Owned(r#""uid:1 \"x\"""#.into()),
            command: Cow::Owned(r#""count""#.into()),
            arguments: Cow::Owned(arguments),
            dry_run: true,
            lent: 0,
            time: Duration::ZERO,
            until: None,
        };
        let mut frame = Vec::new();
        request.write(&mut frame, u64::MAX, Duration::from_micros(1001));
        let expected = concat!(
            r#"{"jsonrpc":"2.0","id":18446744073709551615,"method":"command/invoke","params":{"command":"count","#,
            r#""arguments":{"a" : 1.10},"meta":{"invocation":"i18446744073709551615","deadline_ms":2,"#,
            r#""caller":"uid:1 \"x\"","dry_run":true}}}"#,
            "\n"
        );
        assert_eq!(String::from_utf8(frame).unwrap(), expected);
        (request.lent, request.dry_run) = (3, false);
        let mut frame = Vec::new();
        request.write(&mut frame, 0, Duration::ZERO);
        let value: serde_json::Value = serde_json::from_slice(&frame).unwrap();
        assert_eq!((&value["id"], &value["params"]["meta"]["credit"]), (&0.into(), &3.into()));
    }

    #[test]
    fn only_our_own_names_of_calls_are_taken() {
        assert_eq!(Invocation::parse(&Invocation(7).to_string()), Some(7));
        for text in ["7", "i", "i07", "i+7", "i-7", "i 7", "i7 ", "I7", "i99999999999999999999"] {
            assert_eq!(Invocation::parse(text), None, "{text}");
        }
    }
}
