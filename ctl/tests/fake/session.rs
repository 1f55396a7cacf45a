//! A session bus with the fake supervisor on it, and the binary that asks it.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use tokio::sync::Notify;
use zbus::message::Header;
use zbus::{Connection, Guid, ObjectServer, connection};

use super::Dir;

/// What a message bus does for a client: it gives it a name. Nothing may be sent before that answer, so the objects,
/// which announce themselves, come after it and before the next request is looked at.
struct Bus {
    journal: PathBuf,
}

#[zbus::interface(name = "org.freedesktop.DBus", spawn = false)]
impl Bus {
    async fn hello(
        &self,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
        #[zbus(object_server)] server: &ObjectServer,
    ) -> &'static str {
        connection.reply(&header, &":1.7").await.unwrap();
        super::serve_on(server, self.journal.clone()).await.unwrap();
        // A second answer to the same request, which clients pass over.
        ":1.7"
    }
}

/// A session bus with the fake supervisor on it, for as long as the test lives.
pub(crate) struct Session {
    pub(crate) dir: Dir,
    close: Arc<Notify>,
}

impl Session {
    pub(crate) fn start() -> Session {
        let dir = Dir::new();
        let listener = UnixListener::bind(dir.path("bus")).unwrap();
        let journal = dir.path("journal");
        let close = Arc::new(Notify::new());
        let closed = Arc::clone(&close);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            for stream in listener.incoming() {
                let builder =
                    connection::Builder::unix_stream(stream.unwrap()).server(Guid::generate()).p2p();
                let builder = builder.serve_at("/org/freedesktop/DBus", Bus { journal: journal.clone() });
                runtime.block_on(async {
                    if let Ok(connection) = builder.build().await {
                        tokio::select! {
                            () = connection.closed() => {}
                            () = closed.notified() => connection.close().await.unwrap(),
                        }
                    }
                });
            }
        });
        Session { dir, close }
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pluginctl"));
        command
            .args(words)
            .env("DBUS_SESSION_BUS_ADDRESS", format!("unix:path={}", self.dir.path("bus").display()))
            .current_dir(&self.dir.0)
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> (i32, String, String) {
        seen(&self.command(words).output().unwrap())
    }

    /// Closes the connection that there is.
    pub(crate) fn close(&self) {
        self.close.notify_one();
    }

    pub(crate) fn journal(&self) -> String {
        fs::read_to_string(self.dir.path("journal")).unwrap_or_default()
    }
}

/// Exit code, standard output and standard error.
pub(crate) fn seen(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}
