//! What is refused on purpose, with EPERM, so that a program sees a decision and not a missing feature.

use nix::libc::{self, c_int};

use super::{Case, Group, Guard, Is, Syscall, Test, numbered, syscalls};

/// A flag in the first argument.
macro_rules! flag {
    ($flag:ident) => {
        Case { what: stringify!($flag), tests: &[Test { argument: 0, is: Is::With(word(libc::$flag)) }] }
    };
}

/// A mode, in the argument of that number, that would make a file run as its owner or group.
macro_rules! set_id {
    ($argument:literal) => {
        &[
            Case { what: "S_ISUID", tests: &[Test { argument: $argument, is: Is::With(0o4000) }] },
            Case { what: "S_ISGID", tests: &[Test { argument: $argument, is: Is::With(0o2000) }] },
        ]
    };
}

/// The same where flags, in the argument before the mode, say that a file is made.
macro_rules! set_id_made {
    ($flags:literal, $argument:literal) => {
        &[
            Case {
                what: "O_CREAT with S_ISUID",
                tests: &[
                    Test { argument: $flags, is: Is::With(word(libc::O_CREAT)) },
                    Test { argument: $argument, is: Is::With(0o4000) },
                ],
            },
            Case {
                what: "O_CREAT with S_ISGID",
                tests: &[
                    Test { argument: $flags, is: Is::With(word(libc::O_CREAT)) },
                    Test { argument: $argument, is: Is::With(0o2000) },
                ],
            },
        ]
    };
}

/// A program left in a granted folder would run as the operator for every user of the machine.
const SET_ID: &str = "files that run as their owner or group must not be left behind";

/// Refused whatever the arguments.
pub(super) const GROUPS: &[Group] = &[
    Group {
        reason: "mounts: they could uncover what bubblewrap hid",
        syscalls: syscalls![
            SYS_mount,
            SYS_umount2,
            SYS_pivot_root,
            SYS_chroot,
            SYS_move_mount,
            SYS_open_tree,
            SYS_fsopen,
            SYS_fsconfig,
            SYS_fsmount,
            SYS_fspick,
            SYS_mount_setattr,
        ],
    },
    Group { reason: "mounts, as newer kernels have it", syscalls: &[numbered("open_tree_attr", 467)] },
    Group {
        reason: "namespaces: a new user namespace brings every capability, and with them most kernel bugs",
        syscalls: syscalls![SYS_unshare, SYS_setns],
    },
    Group {
        reason: "other processes' memory and descriptors",
        syscalls: syscalls![
            SYS_ptrace,
            SYS_process_vm_readv,
            SYS_process_vm_writev,
            SYS_process_madvise,
            SYS_pidfd_getfd,
            SYS_kcmp,
        ],
    },
    Group {
        reason: "programs in the kernel, and its performance counters",
        syscalls: syscalls![SYS_bpf, SYS_perf_event_open],
    },
    Group {
        reason: "io_uring: its operations pass by seccomp",
        syscalls: syscalls![SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register],
    },
    Group {
        reason: "userfaultfd: it lets a program halt the kernel in the middle of a copy",
        syscalls: syscalls![SYS_userfaultfd],
    },
    Group {
        reason: "the kernel's keyrings, which no namespace separates",
        syscalls: syscalls![SYS_add_key, SYS_request_key, SYS_keyctl],
    },
    Group {
        reason: "files by handle, which pass by their folders' permissions",
        syscalls: syscalls![SYS_open_by_handle_at],
    },
    Group {
        reason: "watching whole file systems",
        syscalls: syscalls![SYS_fanotify_init, SYS_fanotify_mark],
    },
    Group {
        reason: "kernel modules and other kernels",
        syscalls: syscalls![
            SYS_init_module,
            SYS_finit_module,
            SYS_delete_module,
            SYS_kexec_load,
            SYS_kexec_file_load,
        ],
    },
    Group {
        reason: "administration of the machine",
        syscalls: syscalls![
            SYS_reboot,
            SYS_swapon,
            SYS_swapoff,
            SYS_quotactl,
            SYS_quotactl_fd,
            SYS_acct,
            SYS_sethostname,
            SYS_setdomainname,
            SYS_vhangup,
            SYS_syslog,
        ],
    },
    Group {
        reason: "the machine's clocks",
        syscalls: syscalls![SYS_settimeofday, SYS_clock_settime, SYS_clock_adjtime, SYS_adjtimex],
    },
    #[cfg(target_arch = "x86_64")]
    Group {
        reason: "I/O ports, and segments of 16-bit code",
        syscalls: syscalls![SYS_iopl, SYS_ioperm, SYS_modify_ldt],
    },
];

