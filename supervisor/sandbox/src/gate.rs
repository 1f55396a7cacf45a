//! The stub that a scope is made around.
//!
//! It is started first, moved into its scope, its limits are read back, and only then does it run bubblewrap: a
//! process that bubblewrap forks before its scope exists would stay outside of it.

use std::io::{ErrorKind, Read};
use std::process::ExitCode;

use nix::errno::Errno;
use nix::unistd::execv;

use crate::options::Gate;
use crate::report::complain;
use crate::sys;

/// The byte that opens the gate.
const OPEN: u8 = b'1';

/// The gate stayed shut.
const SHUT: u8 = 125;
/// The program is there and cannot be run; as `env` and shells have it.
const CANNOT_RUN: u8 = 126;
/// The program is not there.
const NOT_FOUND: u8 = 127;

/// Waits for the byte, then becomes the program. Returns only on failure.
pub(crate) fn run(options: &Gate) -> ExitCode {
    let Some(gate) = sys::adopt(options.gate) else {
        complain(format_args!("gate: descriptor {} is not open", options.gate));
        return ExitCode::from(SHUT);
    };
    if !opened(std::fs::File::from(gate)) {
        return ExitCode::from(SHUT);
    }
    // Rust's runtime ignores SIGPIPE, and what is ignored stays ignored in the program.
    sys::default_sigpipe();
    let Err(errno) = execv(&options.program.path, &options.program.argv);
    let name = options.program.path.to_string_lossy();
    complain(format_args!("gate: cannot run {name}: {}", errno.desc()));
    ExitCode::from(if errno == Errno::ENOENT { NOT_FOUND } else { CANNOT_RUN })
}

/// Whether the first byte is the right one. The end of the pipe means that the launcher gave up, or died.
fn opened(mut gate: impl Read) -> bool {
    let mut byte = [0];
    loop {
        match gate.read(&mut byte) {
            Ok(read) => return read == 1 && byte[0] == OPEN,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_byte_one_opens() {
        assert!(opened(&b"1"[..]));
        assert!(opened(&b"1 and more"[..]));
        for shut in [&b""[..], b"0", b"\n", b"01"] {
            assert!(!opened(shut));
        }
    }
}
