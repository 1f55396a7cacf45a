//! The raw system calls of the hostile plugin, and all of this crate's `unsafe`.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::libc::{self, c_int, c_long, c_ulong};

/// What a call returned, or its errno.
pub(crate) type Outcome = Result<c_long, i32>;

/// Signals blocked and ignored before Rust's runtime touched them (it ignores SIGPIPE): bit n-1 is signal n.
static BLOCKED: AtomicU64 = AtomicU64::new(0);
static IGNORED: AtomicU64 = AtomicU64::new(0);

#[used]
// SAFETY: the section holds pointers to functions that the C library calls once, before `main`, as `extern "C"`.
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = remember_signals;

extern "C" fn remember_signals() {
    let mut mask = 0_u64;
    // SAFETY: a null new set reads only; `mask` is the kernel's 8-byte signal set.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, 0_usize, &raw mut mask, 8_usize) };
    BLOCKED.store(mask, Ordering::Relaxed);
    let mut ignored = 0_u64;
    for signal in 1..=64_u32 {
        // The kernel's struct sigaction: handler, flags, restorer, mask.
        let mut action = [0_u64; 4];
        // SAFETY: a null new action reads only; `action` is as large as the kernel's struct on 64-bit machines.
        let result =
            unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, 0_usize, &raw mut action, 8_usize) };
        if result == 0 && action[0] == libc::SIG_IGN as u64 {
            ignored |= 1 << (signal - 1);
        }
    }
    IGNORED.store(ignored, Ordering::Relaxed);
}

/// The numbers of the signals that were blocked, and of those ignored, when this program was executed.
pub(crate) fn inherited_signals() -> (Vec<u32>, Vec<u32>) {
    // The reference keeps the linker from dropping the entry.
    std::hint::black_box(AT_START);
    let numbers = |set: u64| (1..=64).filter(|signal| set & (1 << (signal - 1)) != 0).collect();
    (numbers(BLOCKED.load(Ordering::Relaxed)), numbers(IGNORED.load(Ordering::Relaxed)))
}

fn outcome(result: c_long) -> Outcome {
    if result == -1 { Err(errno()) } else { Ok(result) }
}

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Closes the descriptor that a call returned, for calls whose success is all that matters.
fn and_close(result: Outcome) -> Outcome {
    if let Ok(fd) = result {
        // SAFETY: the descriptor was made by the call just now, and nothing else knows it.
        unsafe { libc::close(c_int::try_from(fd).unwrap_or(-1)) };
    }
    result
}

/// Calls `number` with six arguments of -1: no memory, descriptor, or flag set that any call accepts, so that all it
/// tells is whether the call is reached. Fork-like calls, which would accept them, are refused.
pub(crate) fn knock(number: c_long) -> Outcome {
    let forks = [libc::SYS_clone, libc::SYS_clone3, libc::SYS_execve, libc::SYS_execveat];
    if forks.contains(&number) {
        return Err(libc::EDOM);
    }
    // SAFETY: an address of -1 is never mapped, so the kernel answers EFAULT instead of touching memory.
    outcome(unsafe { libc::syscall(number, -1_i64, -1_i64, -1_i64, -1_i64, -1_i64, -1_i64) })
}

/// `getpid` by its x32 number.
#[cfg(target_arch = "x86_64")]
pub(crate) fn x32_getpid() -> Outcome {
    const X32_BIT: c_long = 0x4000_0000;
    // SAFETY: takes no arguments and changes nothing.
    outcome(unsafe { libc::syscall(X32_BIT | libc::SYS_getpid) })
}

/// No x32 on this architecture: the call cannot be made, as if it had been refused.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn x32_getpid() -> Outcome {
    Err(libc::ENOSYS)
}

/// Asks for the process keyring, and makes it where there is none.
pub(crate) fn keyctl() -> Outcome {
    const GET_KEYRING_ID: c_long = 0;
    const PROCESS_KEYRING: c_long = -2;
    // SAFETY: plain numbers.
    outcome(unsafe { libc::syscall(libc::SYS_keyctl, GET_KEYRING_ID, PROCESS_KEYRING, 1_i64) })
}

/// Makes a ring of one entry.
pub(crate) fn io_uring_setup() -> Outcome {
    let mut parameters = [0_u32; 30];
    // SAFETY: `struct io_uring_params` is 120 bytes, and zeroes ask for the defaults.
    and_close(outcome(unsafe { libc::syscall(libc::SYS_io_uring_setup, 1_u32, &raw mut parameters) }))
}

