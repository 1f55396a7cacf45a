//! Landlock: the same rules as the mounts once more, from inside, for this process and all that it will start.
//!
//! Which ABI a kernel has is never inferred from its version, nor believed from its word alone: a forked child really
//! restricts itself and then tries what it may not.

use std::error::Error;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    RestrictSelfAttr, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus,
    Scope, make_bitflags,
};
use nix::errno::Errno;
use nix::sys::wait::WaitStatus;

use crate::options::{Access, Rule};
use crate::report::{Failure, Step, describe};
use crate::sys;

/// The highest ABI that these rules were written for. A newer kernel handles what this one knows.
const HIGHEST: i32 = 10;

/// What each ABI added; a kernel below it leaves that open. Whether it is about the network is beside it.
const ADDED: &[(i32, bool, &str)] = &[
    (2, false, "moving files between folders, which stays forbidden"),
    (3, false, "truncating files"),
    (4, true, "tcp"),
    (5, false, "ioctl on devices"),
    (6, false, "abstract sockets and signals"),
    (9, false, "sockets by path"),
    (10, true, "udp"),
];

/// Exit status of a probing child that was restricted and could read `/` all the same.
const NOT_ENFORCED: u8 = 254;
/// Exit status of a probing child whose failure has no errno.
const NO_ERRNO: u8 = 255;

/// What the kernel really does, as a child found out.
#[derive(Debug)]
pub(crate) struct Support {
    /// The highest ABI that works.
    pub(crate) abi: i32,
    /// A higher one that the kernel reports and rejects, and how.
    rejected: Option<(i32, String)>,
}

impl Support {
    /// What this kernel leaves open, for the operator to read.
    pub(crate) fn not_handled(&self, network: bool) -> Vec<String> {
        let gaps = ADDED
            .iter()
            .filter(|(abi, about_network, _)| *abi > self.abi && !(network && *about_network))
            .map(|(abi, _, what)| format!("{what} (ABI {abi})"));
        let rejected =
            self.rejected.iter().map(|(abi, how)| format!("ABI {abi}, reported and rejected: {how}"));
        gaps.chain(rejected).collect()
    }
}

/// Finds the highest ABI that works, from the highest known downwards.
pub(crate) fn probe(network: bool) -> Result<Support, Failure> {
    let reported = match sys::landlock_abi() {
        Ok(reported) if reported >= 1 => i32::try_from(reported).unwrap_or(i32::MAX),
        Ok(reported) => {
            let message = format!("this kernel reports the impossible Landlock ABI {reported}");
            return Err(Failure::new(Step::Landlock, None, message));
        }
        Err(errno) => return Err(Failure::explained(Step::Landlock, errno, absent(errno))),
    };
    let mut rejected = None;
    for abi in (1..=reported.min(HIGHEST)).rev() {
        match attempt(abi, network)? {
            Attempt::Works => {
                return Ok(Support { abi, rejected: rejected.map(|(abi, why)| (abi, how(&why))) });
            }
            refused => rejected = rejected.or(Some((abi, refused))),
        }
    }
    Err(refused(reported, rejected.as_ref().map(|(_, why)| why)))
}

/// Restricts this process for good.
pub(crate) fn restrict(support: &Support, rules: &[Rule], network: bool) -> Result<(), Failure> {
    let abi = ABI::from(support.abi);
    let refused = |error: RulesetError| {
        let message = format!("Landlock refuses the rules: {error}");
        match os_error(&error) {
            Some(errno) => Failure::explained(Step::Landlock, errno, message),
            None => Failure::new(Step::Landlock, None, message),
        }
    };
    let mut ruleset = ruleset(abi, network).map_err(refused)?;
    for rule in rules {
        if let Some(path) = open(rule)? {
            ruleset = ruleset
                .add_rule(PathBeneath::new(path.fd, path.access & AccessFs::from_all(abi)))
                .map_err(refused)?;
        }
    }
    let status = ruleset.restrict_self().map_err(refused)?;
    if status.ruleset == RulesetStatus::FullyEnforced {
        Ok(())
    } else {
        Err(Failure::new(Step::Landlock, None, "Landlock enforces only a part of the rules"))
    }
}

