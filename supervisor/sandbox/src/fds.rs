//! Descriptors that nobody meant to hand over.

use std::os::fd::RawFd;

use nix::errno::Errno;

use crate::report::{Failure, Step};
use crate::sys;

/// Closes every descriptor from 3 on but `keep`.
///
/// Before anything else is opened, so that the list in `/proc` is still readable where the one call for it is missing.
pub(crate) fn close_all_but(keep: Option<RawFd>) -> Result<(), Failure> {
    let result = match keep {
        None => sys::close_range(3, RawFd::MAX),
        Some(3) => sys::close_range(4, RawFd::MAX),
        Some(keep) => sys::close_range(3, keep - 1).and_then(|()| sys::close_range(keep + 1, RawFd::MAX)),
    };
    match result {
        Ok(()) => Ok(()),
        // Older kernels, and containers whose seccomp filter does not know the call.
        Err(Errno::ENOSYS | Errno::EPERM) => close_listed(keep),
        Err(errno) => {
            Err(Failure::new(Step::Fds, Some(errno), "cannot close inherited descriptors with close_range"))
        }
    }
}

fn close_listed(keep: Option<RawFd>) -> Result<(), Failure> {
    let unreadable = |error: std::io::Error| {
        let errno = error.raw_os_error().map(Errno::from_raw);
        Failure::new(Step::Fds, errno, "this kernel has no close_range and /proc/self/fd cannot be read")
    };
    let mut open = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd").map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name();
        open.extend(name.to_str().and_then(|name| name.parse::<RawFd>().ok()));
    }
    // The listing's own descriptor is closed by now; closing it once more is answered with EBADF.
    for fd in open.into_iter().filter(|fd| *fd > 2 && Some(*fd) != keep) {
        sys::close(fd);
    }
    Ok(())
}
