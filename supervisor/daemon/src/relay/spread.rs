//! A hash for keys that need no secret: our own numbers, and a caller's ids within its own channel.

use std::hash::Hasher;

/// Fibonacci hashing, eight bytes at a time. Who chooses keys to collide slows down its own channel, and that has a
/// bound on its calls.
#[derive(Default)]
pub(crate) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..piece.len()].copy_from_slice(piece);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // The table looks at the upper bits, too: after the turn they depend on all of the number.
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}
