//! The committed introspection XML is what the code serves.

use std::path::Path;

use plugind_config::{Directories, Settings};
use zbus::object_server::Interface;

use super::*;
use crate::launcher::{Launcher, Place};
use crate::plugin::Surroundings;
use crate::registry::BrokenRecord;
use crate::store::Store;

fn xml(interface: &dyn Interface) -> String {
    let mut text = String::from(
        "<!DOCTYPE node PUBLIC \"-//freedesktop//DTD D-BUS Object Introspection 1.0//EN\"\n \
         \"http://www.freedesktop.org/standards/dbus/1.0/introspect.dtd\">\n<node>\n",
    );
    interface.introspect_to_writer(&mut text, 2);
    text + "</node>\n"
}

fn compare(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../units/dbus-1/interfaces")
        .join(format!("{name}.xml"));
    if std::env::var_os("PLUGIND_UPDATE").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == text,
        "{name}.xml is out of date: PLUGIND_UPDATE=1 cargo test -p plugind introspection"
    );
}

#[tokio::test]
async fn the_committed_introspection_is_what_the_code_serves() {
    let state = std::env::temp_dir().join(format!("plugind-introspection-{}", std::process::id()));
    let directories = Directories::at(&state);
    let surroundings = Surroundings {
        store: Store::open(&directories).unwrap(),
        launcher: Arc::new(Launcher::new(Place::Connected(std::sync::Mutex::default()))),
        settings: Arc::new(Settings::default()),
        directories,
        stderr: tokio::runtime::Handle::current(),
    };
    let (manager, _) = manager(
        &Supervisor::load(surroundings).unwrap(),
        &Arc::default(),
        Channels::new(tokio::runtime::Handle::current()),
    );
    let error = plugind_protocol::Error::internal("x");
    let plugin = PluginObject::new(Arc::new(Plugin::broken(BrokenRecord { name: "x".into(), error })));
    compare("org.plugind1.Manager", &xml(&manager));
    compare("org.plugind1.Plugin", &xml(&plugin));
    std::fs::remove_dir_all(&state).unwrap();
}
