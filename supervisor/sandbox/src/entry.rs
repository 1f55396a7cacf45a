//! The program that the sandbox is for: opened once, hashed, and run from the same descriptor.

use std::ffi::CString;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::libc;
use nix::unistd::{execve, execveat};
use sha2::{Digest, Sha256};

use crate::elf::Elf;
use crate::options::Program;
use crate::report::{Failure, Step};

/// The longest `#!` line that the kernel reads.
const SHEBANG_MAX: usize = 256;

/// A program that is about to run.
pub(crate) struct Entry<'a> {
    program: &'a Program,
    /// Open before Landlock stands, so that a failure can be explained even where reading is not allowed later.
    file: Option<File>,
    /// What it was found to be, where the caller asked.
    verified: Option<Verified>,
}

impl<'a> Entry<'a> {
    /// Opens the program; with a digest, only an ELF file with exactly these bytes will do.
    pub(crate) fn open(program: &'a Program, expected: Option<[u8; 32]>) -> Result<Entry<'a>, Failure> {
        let opened = open(path(program));
        match expected {
            None => Ok(Entry { program, file: opened.ok(), verified: None }),
            Some(expected) => {
                let file = opened.map_err(|error| failure(program, &error, "cannot be opened"))?;
                let verified = Verified::check(program, &file, expected)?;
                Ok(Entry { program, file: Some(file), verified: Some(verified) })
            }
        }
    }

    /// Becomes the program. What it returns is why it did not.
    pub(crate) fn exec(&self) -> Failure {
        let env = environment();
        let result = match (&self.file, &self.verified) {
            (Some(file), Some(verified)) => {
                if !verified.still(file) {
                    let message = format!("{} changed after it was verified", path(self.program).display());
                    return Failure::new(Step::Entry, None, message);
                }
                // By the descriptor: the name may stand for another file by now.
                execveat(file, c"", &self.program.argv, &env, AtFlags::AT_EMPTY_PATH)
            }
            _ => execve(&self.program.path, &self.program.argv, &env),
        };
        let Err(errno) = result;
        Failure::explained(Step::Exec, errno, explain(path(self.program), self.file.as_ref(), errno))
    }
}

/// A file's digest, and what shows that it may have been written to since.
struct Verified {
    sha256: [u8; 32],
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Verified {
    /// The file is a program of this machine and has exactly the expected bytes.
    fn check(program: &Program, file: &File, expected: [u8; 32]) -> Result<Verified, Failure> {
        let name = path(program).display();
        let unreadable = |error: io::Error| failure(program, &error, "cannot be read");
        let metadata = file.metadata().map_err(unreadable)?;
        if !metadata.is_file() {
            return Err(Failure::new(Step::Entry, None, format!("{name} is not a regular file")));
        }
        let found = sha256(file).map_err(unreadable)?;
        if found != expected {
            let message = format!("{name} is not what was verified: its SHA-256 is {}", hex(&found));
            return Err(Failure::new(Step::Entry, None, message));
        }
        let elf = Elf::read(file).map_err(|error| {
            let message = format!("{name} is not an ELF program that can run here: {error}");
            Failure::explained(Step::Entry, Errno::ENOEXEC, message)
        })?;
        elf.check_machine()
            .map_err(|error| Failure::explained(Step::Entry, Errno::ENOEXEC, format!("{name} {error}")))?;
        Ok(Verified::at(found, &metadata))
    }

    fn at(sha256: [u8; 32], metadata: &Metadata) -> Verified {
        Verified {
            sha256,
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether it is still so. Times move for harmless reasons too, such as the loss of a name; then the bytes decide.
    fn still(&self, file: &File) -> bool {
        let Ok(metadata) = file.metadata() else { return false };
        let now = Verified::at(self.sha256, &metadata);
        (now.modified, now.changed) == (self.modified, self.changed)
            || sha256(file).is_ok_and(|found| found == self.sha256)
    }
}

fn path(program: &Program) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(program.path.to_bytes()))
}

fn open(path: &Path) -> io::Result<File> {
    // Without O_NONBLOCK a named pipe in the program's place would be waited for.
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
}

fn failure(program: &Program, error: &io::Error, what: &str) -> Failure {
    let errno = error.raw_os_error().map(Errno::from_raw);
    Failure::new(Step::Entry, errno, format!("{} {what}", path(program).display()))
}

fn sha256(file: &File) -> io::Result<[u8; 32]> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    let mut offset = 0;
    loop {
        match file.read_at(&mut buffer, offset) {
            Ok(0) => return Ok(hasher.finalize().into()),
            Ok(read) => {
                hasher.update(&buffer[..read]);
                offset += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The environment as bubblewrap made it, but for `PWD`, which it adds by itself when it changes the directory.
fn environment() -> Vec<CString> {
    std::env::vars_os()
        .filter(|(name, _)| name != "PWD")
        .filter_map(|(name, value)| {
            let mut word = name.into_vec();
            word.push(b'=');
            word.extend(value.into_vec());
            CString::new(word).ok()
        })
        .collect()
}

/// What the operator can do about an `execve` that failed: its errno alone names neither loader nor architecture.
fn explain(path: &Path, file: Option<&File>, errno: Errno) -> String {
    let name = path.display();
    let needs = file.and_then(needed);
    match (errno, file, needs) {
        (Errno::ENOENT, Some(_), Some((what, needed))) => {
            format!("{name} needs the {what} {}, which is not in the sandbox", needed.display())
        }
        (Errno::ENOENT | Errno::ENOTDIR, None, _) => format!("{name} does not exist in the sandbox"),
        (Errno::ENOEXEC | Errno::ELIBBAD, Some(file), _) => match Elf::read(file) {
            Ok(elf) => match elf.check_machine() {
                Err(error) => format!("{name} {error}"),
                Ok(()) => format!("{name} is an ELF program that this kernel does not run"),
            },
            Err(error) => format!("{name} is neither an ELF program nor a script: {error}"),
        },
        (Errno::EACCES, _, Some((what, needed))) => {
            format!("{name}, or the {what} {} that it needs, may not be executed", needed.display())
        }
        (Errno::EACCES, _, None) => format!("{name} may not be executed"),
        (Errno::ETXTBSY, _, _) => format!("{name} is open for writing"),
        _ => format!("{name} cannot be run: {}", crate::report::describe(errno)),
    }
}

/// The loader of an ELF file, or the interpreter of a script.
fn needed(file: &File) -> Option<(&'static str, PathBuf)> {
    if let Ok(elf) = Elf::read(file) {
        return elf.loader(file).map(|loader| ("loader", loader));
    }
    let mut start = [0; SHEBANG_MAX];
    let length = file.read_at(&mut start, 0).ok()?;
    let line = start[..length].strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let word = line.split(|byte| matches!(byte, b' ' | b'\t' | b'\r')).find(|word| !word.is_empty())?;
    Some(("interpreter", Path::new(std::ffi::OsStr::from_bytes(word)).to_owned()))
}