/// Everything that this ABI can deny is denied; rules then allow paths. All or nothing.
fn ruleset(abi: ABI, network: bool) -> Result<RulesetCreated, RulesetError> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(abi))?;
    if abi >= ABI::V4 && !network {
        ruleset = ruleset.handle_access(AccessNet::from_all(abi))?;
    }
    if abi >= ABI::V6 {
        ruleset = ruleset.scope(Scope::from_all(abi))?;
    }
    let ruleset = ruleset.create()?;
    if abi >= ABI::V7 {
        // A plugin that makes domains of its own must not be able to fill the host's audit log with their denials.
        return ruleset.log_subdomains(false);
    }
    Ok(ruleset)
}

/// How one ABI fared in a child.
#[derive(Debug)]
enum Attempt {
    Works,
    Rejected(Option<Errno>),
    NotEnforced,
}

fn attempt(abi: i32, network: bool) -> Result<Attempt, Failure> {
    let ended = sys::in_child(|| try_in_child(ABI::from(abi), network))
        .map_err(|errno| Failure::new(Step::Landlock, Some(errno), "cannot fork to try Landlock"))?;
    Ok(match ended {
        WaitStatus::Exited(_, 0) => Attempt::Works,
        WaitStatus::Exited(_, status) if status == i32::from(NOT_ENFORCED) => Attempt::NotEnforced,
        WaitStatus::Exited(_, status) if status == i32::from(NO_ERRNO) => Attempt::Rejected(None),
        WaitStatus::Exited(_, errno) => Attempt::Rejected(Some(Errno::from_raw(errno))),
        // A filter of whoever runs us may kill instead of answering.
        _ => Attempt::Rejected(Some(Errno::EPERM)),
    })
}

fn try_in_child(abi: ABI, network: bool) -> u8 {
    match ruleset(abi, network).and_then(RulesetCreated::restrict_self) {
        Ok(status) if status.ruleset != RulesetStatus::FullyEnforced => NOT_ENFORCED,
        Ok(_) => match std::fs::read_dir("/") {
            Err(error) if error.raw_os_error() == Some(Errno::EACCES as i32) => 0,
            _ => NOT_ENFORCED,
        },
        Err(error) => os_error(&error).and_then(|errno| u8::try_from(errno as i32).ok()).unwrap_or(NO_ERRNO),
    }
}

/// A path that a rule names, open, with what the rule allows there.
struct Opened {
    fd: PathFd,
    access: BitFlags<AccessFs>,
}

fn open(rule: &Rule) -> Result<Option<Opened>, Failure> {
    let name = rule.path.display();
    let fd = match PathFd::new(&rule.path) {
        Ok(fd) => fd,
        Err(error) => {
            let errno = os_error(&error);
            if matches!(errno, Some(Errno::ENOENT | Errno::ENOTDIR)) {
                if rule.optional {
                    return Ok(None);
                }
                let message =
                    format!("{name} is not in the sandbox; a rule that may be missing is written -{name}");
                return Err(Failure::new(Step::Landlock, errno, message));
            }
            return Err(Failure::new(Step::Landlock, errno, format!("{name} cannot be opened")));
        }
    };
    let kind = kind(&fd).map_err(|error| {
        let errno = error.raw_os_error().map(Errno::from_raw);
        Failure::new(Step::Landlock, errno, format!("{name} cannot be examined"))
    })?;
    if rule.access == Access::Device && !kind.is_char_device() {
        return Err(Failure::new(Step::Landlock, None, format!("{name} is not a character device")));
    }
    let mut access = rights(rule.access);
    if !kind.is_dir() {
        access &= FOR_FILES;
    }
    Ok(Some(Opened { fd, access }))
}

fn kind(fd: &PathFd) -> io::Result<std::fs::FileType> {
    use std::os::fd::AsFd;
    Ok(File::from(fd.as_fd().try_clone_to_owned()?).metadata()?.file_type())
}