/// Allowed, but not with these arguments.
pub(super) const GUARDS: &[Guard] = &[
    Guard {
        syscall: one(syscalls![SYS_clone]),
        reason: "a child in new namespaces is what unshare is refused for",
        cases: &[
            flag!(CLONE_NEWNS),
            flag!(CLONE_NEWCGROUP),
            flag!(CLONE_NEWUTS),
            flag!(CLONE_NEWIPC),
            flag!(CLONE_NEWUSER),
            flag!(CLONE_NEWPID),
            flag!(CLONE_NEWNET),
        ],
    },
    Guard {
        syscall: one(syscalls![SYS_ioctl]),
        reason: "they type into the terminal that somebody else reads from",
        cases: &[
            Case { what: "TIOCSTI", tests: &[Test { argument: 1, is: Is::Equal(libc::TIOCSTI) }] },
            Case { what: "TIOCLINUX", tests: &[Test { argument: 1, is: Is::Equal(libc::TIOCLINUX) }] },
        ],
    },
    Guard {
        syscall: one(syscalls![SYS_socket]),
        reason: "other families are large, rarely used parts of the kernel, or reach past the network namespace \
                 (vsock: the hypervisor)",
        cases: &[
            Case {
                what: "a family other than AF_UNIX, AF_INET, AF_INET6 and AF_NETLINK",
                tests: &[
                    Test { argument: 0, is: Is::Other(word(libc::AF_UNIX)) },
                    Test { argument: 0, is: Is::Other(word(libc::AF_INET)) },
                    Test { argument: 0, is: Is::Other(word(libc::AF_INET6)) },
                    Test { argument: 0, is: Is::Other(word(libc::AF_NETLINK)) },
                ],
            },
            Case {
                what: "AF_NETLINK with a protocol other than NETLINK_ROUTE",
                tests: &[
                    Test { argument: 0, is: Is::Equal(word(libc::AF_NETLINK)) },
                    Test { argument: 2, is: Is::Other(word(libc::NETLINK_ROUTE)) },
                ],
            },
        ],
    },
    Guard {
        syscall: one(syscalls![SYS_socketpair]),
        reason: "pairs of other families are never needed",
        cases: &[Case {
            what: "a family other than AF_UNIX",
            tests: &[Test { argument: 0, is: Is::Other(word(libc::AF_UNIX)) }],
        }],
    },
    Guard {
        syscall: one(syscalls![SYS_personality]),
        reason: "other personalities take protections away: address randomisation, pages that are not executable",
        cases: &[Case {
            what: "anything but asking (0xffffffff) and PER_LINUX (0)",
            tests: &[
                Test { argument: 0, is: Is::Other(0) },
                Test { argument: 0, is: Is::Other(0xffff_ffff) },
            ],
        }],
    },
    Guard { syscall: one(syscalls![SYS_fchmod]), reason: SET_ID, cases: set_id!(1) },
    Guard { syscall: one(syscalls![SYS_fchmodat]), reason: SET_ID, cases: set_id!(2) },
    Guard { syscall: numbered("fchmodat2", 452), reason: SET_ID, cases: set_id!(2) },
    Guard { syscall: one(syscalls![SYS_mknodat]), reason: SET_ID, cases: set_id!(2) },
    Guard { syscall: one(syscalls![SYS_openat]), reason: SET_ID, cases: set_id_made!(2, 3) },
    #[cfg(target_arch = "x86_64")]
    Guard { syscall: one(syscalls![SYS_chmod]), reason: SET_ID, cases: set_id!(1) },
    #[cfg(target_arch = "x86_64")]
    Guard { syscall: one(syscalls![SYS_creat]), reason: SET_ID, cases: set_id!(1) },
    #[cfg(target_arch = "x86_64")]
    Guard { syscall: one(syscalls![SYS_mknod]), reason: SET_ID, cases: set_id!(1) },
    #[cfg(target_arch = "x86_64")]
    Guard { syscall: one(syscalls![SYS_open]), reason: SET_ID, cases: set_id_made!(1, 2) },
];

/// Neither allowed nor refused: as if the kernel did not have them. Every other number is answered alike; these are
/// the ones worth a word.
pub(super) const ABSENT: &[Group] = &[
    Group {
        reason: "its mode lies in memory that a filter cannot read, so files that run as their owner could not be refused; \
                 libraries fall back to openat",
        syscalls: syscalls![SYS_openat2],
    },
    Group {
        reason: "its flags lie in memory that a filter cannot read, so namespaces could not be refused; \
                 every libc falls back to clone on ENOSYS, and on no other answer",
        syscalls: syscalls![SYS_clone3],
    },
    Group {
        reason: "placement of memory on machines with several nodes: libraries ask whether it is there and do without",
        syscalls: syscalls![
            SYS_get_mempolicy,
            SYS_set_mempolicy,
            SYS_set_mempolicy_home_node,
            SYS_mbind,
            SYS_migrate_pages,
            SYS_move_pages,
        ],
    },
    Group {
        reason: "handles of files, useless where they cannot be opened",
        syscalls: syscalls![SYS_name_to_handle_at],
    },
];

const fn one(syscalls: &[Syscall]) -> Syscall {
    syscalls[0]
}

/// A C `int` as the register holds it.
const fn word(value: c_int) -> u64 {
    value.cast_unsigned() as u64
}