/// Makes a userfaultfd, of the kind that needs no privilege.
pub(crate) fn userfaultfd() -> Outcome {
    const USER_MODE_ONLY: c_int = 1;
    // SAFETY: plain numbers.
    and_close(outcome(unsafe { libc::syscall(libc::SYS_userfaultfd, USER_MODE_ONLY) }))
}

/// Makes a BPF map of one integer.
pub(crate) fn bpf() -> Outcome {
    const MAP_CREATE: c_int = 0;
    const ARRAY: u32 = 2;
    let mut attributes = [0_u32; 32];
    attributes[..4].copy_from_slice(&[ARRAY, 4, 4, 1]);
    // SAFETY: the attributes are readable for the size given.
    and_close(outcome(unsafe { libc::syscall(libc::SYS_bpf, MAP_CREATE, &raw mut attributes, 128_u32) }))
}

/// Makes a child by `clone3`.
pub(crate) fn clone3() -> Outcome {
    // struct clone_args, first version: only exit_signal is set.
    let mut arguments = [0_u64; 8];
    arguments[4] = libc::SIGCHLD as u64;
    // SAFETY: without CLONE_VM the child is a copy, as after fork; it does nothing but leave.
    let child = unsafe { libc::syscall(libc::SYS_clone3, &raw mut arguments, 64_usize) };
    if child == 0 {
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(0) };
    }
    reap(outcome(child))
}

/// Makes a child in a user namespace of its own by `clone`.
pub(crate) fn clone_new_user() -> Outcome {
    let flags = c_long::from(libc::CLONE_NEWUSER | libc::SIGCHLD);
    // SAFETY: a null stack without CLONE_VM means a copy, as after fork; the child does nothing but leave.
    let child = unsafe { libc::syscall(libc::SYS_clone, flags, 0_i64, 0_i64, 0_i64, 0_i64) };
    if child == 0 {
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(0) };
    }
    reap(outcome(child))
}

fn reap(child: Outcome) -> Outcome {
    if let Ok(pid) = child {
        // SAFETY: waits for our own child and asks for no status.
        unsafe { libc::waitpid(libc::pid_t::try_from(pid).unwrap_or(0), std::ptr::null_mut(), 0) };
    }
    child
}

/// `unshare(CLONE_NEWUSER)`, in a child because it needs a process of one thread.
pub(crate) fn unshare_new_user() -> Outcome {
    // SAFETY: plain number.
    in_child(|| outcome(unsafe { libc::unshare(libc::CLONE_NEWUSER) }.into()))
}

/// A child asks to be traced.
pub(crate) fn ptrace_traceme() -> Outcome {
    // SAFETY: PTRACE_TRACEME ignores the other arguments.
    in_child(|| outcome(unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0_usize, 0_usize) }))
}

/// Attaches to a child of our own.
pub(crate) fn ptrace_attach() -> Outcome {
    // SAFETY: the child calls only functions that are safe after fork.
    let child = unsafe { libc::fork() };
    if child == 0 {
        loop {
            // SAFETY: waits for a signal.
            unsafe { libc::pause() };
        }
    }
    if child < 0 {
        return Err(errno());
    }
    // SAFETY: PTRACE_ATTACH ignores address and data.
    let result = outcome(unsafe { libc::ptrace(libc::PTRACE_ATTACH, child, 0_usize, 0_usize) });
    // SAFETY: the child is ours and not reaped yet. SIGKILL ends it in a tracing stop too.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), libc::__WALL);
    }
    result
}

/// Runs `body` in a forked child and hands its errno back as the child's exit code.
fn in_child(body: fn() -> Outcome) -> Outcome {
    // SAFETY: the bodies given in this file call nothing but one system call.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let code = body().err().unwrap_or(0);
        // SAFETY: ends the child without running anybody's destructors.
        unsafe { libc::_exit(code) };
    }
    if child < 0 {
        return Err(errno());
    }
    let mut status = 0;
    // SAFETY: waits for our own child; `status` is writable.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
        (true, 0) => Ok(0),
        (true, code) => Err(code),
        // Killed by a filter: there is no errno, and no success either.
        (false, _) => Err(libc::EINTR),
    }
}

