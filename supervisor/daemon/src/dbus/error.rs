//! Our errors on D-Bus: `org.plugind1.Error.<Kind>` with the message, and the whole error as JSON.

use plugind_protocol::Error;
use zbus::message::{Header, Message};
use zbus::names::ErrorName;

/// An error as a D-Bus reply.
#[derive(Debug)]
pub(crate) struct BusError(Error, String);

impl From<Error> for BusError {
    fn from(error: Error) -> BusError {
        let name = error.kind.dbus_name();
        BusError(error, name)
    }
}

impl zbus::DBusError for BusError {
    fn create_reply(&self, call: &Header<'_>) -> zbus::Result<Message> {
        let json = serde_json::to_string(&self.0).unwrap_or_default();
        Message::error(call, self.name()).build(&(self.0.message.as_str(), json))
    }

    fn name(&self) -> ErrorName<'_> {
        ErrorName::from_str_unchecked(&self.1)
    }

    fn description(&self) -> Option<&str> {
        Some(&self.0.message)
    }
}
