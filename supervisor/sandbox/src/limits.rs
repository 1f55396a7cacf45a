//! The limits that the kernel keeps for a process rather than for a cgroup.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::report::{Failure, Step};

/// Forbids core dumps, which would hold the plugin's data, and bounds its open files.
///
/// A limit that is already lower stays: only root could raise it, and nobody should.
pub(crate) fn apply(nofile: Option<u64>) -> Result<(), Failure> {
    lower(Resource::RLIMIT_CORE, 0, "core dumps")?;
    match nofile {
        Some(files) => lower(Resource::RLIMIT_NOFILE, files, "open files"),
        None => Ok(()),
    }
}

fn lower(resource: Resource, limit: u64, what: &str) -> Result<(), Failure> {
    getrlimit(resource)
        .and_then(|(_, hard)| setrlimit(resource, limit.min(hard), limit.min(hard)))
        .map_err(|errno| Failure::new(Step::Rlimits, Some(errno), format!("cannot limit {what} to {limit}")))
}
