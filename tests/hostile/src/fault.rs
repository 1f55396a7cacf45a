//! `fault-errno SYSCALL[:CONDITION,…] ERRNO [SYSCALL… ERRNO …] -- COMMAND [ARG…]`
//!
//! Runs COMMAND under a seccomp filter that answers the named system calls with ERRNO and lets all others pass: this
//! kernel then has the faults of another. A CONDITION is `ARGn=VALUE` or `ARGn&MASK=VALUE` with n from 0 to 5 and
//! numbers in decimal, in hexadecimal, or as `CLONE_NEWUSER` and its like; all conditions must hold. Filters are
//! installed in the order given, so a fault of `seccomp` or `prctl` itself comes last. `no_new_privs` is set.

use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use crate::syscalls;

const NUMBERS: &[(&str, i32)] = &[
    ("CLONE_NEWCGROUP", libc::CLONE_NEWCGROUP),
    ("CLONE_NEWIPC", libc::CLONE_NEWIPC),
    ("CLONE_NEWNET", libc::CLONE_NEWNET),
    ("CLONE_NEWNS", libc::CLONE_NEWNS),
    ("CLONE_NEWPID", libc::CLONE_NEWPID),
    ("CLONE_NEWUSER", libc::CLONE_NEWUSER),
    ("CLONE_NEWUTS", libc::CLONE_NEWUTS),
    ("PR_SET_NO_NEW_PRIVS", libc::PR_SET_NO_NEW_PRIVS),
];

const ERRNOS: &[(&str, i32)] = &[
    ("EACCES", libc::EACCES),
    ("EAGAIN", libc::EAGAIN),
    ("EBADF", libc::EBADF),
    ("EBUSY", libc::EBUSY),
    ("EINVAL", libc::EINVAL),
    ("EIO", libc::EIO),
    ("ELOOP", libc::ELOOP),
    ("EMFILE", libc::EMFILE),
    ("ENFILE", libc::ENFILE),
    ("ENODEV", libc::ENODEV),
    ("ENOENT", libc::ENOENT),
    ("ENOEXEC", libc::ENOEXEC),
    ("ENOMEM", libc::ENOMEM),
    ("ENOSPC", libc::ENOSPC),
    ("ENOSYS", libc::ENOSYS),
    ("EOPNOTSUPP", libc::EOPNOTSUPP),
    ("EPERM", libc::EPERM),
    ("EROFS", libc::EROFS),
    ("EUSERS", libc::EUSERS),
];

/// One system call that fails.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fault {
    number: libc::c_long,
    conditions: Vec<Condition>,
    errno: i32,
}

/// What an argument has to be for the fault to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Condition {
    argument: u8,
    mask: Option<u64>,
    value: u64,
}

/// A parsed command line.
#[derive(Debug)]
pub struct Plan {
    faults: Vec<Fault>,
    /// The program to run, with its arguments; never empty.
    pub command: Vec<String>,
}

impl Plan {
    /// Reads the arguments after the program's own name.
    pub fn parse(arguments: &[String]) -> Result<Plan, String> {
        let split =
            arguments.iter().position(|argument| argument == "--").ok_or("no `--` before the command")?;
        let (faults, command) = (&arguments[..split], &arguments[split + 1..]);
        if command.is_empty() {
            return Err("no command after `--`".to_owned());
        }
        if faults.is_empty() || faults.len() % 2 != 0 {
            return Err("faults come in pairs: SYSCALL[:CONDITION,…] ERRNO".to_owned());
        }
        let faults = faults.chunks(2).map(|pair| fault(&pair[0], &pair[1])).collect::<Result<_, _>>()?;
        Ok(Plan { faults, command: command.to_vec() })
    }

    /// Installs the filters in this process, for good.
    pub fn install(&self) -> Result<(), seccompiler::Error> {
        for fault in &self.faults {
            seccompiler::apply_filter(&program(fault)?)?;
        }
        Ok(())
    }
}

