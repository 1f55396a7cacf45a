//! The streams that one read led to: each is written to once, however many frames went its way.

use std::sync::Arc;

use tokio::time::Instant;

use super::Outgoing;

/// Flushes what was touched, when it is dropped.
pub(crate) struct Batch {
    touched: Vec<Arc<Outgoing>>,
    now: Instant,
}

impl Default for Batch {
    fn default() -> Batch {
        Batch { touched: Vec::new(), now: Instant::now() }
    }
}

impl Batch {
    /// When it began: all that one read brought came at the same time.
    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// The stream has something new to write.
    pub(crate) fn touch(&mut self, stream: &Arc<Outgoing>) {
        // Most often it is the one that was touched last.
        if !self.touched.iter().rev().any(|other| Arc::ptr_eq(other, stream)) {
            self.touched.push(Arc::clone(stream));
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        for stream in &self.touched {
            stream.flush();
        }
    }
}
