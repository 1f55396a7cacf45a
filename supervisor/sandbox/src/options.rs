//! The command line: long options, each with its value as the next word, no abbreviations, and `--` before the program.
//!
//! Only the launcher writes these lines, so anything unexpected is a fault and refused.

use std::ffi::{CString, OsString};
use std::fmt;
use std::os::fd::RawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

pub(crate) const HELP: &str = "\
plugind-sandbox gate --gate FD -- PROGRAM [ARG…]
    Wait for the byte '1' on FD, then run PROGRAM. Anything else: exit 125.

plugind-sandbox enter [OPTION…] -- PROGRAM [ARG…]
    Restrict this process for good, then become PROGRAM. On failure: exit 125.
      --report FD            SOCK_SEQPACKET socket that is told `ready` or `failed`
      --bundle-id DEV:INO    refuse unless /plugin has these (decimal) numbers
      --entry-sha256 HEX     refuse unless PROGRAM is an ELF file with this SHA-256
      --nofile N             limit of open files (16 to 1048576)
      --list PATH            allow listing the folder PATH and those beneath
      --read PATH            allow reading PATH and what is beneath
      --exec PATH            … and executing it
      --write PATH           allow reading and writing, never executing
      --device PATH          allow reading and writing this device node, no ioctl
      --network              leave TCP (and UDP) to the network namespace
    PATH and PROGRAM are absolute. A PATH with `-` before it may be missing.

plugind-sandbox probe        What this kernel offers, as JSON.
plugind-sandbox policy       The system calls allowed and refused, with reasons, as JSON.
plugind-sandbox canary       A plugin that reports what it sees.
";

/// What the process was started for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Gate(Gate),
    Enter(Enter),
    Probe,
    Policy,
    Canary,
    Help,
    Version,
}

/// `gate`: whom to wait for, and what to run then.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Gate {
    pub(crate) gate: RawFd,
    pub(crate) program: Program,
}

/// `enter`: everything that the sandbox is made of.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Enter {
    pub(crate) report: Option<RawFd>,
    pub(crate) bundle: Option<BundleId>,
    pub(crate) entry_sha256: Option<[u8; 32]>,
    pub(crate) nofile: Option<u64>,
    pub(crate) network: bool,
    pub(crate) rules: Vec<Rule>,
    pub(crate) program: Program,
}

/// The device and inode number that `/plugin` must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BundleId {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

/// One path and what may be done at and beneath it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) access: Access,
    pub(crate) path: PathBuf,
    /// A missing path is passed over.
    pub(crate) optional: bool,
}

/// What a [`Rule`] allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Seeing the names in folders, not what files hold.
    List,
    Read,
    Exec,
    Write,
    Device,
}

/// A program by absolute path, and its arguments with `argv[0]` first.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) path: CString,
    pub(crate) argv: Vec<CString>,
}

/// Why a command line was refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Usage(String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reads the command line, without the program's own name.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command, Usage> {
    let mut words = Words(args.into_iter());
    let command = words.next().ok_or_else(|| Usage("a command is missing".into()))?;
    let command = match command.to_str() {
        Some("gate") => return gate(words).map(Command::Gate),
        Some("enter") => return enter(words).map(Command::Enter),
        Some("probe") => Command::Probe,
        Some("policy") => Command::Policy,
        Some("canary") => Command::Canary,
        Some("--help") => Command::Help,
        Some("--version") => Command::Version,
        _ => return Err(Usage(format!("there is no command {}", command.display()))),
    };
    match words.next() {
        None => Ok(command),
        Some(word) => Err(Usage(format!("{} is not expected here", word.display()))),
    }
}

fn gate(mut words: Words<impl Iterator<Item = OsString>>) -> Result<Gate, Usage> {
    let mut gate = None;
    while let Some(option) = words.option()? {
        match option.as_str() {
            "--gate" => once(&option, &mut gate, fd(&option, &words.value(&option)?)?)?,
            _ => return Err(unknown(&option)),
        }
    }
    Ok(Gate { gate: gate.ok_or_else(|| Usage("--gate is missing".into()))?, program: words.program()? })
}

