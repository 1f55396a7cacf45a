//! A plugin that misbehaves in every way, and a tool that gives this kernel the faults of another.
//!
//! `hostile-plugin` speaks the wire by hand, because an SDK would keep it from breaking it. What it does wrong while
//! it starts is the word in its bundle's file `mode` ([`mode`]); what it does wrong later is the command called
//! ([`commands`]). Its command `probe` ([`probe`]) knocks at what the sandbox keeps shut and reports what came back, so
//! that a test can assert each denial and the allowed control case beside it.
//!
//! `fault-errno` ([`fault`]) runs a command under a filter that answers chosen system calls with a chosen errno.

pub mod commands;
pub mod fault;
pub mod mode;
pub mod own;
pub mod probe;
pub mod serve;
pub mod syscalls;
pub mod wire;

mod misbehave;
mod probe_files;
mod probe_kernel;
mod probe_net;
mod streams;
mod sys;
