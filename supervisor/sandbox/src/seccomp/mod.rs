//! seccomp: which system calls the plugin can reach at all.
//!
//! Two filters. The first lets the allowed calls through and answers everything else with ENOSYS, as an older kernel
//! would, so that programs fall back instead of failing: `clone3` above all. The second, installed after it so that its
//! answer wins, answers what is refused on purpose with EPERM. Numbers of another architecture kill the process (i386),
//! or are unknown and so answered with ENOSYS (x32).

mod allowed;
mod refused;

use std::collections::BTreeMap;

use nix::errno::Errno;
use nix::libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use serde_json::{Value, json};

use crate::report::{Failure, Step};

/// A system call by name and by its number on this architecture.
#[derive(Debug, Clone, Copy)]
struct Syscall {
    name: &'static str,
    number: c_long,
}

/// System calls that are treated alike, and why.
struct Group {
    reason: &'static str,
    syscalls: &'static [Syscall],
}

/// A system call that is refused with certain arguments only.
struct Guard {
    syscall: Syscall,
    reason: &'static str,
    /// Refused where any of these holds.
    cases: &'static [Case],
}

/// Arguments that are refused: all the tests hold.
struct Case {
    what: &'static str,
    tests: &'static [Test],
}

/// One argument, of which the kernel looks at the lower 32 bits only, and so do we.
struct Test {
    argument: u8,
    is: Is,
}

/// How an argument compares.
#[derive(Clone, Copy)]
enum Is {
    Equal(u64),
    Other(u64),
    /// All these bits are set.
    With(u64),
}

/// The system calls of libc's constants, named as they are without the prefix.
macro_rules! syscalls {
    ($($constant:ident),* $(,)?) => {
        &[$($crate::seccomp::Syscall {
            name: $crate::seccomp::without_prefix(stringify!($constant)),
            number: nix::libc::$constant,
        }),*]
    };
}
use syscalls;

const fn without_prefix(constant: &'static str) -> &'static str {
    constant.split_at("SYS_".len()).1
}

/// A system call that libc does not name everywhere.
const fn numbered(name: &'static str, number: c_long) -> Syscall {
    Syscall { name, number }
}

/// Installs both filters, for good.
pub(crate) fn install() -> Result<(), Failure> {
    let broken =
        |error: BackendError| Failure::new(Step::Seccomp, None, format!("the filter is faulty: {error}"));
    // Both are compiled before the first one stands.
    let filters = [compile_allowed().map_err(broken)?, compile_refused().map_err(broken)?];
    filters.iter().try_for_each(|filter| seccompiler::apply_filter(filter)).map_err(|error| {
        let errno = match &error {
            seccompiler::Error::Seccomp(error) | seccompiler::Error::Prctl(error) => error.raw_os_error(),
            _ => None,
        };
        match errno.map(Errno::from_raw) {
            Some(errno @ (Errno::EINVAL | Errno::ENOSYS)) => Failure::new(
                Step::Seccomp,
                Some(errno),
                "this kernel takes no seccomp filter: CONFIG_SECCOMP_FILTER is off",
            ),
            errno => Failure::new(Step::Seccomp, errno, format!("the seccomp filter is refused: {error}")),
        }
    })
}

fn compile_allowed() -> Result<BpfProgram, BackendError> {
    let rules =
        allowed::GROUPS.iter().flat_map(|group| group.syscalls).map(|syscall| (syscall.number, vec![]));
    compile(rules.collect(), SeccompAction::Errno(Errno::ENOSYS as u32), SeccompAction::Allow)
}

fn compile_refused() -> Result<BpfProgram, BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = refused::GROUPS
        .iter()
        .flat_map(|group| group.syscalls)
        .map(|syscall| (syscall.number, vec![]))
        .collect();
    for guard in refused::GUARDS {
        let cases = guard.cases.iter().map(Case::rule).collect::<Result<_, _>>()?;
        rules.insert(guard.syscall.number, cases);
    }
    compile(rules, SeccompAction::Allow, SeccompAction::Errno(Errno::EPERM as u32))
}

fn compile(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    matching: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, otherwise, matching, arch)?.try_into()
}

impl Case {
    fn rule(&self) -> Result<SeccompRule, BackendError> {
        SeccompRule::new(self.tests.iter().map(Test::condition).collect::<Result<_, _>>()?)
    }
}

impl Test {
    fn condition(&self) -> Result<SeccompCondition, BackendError> {
        let (operator, value) = match self.is {
            Is::Equal(value) => (SeccompCmpOp::Eq, value),
            Is::Other(value) => (SeccompCmpOp::Ne, value),
            Is::With(bits) => (SeccompCmpOp::MaskedEq(bits), bits),
        };
        SeccompCondition::new(self.argument, SeccompCmpArgLen::Dword, operator, value)
    }
}

/// The whole policy as data, for the documentation.
pub(crate) fn describe() -> Value {
    let groups = |groups: &[Group]| -> Vec<Value> {
        groups
            .iter()
            .map(|group| json!({"reason": group.reason, "syscalls": names(group.syscalls)}))
            .collect()
    };
    let guards: Vec<Value> = refused::GUARDS
        .iter()
        .map(|guard| {
            let cases: Vec<&str> = guard.cases.iter().map(|case| case.what).collect();
            json!({"reason": guard.reason, "syscall": guard.syscall.name, "with": cases})
        })
        .collect();
    json!({
        "architecture": std::env::consts::ARCH,
        "allowed": groups(allowed::GROUPS),
        "refused": {"errno": "EPERM", "always": groups(refused::GROUPS), "sometimes": guards},
        "absent": {"errno": "ENOSYS", "named": groups(refused::ABSENT), "and": "every other number"},
    })
}

fn names(syscalls: &[Syscall]) -> Vec<&'static str> {
    syscalls.iter().map(|syscall| syscall.name).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn numbers(groups: &'static [Group]) -> BTreeSet<c_long> {
        groups.iter().flat_map(|group| group.syscalls).map(|syscall| syscall.number).collect()
    }

    #[test]
    fn each_call_stands_in_one_group() {
        let mut seen = BTreeMap::new();
        for group in allowed::GROUPS.iter().chain(refused::GROUPS).chain(refused::ABSENT) {
            assert!(!group.reason.is_empty());
            for syscall in group.syscalls {
                if let Some(other) = seen.insert(syscall.number, syscall.name) {
                    panic!("{} and {other} are both {}", syscall.name, syscall.number);
                }
            }
        }
    }

    #[test]
    fn what_is_refused_with_some_arguments_is_allowed_with_others() {
        for guard in refused::GUARDS {
            assert!(numbers(allowed::GROUPS).contains(&guard.syscall.number), "{}", guard.syscall.name);
        }
    }

    #[test]
    fn clone3_is_absent() {
        assert!(numbers(refused::ABSENT).contains(&nix::libc::SYS_clone3));
    }

    #[test]
    fn both_filters_compile() {
        assert!(!compile_allowed().unwrap().is_empty());
        assert!(!compile_refused().unwrap().is_empty());
    }

    #[test]
    fn names_are_those_of_the_manual() {
        let described = describe().to_string();
        assert!(described.contains("\"openat\"") && described.contains("\"clone3\""));
        assert!(!described.contains("SYS_"));
    }
}