fn enter(mut words: Words<impl Iterator<Item = OsString>>) -> Result<Enter, Usage> {
    let mut enter = Enter::default();
    while let Some(option) = words.option()? {
        if option == "--network" {
            enter.network = true;
            continue;
        }
        let value = words.value(&option)?;
        match option.as_str() {
            "--report" => once(&option, &mut enter.report, fd(&option, &value)?)?,
            "--bundle-id" => once(&option, &mut enter.bundle, bundle_id(&option, &value)?)?,
            "--entry-sha256" => once(&option, &mut enter.entry_sha256, sha256(&option, &value)?)?,
            "--nofile" => once(&option, &mut enter.nofile, number(&option, &value, 16, 1 << 20)?)?,
            "--list" => enter.rules.push(rule(&option, value, Access::List)?),
            "--read" => enter.rules.push(rule(&option, value, Access::Read)?),
            "--exec" => enter.rules.push(rule(&option, value, Access::Exec)?),
            "--write" => enter.rules.push(rule(&option, value, Access::Write)?),
            "--device" => enter.rules.push(rule(&option, value, Access::Device)?),
            _ => return Err(unknown(&option)),
        }
    }
    enter.program = words.program()?;
    Ok(enter)
}

/// The words that are left.
struct Words<I>(I);

impl<I: Iterator<Item = OsString>> Words<I> {
    fn next(&mut self) -> Option<OsString> {
        self.0.next()
    }

    /// The next option, or `None` at the `--` that must end them.
    fn option(&mut self) -> Result<Option<String>, Usage> {
        let word = self.next().ok_or_else(|| Usage("`-- PROGRAM` is missing".into()))?;
        match word.to_str() {
            Some("--") => Ok(None),
            Some(option) if option.starts_with("--") => Ok(Some(option.to_owned())),
            _ => Err(Usage(format!("{} is not an option", word.display()))),
        }
    }

    fn value(&mut self, option: &str) -> Result<OsString, Usage> {
        self.next().ok_or_else(|| Usage(format!("{option} needs a value")))
    }

    fn program(mut self) -> Result<Program, Usage> {
        let path = self.next().ok_or_else(|| Usage("PROGRAM is missing".into()))?;
        if !path.as_bytes().starts_with(b"/") {
            return Err(Usage(format!("{} is not an absolute path", path.display())));
        }
        // Words of an argv end at their first NUL, so none of these conversions can fail.
        let word = |word: OsString| CString::new(word.into_vec()).map_err(|_| Usage("NUL in a word".into()));
        let path = word(path)?;
        let mut argv = vec![path.clone()];
        for argument in self.0 {
            argv.push(word(argument)?);
        }
        Ok(Program { path, argv })
    }
}

fn unknown(option: &str) -> Usage {
    Usage(format!("there is no option {option}"))
}

fn once<T>(option: &str, slot: &mut Option<T>, value: T) -> Result<(), Usage> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Usage(format!("{option} is given twice"))),
    }
}

fn number(option: &str, value: &OsString, least: u64, most: u64) -> Result<u64, Usage> {
    value
        .to_str()
        // `str::parse` also takes a leading plus.
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|text| text.parse().ok())
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| {
            Usage(format!("{option} takes a number from {least} to {most}, not {}", value.display()))
        })
}

/// A descriptor besides the three standard ones.
fn fd(option: &str, value: &OsString) -> Result<RawFd, Usage> {
    let number = number(option, value, 3, i32::MAX as u64)?;
    RawFd::try_from(number).map_err(|_| Usage(format!("{option} is too large")))
}

fn bundle_id(option: &str, value: &OsString) -> Result<BundleId, Usage> {
    let wrong = || Usage(format!("{option} takes DEV:INO in decimal, not {}", value.display()));
    let (device, inode) = value.to_str().and_then(|text| text.split_once(':')).ok_or_else(wrong)?;
    let number = |text: &str| number(option, &text.into(), 0, u64::MAX).map_err(|_| wrong());
    Ok(BundleId { device: number(device)?, inode: number(inode)? })
}

fn sha256(option: &str, value: &OsString) -> Result<[u8; 32], Usage> {
    let wrong = || Usage(format!("{option} takes 64 lower-case hexadecimal digits"));
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        _ => Err(wrong()),
    };
    let text = value.as_bytes();
    if text.len() != 64 {
        return Err(wrong());
    }
    let mut digest = [0; 32];
    for (byte, pair) in digest.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Ok(digest)
}

