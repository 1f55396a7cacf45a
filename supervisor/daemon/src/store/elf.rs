//! Whether a bundle's program can run on this machine, told before it is tried.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use plugind_protocol::manifest::Runtime;
use plugind_protocol::{Error, Kind};

/// `e_machine` of this build's architecture (ELF specification).
const MACHINE: u16 = if cfg!(target_arch = "x86_64") {
    62
} else if cfg!(target_arch = "aarch64") {
    183
} else if cfg!(target_arch = "riscv64") {
    243
} else {
    0
};

/// The program header type of a requested loader.
const PT_INTERP: u32 = 3;

/// Checks the program `path`, called `name` in the manifest.
pub(super) fn check(path: &Path, name: &str, runtime: Runtime) -> Result<(), Error> {
    let wrong = |what: String, hint: &str| Err(Error::new(Kind::InvalidManifest, what, hint));
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| {
        let mode = file.metadata()?.permissions().mode();
        file.take(64 * 1024).read_to_end(&mut head)?;
        Ok(mode)
    });
    let mode = match read {
        Ok(mode) => mode,
        Err(cause) => {
            return wrong(
                format!("exec: {name} is not in the bundle: {cause}"),
                "add the program to the bundle",
            );
        }
    };
    if mode & 0o100 == 0 {
        return wrong(format!("exec: {name} is not executable"), "chmod +x it, then pack the bundle again");
    }
    if head.starts_with(b"#!") {
        return wrong(
            format!("exec: {name} is a script, and a bundle's program must be an ELF file"),
            "name the interpreter: [\"/usr/bin/python3\", \"main.py\"], and let the operator allow it",
        );
    }
    if !head.starts_with(b"\x7fELF") || head.len() < 64 {
        return wrong(format!("exec: {name} is not an ELF file"), "build it for Linux");
    }
    let machine = number(&head, 18, 2);
    if head[4] != 2 || head[5] != 1 || machine != Some(u64::from(MACHINE)) {
        return wrong(
            format!(
                "exec: {name} is built for another architecture ({}) than this machine's ({})",
                describe(&head),
                std::env::consts::ARCH
            ),
            "install the bundle that is made for this architecture",
        );
    }
    if runtime == Runtime::Static && has_loader(&head) {
        return wrong(
            format!(
                "exec: {name} is linked dynamically, and runtime is \"static\", so there would be no /usr"
            ),
            "link it statically, or set \"runtime\": \"system\"",
        );
    }
    Ok(())
}

/// Whether a 64-bit little-endian ELF file asks for a loader.
fn has_loader(head: &[u8]) -> bool {
    let (Some(offset), Some(size), Some(count)) =
        (number(head, 32, 8), number(head, 54, 2), number(head, 56, 2))
    else {
        return false;
    };
    (0..count).any(|index| {
        let at = offset.saturating_add(index * size);
        usize::try_from(at).ok().and_then(|at| number(head, at, 4)) == Some(u64::from(PT_INTERP))
    })
}

fn number(head: &[u8], at: usize, length: usize) -> Option<u64> {
    let bytes = head.get(at..at.checked_add(length)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn describe(head: &[u8]) -> String {
    let name = match number(head, 18, 2) {
        Some(3) => "i386",
        Some(40) => "arm",
        Some(62) => "x86_64",
        Some(183) => "aarch64",
        Some(243) => "riscv64",
        _ => "unknown",
    };
    let bits = if head[4] == 1 { "32" } else { "64" };
    format!("{name}, {bits} bit")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(bytes: &[u8], mode: u32, runtime: Runtime) -> String {
        let path = std::env::temp_dir().join(format!(
            "plugind-elf-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let outcome = check(&path, "bin/x", runtime);
        std::fs::remove_file(&path).unwrap();
        outcome.map_or_else(|error| error.message, |()| String::new())
    }

    fn elf(machine: u8, program_type: u8) -> Vec<u8> {
        let mut bytes = vec![0; 120];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[18] = machine;
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = 1;
        bytes[64] = program_type;
        bytes
    }

    #[test]
    fn only_a_program_of_this_architecture_passes() {
        let ours = u8::try_from(MACHINE).unwrap();
        assert_eq!(message(&elf(ours, 1), 0o755, Runtime::Static), "");
        assert!(message(&elf(ours + 1, 1), 0o755, Runtime::Static).contains("another architecture"));
        assert!(message(&elf(ours, 3), 0o755, Runtime::Static).contains("linked dynamically"));
        assert_eq!(message(&elf(ours, 3), 0o755, Runtime::System), "");
        assert!(message(&elf(ours, 1), 0o644, Runtime::Static).contains("not executable"));
        assert!(message(b"#!/bin/sh\n", 0o755, Runtime::System).contains("script"));
        assert!(message(b"MZ", 0o755, Runtime::System).contains("not an ELF"));
    }
}
