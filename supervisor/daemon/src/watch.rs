//! Descriptors that the event loop watches.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Watches a descriptor that the result owns.
#[expect(
    deprecated,
    reason = "unsound only for types whose descriptor can change under it; an OwnedFd's cannot"
)]
pub(crate) fn watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, interest)
}
