//! Speaks to a plugin in this process.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use plugind_sdk::{Error, Plugin};
use serde_json::Value;

/// How long anything may take before a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Lets the plugin serve these frames and then the end, and returns what it answered, by id.
pub(crate) fn talk(plugin: Plugin, frames: &[Value]) -> (Result<(), Error>, BTreeMap<String, Value>) {
    let lines: Vec<String> = frames.iter().map(Value::to_string).collect();
    talk_raw(plugin, (lines.join("\n") + "\n").as_bytes())
}

/// The same with bytes.
pub(crate) fn talk_raw(plugin: Plugin, input: &[u8]) -> (Result<(), Error>, BTreeMap<String, Value>) {
    let output = Memory::default();
    let end = plugin.serve_on(input, output.clone());
    let output = String::from_utf8(output.0.lock().unwrap().clone()).unwrap();
    let frames = output.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    (end, frames.map(|frame| (frame["id"].to_string(), frame)).collect())
}

#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A plugin that serves on a thread, at the other ends of two pipes.
pub(crate) struct Session {
    input: PipeWriter,
    output: Option<PipeReader>,
    frames: Option<Receiver<Value>>,
    end: Receiver<Result<(), Error>>,
    _thread: JoinHandle<()>,
}

impl Session {
    /// Starts serving.
    pub(crate) fn start(plugin: Plugin) -> Session {
        let (plugin_input, input) = io::pipe().unwrap();
        let (output, plugin_output) = io::pipe().unwrap();
        let (ended, end) = mpsc::channel();
        let thread = thread::spawn(move || {
            let _ = ended.send(plugin.serve_on(plugin_input, plugin_output));
        });
        Session { input, output: Some(output), frames: None, end, _thread: thread }
    }

    /// Sends a frame.
    pub(crate) fn send(&mut self, frame: &Value) {
        writeln!(self.input, "{frame}").unwrap();
    }

    /// The next frame of the plugin.
    pub(crate) fn receive(&mut self) -> Value {
        let output = &mut self.output;
        let frames = self.frames.get_or_insert_with(|| {
            let output = output.take().expect("the output was dropped");
            let (sender, receiver) = mpsc::channel();
            thread::spawn(move || {
                for line in BufReader::new(output).lines() {
                    let _ = sender.send(serde_json::from_str(&line.unwrap()).unwrap());
                }
            });
            receiver
        });
        frames.recv_timeout(PATIENCE).expect("no frame came")
    }

    /// Closes the end that reads from the plugin.
    pub(crate) fn drop_output(&mut self) {
        self.output = None;
    }

    /// Waits for the plugin to end by itself.
    pub(crate) fn wait(self) -> Result<(), Error> {
        self.end.recv_timeout(PATIENCE).expect("the plugin does not end")
    }

    /// Ends the plugin's input and waits for its end.
    pub(crate) fn finish(self) -> Result<(), Error> {
        drop(self.input);
        self.end.recv_timeout(PATIENCE).expect("the plugin does not end")
    }
}
