//! Event loops on threads of their own, beside the main one: channels on one, the plugins' stderr on another, so that a
//! flood in one place leaves the rest alone.

use std::thread::{self, JoinHandle};

use plugind_protocol::Error;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Threads for what takes longer, such as checks of long arguments.
const BLOCKING_MAX: usize = 8;

/// A thread with an event loop; ended when this is dropped.
pub(crate) struct SideLoop {
    handle: Handle,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl SideLoop {
    pub(crate) fn start(name: &str) -> Result<SideLoop, Error> {
        let failed =
            |cause: std::io::Error| Error::internal(format!("cannot start the thread {name:?}: {cause}"));
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_MAX)
            .build()
            .map_err(failed)?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let _ = runtime.block_on(ended);
                runtime.shutdown_background();
            })
            .map_err(failed)?;
        Ok(SideLoop { handle, end: Some(end), thread: Some(thread) })
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle.clone()
    }
}

impl Drop for SideLoop {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // Its tasks only read and hand on: none of them blocks.
            let _ = thread.join();
        }
    }
}