fn rule(option: &str, value: OsString, access: Access) -> Result<Rule, Usage> {
    let bytes = value.into_vec();
    let (optional, bytes) = match bytes.strip_prefix(b"-") {
        Some(rest) => (true, rest.to_vec()),
        None => (false, bytes),
    };
    let path = PathBuf::from(OsString::from_vec(bytes));
    if path.is_absolute() {
        Ok(Rule { access, path, optional })
    } else {
        Err(Usage(format!("{option} takes an absolute path, not {}", path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace().map(OsString::from)).map_err(|usage| usage.to_string())
    }

    fn program(words: &[&str]) -> Program {
        let argv: Vec<CString> = words.iter().map(|word| CString::new(*word).unwrap()).collect();
        Program { path: argv[0].clone(), argv }
    }

    #[test]
    fn the_gate_has_a_descriptor_and_a_program() {
        let gate = Gate { gate: 5, program: program(&["/usr/bin/bwrap", "--gate", "x"]) };
        assert_eq!(parsed("gate --gate 5 -- /usr/bin/bwrap --gate x"), Ok(Command::Gate(gate)));
    }

    #[test]
    fn enter_takes_every_option() {
        let line = "enter --report 3 --bundle-id 64768:12 --nofile 256 --read -/lib64 --exec /usr --write /tmp \
                    --device /dev/null --network -- /plugin/x --read y";
        let rule = |access, path: &str, optional| Rule { access, path: path.into(), optional };
        assert_eq!(
            parsed(line),
            Ok(Command::Enter(Enter {
                report: Some(3),
                bundle: Some(BundleId { device: 64768, inode: 12 }),
                entry_sha256: None,
                nofile: Some(256),
                network: true,
                rules: vec![
                    rule(Access::Read, "/lib64", true),
                    rule(Access::Exec, "/usr", false),
                    rule(Access::Write, "/tmp", false),
                    rule(Access::Device, "/dev/null", false),
                ],
                program: program(&["/plugin/x", "--read", "y"]),
            }))
        );
    }

    #[test]
    fn a_digest_is_64_lower_case_digits() {
        let hex = "00ff".repeat(16);
        let Ok(Command::Enter(enter)) = parsed(&format!("enter --entry-sha256 {hex} -- /x")) else {
            panic!("refused")
        };
        assert_eq!(enter.entry_sha256.unwrap()[..2], [0x00, 0xff]);
        for wrong in ["00FF".repeat(16), "00ff".repeat(15), "0g".repeat(32)] {
            parsed(&format!("enter --entry-sha256 {wrong} -- /x")).unwrap_err();
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for (line, why) in [
            ("", "a command is missing"),
            ("start", "there is no command start"),
            ("probe --json", "--json is not expected here"),
            ("gate -- /bin/true", "--gate is missing"),
            ("gate --gate 1 -- /bin/true", "--gate takes a number from 3 to 2147483647, not 1"),
            ("gate --gate +4 -- /bin/true", "--gate takes a number from 3 to 2147483647, not +4"),
            ("gate --gate 4 --gate 5 -- /bin/true", "--gate is given twice"),
            ("gate --gate 4 /bin/true", "/bin/true is not an option"),
            ("gate --gate 4 -- true", "true is not an absolute path"),
            ("gate --gate 4 --", "PROGRAM is missing"),
            ("enter --read", "--read needs a value"),
            ("enter --read usr -- /x", "--read takes an absolute path, not usr"),
            ("enter --reed /usr -- /x", "there is no option --reed"),
            ("enter --read=/usr -- /x", "there is no option --read=/usr"),
            ("enter --nofile 3 -- /x", "--nofile takes a number from 16 to 1048576, not 3"),
            ("enter --bundle-id 1:-2 -- /x", "--bundle-id takes DEV:INO in decimal, not 1:-2"),
            ("enter --network", "`-- PROGRAM` is missing"),
        ] {
            let refused = parsed(line).unwrap_err();
            assert!(refused.contains(why), "{line:?}: {refused}");
        }
    }
}
