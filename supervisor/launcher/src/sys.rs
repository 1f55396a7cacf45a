//! Raw system calls, and the only `unsafe` of the launcher.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::libc;
use tokio::process::Command;

/// Takes over a descriptor that this process was started with, and marks it close-on-exec.
pub(crate) fn adopt(raw: RawFd) -> OwnedFd {
    // SAFETY: the number comes from our own command line or from systemd's socket activation, at start-up, once;
    // nothing else in this process owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(raw) };
    let _ = nix::fcntl::fcntl(&fd, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC));
    fd
}

/// Lets a child of `command` inherit these descriptors under their own numbers.
pub(crate) fn inherit(command: &mut Command, fds: &[BorrowedFd<'_>]) {
    let numbers: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let clear = move || {
        for &number in &numbers {
            // SAFETY: fcntl is async-signal-safe, and the numbers were open at the fork.
            if unsafe { libc::fcntl(number, libc::F_SETFD, 0) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: the closure only calls fcntl and reads a vector made before the fork; it allocates nothing.
    unsafe {
        command.pre_exec(clear);
    }
}

/// A pidfd for a process; close-on-exec as the kernel makes it.
pub(crate) fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: plain integers; a non-negative result is a new descriptor that nobody else owns.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, libc::c_long::from(pid), 0);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(i32::try_from(fd).map_err(io::Error::other)?))
    }
}

/// Sends a signal to exactly the process that the pidfd names, or fails with `ESRCH`.
pub(crate) fn pidfd_send_signal(pidfd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    // SAFETY: a valid descriptor, an integer, no siginfo, no flags.
    let result = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            libc::c_long::from(pidfd.as_raw_fd()),
            libc::c_long::from(signal),
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lets the event loop watch a descriptor.
pub(crate) fn watch(
    fd: OwnedFd,
    interest: tokio::io::Interest,
) -> io::Result<tokio::io::unix::AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd names the same open descriptor for as long as it lives, and the AsyncFd owns it.
    Ok(unsafe { tokio::io::unix::AsyncFd::register_with_interest(fd, interest) }?)
}
