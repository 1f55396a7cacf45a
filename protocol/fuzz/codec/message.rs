//! Messages: what was read and is written again says the same.

use plugind_protocol::envelope::{Class, error_response, notification, request, response};
use plugind_protocol::{Decoder, Envelope, Error, Id, RpcError};
use serde_json::value::RawValue;

/// Writes what a frame says in each way that there is for its parts, and reads it back.
pub(crate) fn survives_the_wire(frame: &str) {
    let message = match Envelope::parse(frame) {
        Ok(message) => message,
        Err(error) => return crate::explained_within_bounds(error),
    };
    match (message.class(), &message.id, &message.error) {
        (Class::Request, Some(id), None) => request_survives(&message, id),
        (Class::Notification, None, None) => notification_survives(&message),
        (Class::Response, Some(id), Some(error)) => error_survives(id, error),
        (Class::Response, Some(id), None) => answer_survives(id, message.result),
        (class, ..) => panic!("a {class:?} of the wrong parts: {message:?}"),
    }
}

fn request_survives(message: &Envelope, id: &Id) {
    let number = id.as_u64().unwrap_or(7);
    let method = message.method.as_deref().expect("a request has a method");
    let line = written(|line| request(line, number, method, &message.params));
    let read = read(&line);
    assert_eq!(read.class(), Class::Request);
    assert_eq!(read.id, Some(Id::from(number)));
    assert_same_call(message, &read);
    // What it asks for, given back as what is answered.
    answer_survives(id, message.params);
    error_survives(
        id,
        &RpcError { code: -1, message: method.to_owned(), data: message.params.map(ToOwned::to_owned) },
    );
}

fn notification_survives(message: &Envelope) {
    let method = message.method.as_deref().expect("a notification has a method");
    let line = written(|line| notification(line, method, &message.params));
    let read = read(&line);
    assert_eq!(read.class(), Class::Notification);
    assert_same_call(message, &read);
}

fn answer_survives(id: &Id, result: Option<&RawValue>) {
    let line = written(|line| response(line, id, &result));
    let read = read(&line);
    assert_eq!(read.class(), Class::Response);
    assert_eq!(read.id.as_ref(), Some(id));
    assert_eq!(unbroken(read.result), unbroken(result).or(Some("null".to_owned())));
    assert!(read.error.is_none());
}

fn error_survives(id: &Id, error: &RpcError) {
    let line = written(|line| error_response(line, id, error));
    let read = read(&line);
    assert_eq!(read.class(), Class::Response);
    assert_eq!(read.id.as_ref(), Some(id));
    assert!(read.result.is_none());
    let again = read.error.expect("an error is read as one");
    assert_eq!((again.code, &again.message), (error.code, &error.message));
    assert_eq!(unbroken(again.data.as_deref()), unbroken(error.data.as_deref()));

    let ours = Error::from_rpc(&again);
    assert_eq!(Error::from_rpc(&RpcError::from(&ours)), ours);
}

fn assert_same_call(message: &Envelope, read: &Envelope) {
    assert_eq!(read.method, message.method);
    assert_eq!(unbroken(read.params), unbroken(message.params));
    assert!(read.result.is_none() && read.error.is_none());
}

fn written(write: impl FnOnce(&mut Vec<u8>) -> serde_json::Result<()>) -> String {
    let mut line = Vec::new();
    write(&mut line).expect("what was read can be written");
    let line = String::from_utf8(line).expect("a line is UTF-8");
    let frame = line.strip_suffix('\n').expect("a line has its end");
    assert!(!frame.contains(['\n', '\r']), "more than one line: {frame:?}");
    line
}

/// By way of the decoder, which has to find the one frame.
fn read(line: &str) -> Envelope<'_> {
    let mut frames = 0;
    let mut decoder = Decoder::new(line.len());
    decoder.push(line.as_bytes(), |outcome| {
        assert_eq!(outcome, Ok(line.trim_end_matches('\n')));
        frames += 1;
    });
    assert_eq!((frames, decoder.finish()), (1, Ok(())));
    Envelope::parse(line).expect("what was written is a message")
}

/// Raw text as it stands on one line: carriage returns between its tokens become blanks.
fn unbroken(raw: Option<&RawValue>) -> Option<String> {
    raw.map(|raw| raw.get().replace('\r', " "))
}