/// What the kernel takes in a rule about something that is not a directory.
const FOR_FILES: BitFlags<AccessFs> = make_bitflags!(AccessFs::{Execute | ReadFile | WriteFile | Truncate});

/// Never granted: making device nodes, ioctl on devices, and the sockets of others (those of the plugin itself need
/// no right).
fn rights(access: Access) -> BitFlags<AccessFs> {
    const READ: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir});
    match access {
        Access::List => make_bitflags!(AccessFs::{ReadDir}),
        Access::Read => READ,
        Access::Exec => READ | AccessFs::Execute,
        Access::Write => {
            READ | make_bitflags!(AccessFs::{
                WriteFile | Truncate | Refer | RemoveDir | RemoveFile |
                MakeDir | MakeReg | MakeSym | MakeFifo | MakeSock
            })
        }
        Access::Device => make_bitflags!(AccessFs::{ReadFile | WriteFile | Truncate}),
    }
}

fn absent(errno: Errno) -> String {
    match errno {
        Errno::ENOSYS => {
            "this kernel has no Landlock: CONFIG_SECURITY_LANDLOCK is off, or the kernel is older than 5.13"
                .into()
        }
        Errno::EOPNOTSUPP => "Landlock is built in but switched off at boot: add landlock to lsm= \
                              on the kernel's command line"
            .into(),
        other => format!("this kernel does not say which Landlock it has: {}", describe(other)),
    }
}

fn refused(reported: i32, why: Option<&Attempt>) -> Failure {
    let how = why.map_or_else(String::new, how);
    let message = format!("this kernel reports Landlock ABI {reported} but refuses to enforce it: {how}");
    match why {
        Some(Attempt::Rejected(Some(errno))) => Failure::explained(Step::Landlock, *errno, message),
        _ => Failure::new(Step::Landlock, None, message),
    }
}

fn how(attempt: &Attempt) -> String {
    match attempt {
        Attempt::Works => "nothing".into(),
        Attempt::Rejected(Some(errno)) => describe(*errno),
        Attempt::Rejected(None) => "the landlock library gives no reason".into(),
        Attempt::NotEnforced => "it accepts the rules and does not apply them".into(),
    }
}

/// The kernel's answer at the bottom of the library's error.
fn os_error(error: &(dyn Error + 'static)) -> Option<Errno> {
    let mut error = Some(error);
    while let Some(inner) = error {
        if let Some(errno) = inner.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return Some(Errno::from_raw(errno));
        }
        error = inner.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(abi: i32, network: bool) -> Vec<String> {
        Support { abi, rejected: None }.not_handled(network)
    }

    #[test]
    fn what_is_open_is_named_with_the_abi_that_closes_it() {
        assert_eq!(
            gaps(3, false),
            [
                "tcp (ABI 4)",
                "ioctl on devices (ABI 5)",
                "abstract sockets and signals (ABI 6)",
                "sockets by path (ABI 9)",
                "udp (ABI 10)"
            ]
        );
        assert_eq!(gaps(8, true), ["sockets by path (ABI 9)"]);
        assert!(gaps(HIGHEST, false).is_empty());
    }

    #[test]
    fn the_highest_abi_is_the_librarys_highest() {
        assert_eq!(ABI::from(i32::MAX) as i32, HIGHEST);
    }

    #[test]
    fn nothing_that_can_be_written_can_be_executed() {
        assert!(!rights(Access::Write).contains(AccessFs::Execute));
        assert!(!rights(Access::Device).contains(AccessFs::Execute));
        for access in [Access::Read, Access::Exec] {
            assert!(!rights(access).intersects(AccessFs::from_write(ABI::from(HIGHEST))));
        }
    }

    #[test]
    fn absent_and_switched_off_differ() {
        assert_ne!(absent(Errno::ENOSYS), absent(Errno::EOPNOTSUPP));
        assert!(refused(6, Some(&Attempt::Rejected(Some(Errno::EINVAL)))).message().contains("ABI 6"));
    }
}
