//! The system calls that neither the standard library nor nix offers without `unsafe`.
//!
//! The process never has a second thread, which is what makes forking and closing by number sound here.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use nix::errno::Errno;
use nix::libc::{self, c_int, c_long, c_uint};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::ForkResult;

/// The highest signal number of Linux on every architecture that we build for.
const LAST_SIGNAL: c_int = 64;

/// Takes over an inherited descriptor that the command line named and makes it close on exec; `None` if not open.
pub(crate) fn adopt(fd: RawFd) -> Option<OwnedFd> {
    // SAFETY: F_SETFD takes no pointer; a number that is not open is answered with EBADF.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return None;
    }
    // SAFETY: it is open, and nothing in this process owns it: it was inherited, and the command line names each
    // descriptor once.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Closes the descriptors from `first` to `last`.
pub(crate) fn close_range(first: RawFd, last: RawFd) -> nix::Result<()> {
    // SAFETY: no pointers. The caller names only numbers that nothing in this process owns.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0 as c_uint) };
    Errno::result(result).map(drop)
}

/// Closes one descriptor that nothing in this process owns.
pub(crate) fn close(fd: RawFd) {
    // SAFETY: no pointers; a number that is not open is answered with EBADF.
    unsafe { libc::close(fd) };
}

/// The Landlock ABI that the kernel reports.
pub(crate) fn landlock_abi() -> nix::Result<c_long> {
    const VERSION: c_uint = 1;
    // SAFETY: with this flag the kernel takes no attributes, and wants a null pointer and size 0.
    let result = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<libc::c_void>(), 0_usize, VERSION)
    };
    Errno::result(result)
}

/// Runs `work` in a forked child and tells how it ended; the child exits with what `work` returns.
pub(crate) fn in_child(work: impl FnOnce() -> u8) -> nix::Result<WaitStatus> {
    // SAFETY: there is one thread, so the child's copy of memory and locks is consistent.
    match unsafe { nix::unistd::fork() }? {
        ForkResult::Child => {
            let status = work();
            // SAFETY: ends the child at once, without the parent's buffers and exit handlers.
            unsafe { libc::_exit(c_int::from(status)) }
        }
        ForkResult::Parent { child } => loop {
            match waitpid(child, None) {
                Err(Errno::EINTR) => {}
                ended => return ended,
            }
        },
    }
}

/// Gives every signal its default action and unblocks all, as a program expects to be started.
///
/// By the raw calls, because libc keeps two of the real-time signals for itself and leaves them as inherited.
pub(crate) fn reset_signals() {
    for signal in 1..=LAST_SIGNAL {
        default_action(signal);
    }
    let none = 0_u64;
    // SAFETY: the kernel reads eight bytes, which is the size that it is told.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const none,
            ptr::null_mut::<u64>(),
            size_of::<u64>(),
        );
    }
}

/// Gives SIGPIPE its default action, which Rust's runtime took away.
pub(crate) fn default_sigpipe() {
    default_action(libc::SIGPIPE);
}

fn default_action(signal: c_int) {
    // The kernel's own `struct sigaction`: handler, flags, restorer (on x86_64 only) and a mask of 64 bits. All zero
    // is SIG_DFL.
    let action = [0_u64; 4];
    // SAFETY: the buffer is at least as large as what the kernel reads. SIGKILL and SIGSTOP are refused, harmlessly.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            signal,
            action.as_ptr(),
            ptr::null_mut::<u64>(),
            size_of::<u64>(),
        );
    }
}

/// Sends one packet without raising SIGPIPE.
pub(crate) fn send(socket: &OwnedFd, packet: &[u8]) -> nix::Result<usize> {
    nix::sys::socket::send(socket.as_raw_fd(), packet, nix::sys::socket::MsgFlags::MSG_NOSIGNAL)
}
