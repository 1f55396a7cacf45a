//! What nothing can be cheaper than: bytes copied between a client's socket and a plugin's pipes, looked at by nobody.
//!
//! `floor relay PROGRAM ARGUMENT…`: standard input is the client's socket.
//! `floor gate PROGRAM ARGUMENT…`: becomes the program when a byte comes on standard input.

use std::error::Error;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::thread;

/// As much as a pipe holds.
const BUFFER: usize = 64 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let verb = arguments.next().unwrap_or_default();
    let program = arguments.next().ok_or("floor relay|gate PROGRAM ARGUMENT…")?;
    let mut command = Command::new(program);
    command.args(arguments);
    match verb.to_str() {
        Some("relay") => relay(command),
        Some("gate") => gate(command),
        _ => Err("floor relay|gate PROGRAM ARGUMENT…".into()),
    }
}

fn relay(mut plugin: Command) -> Result<(), Box<dyn Error>> {
    let client = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut plugin = plugin.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (Some(stdin), Some(stdout)) = (plugin.stdin.take(), plugin.stdout.take()) else {
        return Err("no pipes".into());
    };
    let from_client = client.try_clone()?;
    let inward = thread::spawn(move || copy(from_client, File::from(OwnedFd::from(stdin))));
    // The plugin ends at the end of its input, and the client with the plugin.
    copy(File::from(OwnedFd::from(stdout)), &client)?;
    client.shutdown(std::net::Shutdown::Both)?;
    let _ = inward.join();
    plugin.wait()?;
    Ok(())
}

/// Not `io::copy`, which would splice: a supervisor has to see the bytes.
fn copy(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let length = from.read(&mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..length])?;
    }
}

fn gate(mut program: Command) -> Result<(), Box<dyn Error>> {
    // Unbuffered: what follows the byte is the program's.
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    input.read_exact(&mut [0])?;
    drop(input);
    Err(program.exec().into())
}
