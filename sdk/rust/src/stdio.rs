//! Keeps the connection to the supervisor away from the rest of the program.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use nix::unistd;

/// Takes stdin and stdout for the frames. What the program, its libraries and its child processes know as stdin is
/// `/dev/null` from now on, and as stdout, stderr.
pub(crate) fn take() -> io::Result<(File, File)> {
    // Both copies are closed in child processes (O_CLOEXEC).
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    unistd::dup2_stdin(File::open("/dev/null")?)?;
    unistd::dup2_stdout(io::stderr())?;
    Ok((input, output))
}