fn fault(call: &str, errno: &str) -> Result<Fault, String> {
    let (name, conditions) = call.split_once(':').unwrap_or((call, ""));
    let number = syscalls::number(name).ok_or_else(|| format!("`{name}` is no system call of the table"))?;
    let conditions =
        conditions.split(',').filter(|text| !text.is_empty()).map(condition).collect::<Result<_, _>>()?;
    let errno = ERRNOS.iter().find(|(known, _)| *known == errno).map(|(_, value)| *value);
    let errno = errno.ok_or("ERRNO is a name such as EPERM or ENOSYS")?;
    Ok(Fault { number, conditions, errno })
}

fn condition(text: &str) -> Result<Condition, String> {
    let wrong = || format!("`{text}` is not of the form ARGn=VALUE or ARGn&MASK=VALUE");
    let (left, value) = text.split_once('=').ok_or_else(wrong)?;
    let (argument, mask) = match left.split_once('&') {
        Some((argument, mask)) => (argument, Some(number(mask).ok_or_else(wrong)?)),
        None => (left, None),
    };
    let argument =
        argument.strip_prefix("ARG").and_then(|digits| digits.parse().ok()).filter(|&index| index < 6);
    Ok(Condition { argument: argument.ok_or_else(wrong)?, mask, value: number(value).ok_or_else(wrong)? })
}

fn number(text: &str) -> Option<u64> {
    if let Some((_, value)) = NUMBERS.iter().find(|(name, _)| *name == text) {
        return Some(u64::from(value.cast_unsigned()));
    }
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn program(fault: &Fault) -> Result<BpfProgram, seccompiler::Error> {
    let conditions = fault
        .conditions
        .iter()
        .map(|condition| {
            // An int argument leaves the upper half of its register undefined, so a small value is compared as an int.
            let small = condition.mask.is_none() && u32::try_from(condition.value).is_ok();
            let length = if small { SeccompCmpArgLen::Dword } else { SeccompCmpArgLen::Qword };
            let operator = condition.mask.map_or(SeccompCmpOp::Eq, SeccompCmpOp::MaskedEq);
            SeccompCondition::new(condition.argument, length, operator, condition.value)
        })
        .collect::<Result<Vec<_>, _>>()?;
    // No rule at all means: whatever the arguments are.
    let rules = if conditions.is_empty() { Vec::new() } else { vec![SeccompRule::new(conditions)?] };
    let filter = SeccompFilter::new(
        [(fault.number, rules)].into(),
        SeccompAction::Allow,
        SeccompAction::Errno(fault.errno.cast_unsigned()),
        std::env::consts::ARCH.try_into()?,
    )?;
    Ok(filter.try_into()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(line: &str) -> Result<Plan, String> {
        Plan::parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_command_line_becomes_faults() {
        let plan = plan("clone:ARG0&CLONE_NEWUSER=0x10000000 ENOSPC prctl:ARG0=38 EPERM mount EIO -- ls -l")
            .unwrap();
        assert_eq!(plan.command, ["ls", "-l"]);
        assert_eq!(
            plan.faults,
            [
                Fault {
                    number: libc::SYS_clone,
                    conditions: vec![Condition { argument: 0, mask: Some(0x1000_0000), value: 0x1000_0000 }],
                    errno: libc::ENOSPC,
                },
                Fault {
                    number: libc::SYS_prctl,
                    conditions: vec![Condition { argument: 0, mask: None, value: 38 }],
                    errno: libc::EPERM,
                },
                Fault { number: libc::SYS_mount, conditions: vec![], errno: libc::EIO },
            ]
        );
        for fault in &plan.faults {
            assert!(!program(fault).unwrap().is_empty());
        }
    }

    #[test]
    fn wrong_lines_are_refused() {
        for line in [
            "mount EPERM",
            "mount EPERM --",
            "-- ls",
            "mount -- ls",
            "mont EPERM -- ls",
            "mount EWRONG -- ls",
            "clone:ARG6=1 EPERM -- ls",
            "clone:ARG0 EPERM -- ls",
            "clone:ARG0&x=1 EPERM -- ls",
        ] {
            assert!(plan(line).is_err(), "{line}");
        }
    }
}
