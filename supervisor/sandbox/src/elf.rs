//! As much of an ELF file's headers as it takes to say why a program cannot run.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// The machine that this binary is built for.
const THIS_MACHINE: u16 = if cfg!(target_arch = "x86_64") {
    62
} else if cfg!(target_arch = "aarch64") {
    183
} else if cfg!(target_arch = "riscv64") {
    243
} else {
    0
};

const EXECUTABLE: u16 = 2;
const SHARED_OBJECT: u16 = 3;
const INTERPRETER: u32 = 3;
const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
/// Paths are no longer than this, so neither is a loader's.
const PATH_MAX: usize = 4096;
/// More program headers than any linker writes.
const SEGMENTS_MAX: u64 = 512;

/// The header of a 64-bit little-endian program.
#[derive(Debug)]
pub(crate) struct Elf {
    machine: u16,
    segments_at: u64,
    segments: u64,
}

impl Elf {
    /// Reads the header; the error says what the file is instead.
    pub(crate) fn read(file: &File) -> Result<Elf, String> {
        let mut header = [0; HEADER];
        let length = fill(file, &mut header, 0);
        if length == 0 {
            return Err("it is empty".into());
        }
        if header.starts_with(b"#!") {
            return Err("it is a script".into());
        }
        if !header.starts_with(b"\x7fELF") {
            return Err("it does not begin like one".into());
        }
        if length < HEADER {
            return Err("it ends within its header".into());
        }
        if header[4] != 2 || header[5] != 1 {
            let (class, order) =
                (if header[4] == 1 { 32 } else { 64 }, if header[5] == 2 { "big" } else { "little" });
            return Err(format!("it is a {class}-bit {order}-endian program"));
        }
        if !matches!(u16_at(&header, 16), EXECUTABLE | SHARED_OBJECT) {
            return Err("it is an ELF file of another kind: an object file or a core".into());
        }
        if usize::from(u16_at(&header, 54)) != PROGRAM_HEADER {
            return Err("its program headers have a wrong size".into());
        }
        Ok(Elf {
            machine: u16_at(&header, 18),
            segments_at: u64_at(&header, 32),
            segments: u64::from(u16_at(&header, 56)),
        })
    }

    /// Whether it is for this machine; the error ends a sentence that begins with the file's name.
    pub(crate) fn check_machine(&self) -> Result<(), String> {
        if self.machine == THIS_MACHINE {
            return Ok(());
        }
        Err(format!("is built for {}, and this machine is {}", machine(self.machine), machine(THIS_MACHINE)))
    }

    /// The dynamic loader that the program asks for; a static one asks for none.
    pub(crate) fn loader(&self, file: &File) -> Option<PathBuf> {
        for index in 0..self.segments.min(SEGMENTS_MAX) {
            let mut header = [0; PROGRAM_HEADER];
            let at = self.segments_at.checked_add(index * PROGRAM_HEADER as u64)?;
            if fill(file, &mut header, at) < PROGRAM_HEADER {
                return None;
            }
            if u32_at(&header, 0) == INTERPRETER {
                let mut path = vec![0; PATH_MAX.min(usize::try_from(u64_at(&header, 32)).ok()?)];
                let length = fill(file, &mut path, u64_at(&header, 8));
                path.truncate(length);
                path.truncate(path.iter().position(|byte| *byte == 0).unwrap_or(length));
                return Some(PathBuf::from(OsString::from_vec(path)));
            }
        }
        None
    }
}

/// Reads until the buffer is full or the file ends.
fn fill(file: &File, buffer: &mut [u8], at: u64) -> usize {
    let mut length = 0;
    while length < buffer.len() {
        match file.read_at(&mut buffer[length..], at.saturating_add(length as u64)) {
            Ok(0) | Err(_) => break,
            Ok(read) => length += read,
        }
    }
    length
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

fn machine(number: u16) -> String {
    let name = match number {
        3 => "x86 (32 bit)",
        8 => "MIPS",
        21 => "PowerPC 64",
        22 => "S/390",
        40 => "ARM (32 bit)",
        62 => "x86-64",
        183 => "AArch64",
        243 => "RISC-V",
        258 => "LoongArch",
        other => return format!("machine {other}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: &[u8]) -> File {
        use std::io::Write;
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("plugind-elf-{}-{number}", std::process::id()));
        File::create(&path).unwrap().write_all(bytes).unwrap();
        let opened = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        opened
    }

    #[test]
    fn this_very_program_is_for_this_machine() {
        let own = File::open("/proc/self/exe").unwrap();
        Elf::read(&own).unwrap().check_machine().unwrap();
    }

    #[test]
    fn what_is_no_program_is_named() {
        let mut other_class = vec![0; 64];
        other_class[..6].copy_from_slice(b"\x7fELF\x01\x01");
        for (bytes, said) in [
            (&b""[..], "it is empty"),
            (b"#!/bin/sh\n", "it is a script"),
            (b"MZ", "it does not begin like one"),
            (b"\x7fELF\x02\x01", "it ends within its header"),
            (&other_class, "it is a 32-bit little-endian program"),
        ] {
            assert_eq!(Elf::read(&file(bytes)).unwrap_err(), said);
        }
    }

    #[test]
    fn headers_that_lie_are_survived() {
        let mut header = vec![0; 64];
        header[..6].copy_from_slice(b"\x7fELF\x02\x01");
        header[16] = 2;
        header[18] = 183;
        header[32..40].copy_from_slice(&(u64::MAX - 8).to_le_bytes());
        header[54] = 56;
        header[56..58].copy_from_slice(&u16::MAX.to_le_bytes());
        let file = file(&header);
        let elf = Elf::read(&file).unwrap();
        assert_eq!(elf.loader(&file), None);
        if cfg!(target_arch = "x86_64") {
            assert_eq!(elf.check_machine().unwrap_err(), "is built for AArch64, and this machine is x86-64");
        }
    }
}
