//! A caller that checks nothing itself, so that the supervisor's own checks are seen.
//!
//! `raw-call install [DIGEST]` sends standard input to `Manager.Install` as it is; `raw-call call PLUGIN COMMAND TEXT` passes the
//! text on as arguments; `raw-call channel [--option NAME] PLUGIN…` opens a channel, sends it over the socket that is its
//! standard input, and prints the longest line. Answers and errors are printed as `pluginctl -o json` prints them.

use std::collections::HashMap;
use std::process::ExitCode;

use plugind_protocol::Error;
use zbus::wire::OwnedFd;
use zbus::{Connection, Fd, Message, Variant};

type Options = HashMap<&'static str, Variant<'static>>;

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("an event loop");
    let words: Vec<String> = std::env::args().skip(1).collect();
    match runtime.block_on(ask(&words)) {
        Ok(reply) => {
            let body = reply.body();
            if let Ok((channel, frame_max)) = body.deserialize::<(OwnedFd, u32)>() {
                plugind_integration::channel::hand_over(&channel);
                println!("{frame_max}");
                return ExitCode::SUCCESS;
            }
            let text = body.deserialize::<String>().or_else(|_| {
                body.deserialize::<(String, String)>()
                    .map(|(name, digest)| serde_json::json!({"name": name, "digest": digest}).to_string())
            });
            println!("{}", text.expect("a reply of plugind"));
            ExitCode::SUCCESS
        }
        Err(cause) => failed(&cause),
    }
}

async fn ask(words: &[String]) -> zbus::Result<Message> {
    let connection = Connection::session().await?;
    let mut options = Options::new();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["install", digest] => {
            options.insert("expect_digest", digest.to_owned().into());
            call(&connection, "Install", &(Fd::from(&std::io::stdin()), options)).await
        }
        ["install"] => call(&connection, "Install", &(Fd::from(&std::io::stdin()), options)).await,
        ["call", plugin, command, text] => call(&connection, "Call", &(plugin, command, text, options)).await,
        ["channel", "--option", name, ref plugins @ ..] => {
            let options = HashMap::from([(name, Variant::from(true))]);
            call(&connection, "OpenChannel", &(plugins, options)).await
        }
        ["channel", ref plugins @ ..] => call(&connection, "OpenChannel", &(plugins, options)).await,
        _ => Err(zbus::Error::Failure(
            "usage: raw-call install [DIGEST] | raw-call call PLUGIN COMMAND TEXT | \
             raw-call channel [--option NAME] PLUGIN…"
                .into(),
        )),
    }
}

async fn call(
    connection: &Connection,
    method: &str,
    body: &(impl serde::Serialize + zbus::wire::DynamicType),
) -> zbus::Result<Message> {
    let interface = Some("org.plugind1.Manager");
    connection.call_method(Some("org.plugind1"), "/org/plugind1", interface, method, body).await
}

fn failed(cause: &zbus::Error) -> ExitCode {
    if let zbus::Error::MethodError(name, _, reply) = cause
        && let Ok((_, json)) = reply.body().deserialize::<(String, String)>()
        && let Ok(error) = serde_json::from_str::<Error>(&json)
    {
        assert_eq!(name.as_str(), error.kind.dbus_name(), "the bus's name is the error's");
        eprintln!("{}", serde_json::json!({ "error": error }));
        return ExitCode::from(error.exit_code());
    }
    eprintln!("{cause}");
    ExitCode::from(99)
}
