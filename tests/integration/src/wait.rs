//! Waiting for a condition, with a deadline.

use std::time::{Duration, Instant};

/// Looks again and again until `look` finds something.
///
/// # Panics
/// After 30 s, with what was waited for.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited 30 s in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