/// Mounts a tmpfs on a folder, and takes it away again.
pub(crate) fn mount_tmpfs(target: &CStr) -> Outcome {
    let kind = c"tmpfs";
    // SAFETY: strings end in NUL; a null data pointer means none.
    let result = outcome(
        unsafe { libc::mount(kind.as_ptr(), target.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) }.into(),
    );
    if result.is_ok() {
        // SAFETY: takes away what was mounted just now.
        unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) };
    }
    result
}

/// Opens a tmpfs by the new mount calls.
pub(crate) fn fsopen() -> Outcome {
    // SAFETY: the string ends in NUL.
    and_close(outcome(unsafe { libc::syscall(libc::SYS_fsopen, c"tmpfs".as_ptr(), 0_u32) }))
}

/// Makes a socket and closes it.
pub(crate) fn socket(family: c_int, kind: c_int, protocol: c_int) -> Outcome {
    // SAFETY: plain numbers.
    and_close(outcome(unsafe { libc::socket(family, kind, protocol) }.into()))
}

/// Types a letter into the terminal behind stdin.
pub(crate) fn tiocsti() -> Outcome {
    let letter = b'x';
    // SAFETY: TIOCSTI reads one byte.
    outcome(unsafe { libc::ioctl(0, libc::TIOCSTI as c_ulong, &raw const letter) }.into())
}

/// Maps a page that can be written and executed, as a JIT does.
pub(crate) fn map_writable_code() -> Outcome {
    let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a fresh anonymous mapping, touched by nobody and unmapped below.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return Err(errno());
    }
    // SAFETY: exactly the mapping made above.
    unsafe { libc::munmap(page, 4096) };
    Ok(0)
}

/// Makes this process deaf to SIGTERM, SIGINT and SIGHUP.
pub(crate) fn ignore_polite_signals() {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        // SAFETY: SIG_IGN runs no code of ours.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// How a process that outlives its parent hides.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "four independent tricks")]
pub(crate) struct Orphan {
    /// Leave the session.
    pub(crate) setsid: bool,
    /// Fork once more, so that the parent is init.
    pub(crate) double_fork: bool,
    /// Stop itself, so that no catchable signal is ever handled.
    pub(crate) stop: bool,
    /// Keep stdin, stdout and stderr open.
    pub(crate) hold_stdout: bool,
}

/// Starts a process named `orphan` that waits for ever, and returns its PID once it is ready to.
pub(crate) fn spawn_orphan(orphan: Orphan) -> Result<i32, i32> {
    let mut pipe = [-1_i32; 2];
    // SAFETY: `pipe` has room for two descriptors.
    if unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
        return Err(errno());
    }
    // SAFETY: the child calls only functions that are safe after fork.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: this is the forked child, which never returns from there.
        unsafe { be_orphan(orphan, pipe) };
    }
    let failed = (child < 0).then(errno);
    let mut pid = [0_u8; 4];
    // SAFETY: both descriptors are ours; `pid` is writable for its length.
    let read = unsafe {
        libc::close(pipe[1]);
        let read = if child > 0 { libc::read(pipe[0], pid.as_mut_ptr().cast(), pid.len()) } else { 0 };
        libc::close(pipe[0]);
        if child > 0 && orphan.double_fork {
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        read
    };
    match (failed, read) {
        (Some(errno), _) => Err(errno),
        (None, 4) => Ok(i32::from_ne_bytes(pid)),
        (None, _) => Err(libc::ECHILD),
    }
}

/// The rest of an orphan's life.
///
/// # Safety
/// Only in a child that was forked just now: it takes over the whole process.
unsafe fn be_orphan(orphan: Orphan, pipe: [c_int; 2]) -> ! {
    // SAFETY: every function called here is safe after fork, and every pointer is to a local or a literal.
    unsafe {
        libc::close(pipe[0]);
        if orphan.setsid {
            libc::setsid();
        }
        if orphan.double_fork && libc::fork() != 0 {
            libc::_exit(0);
        }
        libc::prctl(libc::PR_SET_NAME, c"orphan".as_ptr());
        if !orphan.hold_stdout {
            let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
            for fd in 0..=2 {
                libc::dup2(null, fd);
            }
            if null > 2 {
                libc::close(null);
            }
        }
        let pid = libc::getpid().to_ne_bytes();
        libc::write(pipe[1], pid.as_ptr().cast(), pid.len());
        libc::close(pipe[1]);
        if orphan.stop {
            libc::raise(libc::SIGSTOP);
        }
        loop {
            libc::pause();
        }
    }
}
