//! Sizes and texts that look random and are the same for the same seed.

/// What a text is made of: plain letters mostly, and whatever may be cut in two or be read wrongly.
const PIECES: [&str; 64] = [
    "A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K", "L", "M", "N", "O", "P", "Q", "R", "S", "T", "U",
    "V", "W", "X", "Y", "Z", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p",
    "q", "r", "s", "t", "u", "v", "w", "x", "y", "z", " ", "{", "}", "[", "]", "é", "漢", "🦀", "\\n",
    "\\u00e9", "\\\"", "\\\\",
];

/// Of a thousand requests, so many are up to so many bytes.
const SIZES: [(u64, u64); 5] = [(50, 0), (650, 256), (250, 4 << 10), (45, 32 << 10), (5, 256 << 10)];

/// xorshift64*.
#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        let mut random = Random(seed ^ 0x9e37_79b9_7f4a_7c15);
        random.next();
        random
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 11) % limit.max(1)
    }

    /// The length of a request's text, in bytes.
    pub(super) fn size(&mut self) -> usize {
        let mut rest = self.below(1000);
        for (share, limit) in SIZES {
            if rest < share {
                return usize::try_from(self.below(limit + 1)).unwrap_or(0);
            }
            rest -= share;
        }
        0
    }

    /// Appends the inside of a JSON string of about that length, never more.
    pub(super) fn text(&mut self, into: &mut String, size: usize) {
        let end = into.len() + size;
        loop {
            let mut word = self.next();
            for _ in 0..10 {
                let piece = PIECES[usize::try_from(word % 64).unwrap_or(0)];
                if into.len() + piece.len() > end {
                    return;
                }
                into.push_str(piece);
                word >>= 6;
            }
        }
    }
}

/// A checksum of a text.
pub(super) fn checksum(text: &str) -> u64 {
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let mut words = text.as_bytes().chunks_exact(8);
    let mut sum =
        words.by_ref().fold(mix(1, 0), |sum, word| mix(sum, word.try_into().map_or(0, u64::from_le_bytes)));
    for &byte in words.remainder() {
        sum = mix(sum, u64::from(byte));
    }
    mix(sum, u64::try_from(text.len()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_the_inside_of_a_json_string_and_not_longer_than_asked() {
        let mut random = Random::new(7);
        for size in [0, 1, 2, 3, 100, 5000] {
            let mut text = String::new();
            random.text(&mut text, size);
            assert!(text.len() <= size && text.len() + 6 > size, "{size} {}", text.len());
            serde_json::from_str::<String>(&format!("\"{text}\"")).expect("a JSON string");
        }
    }

    #[test]
    fn a_changed_or_shortened_text_has_another_checksum() {
        let mut random = Random::new(7);
        let mut text = String::new();
        random.text(&mut text, 1000);
        let sum = checksum(&text);
        assert_eq!(sum, checksum(&text.clone()));
        assert_ne!(sum, checksum(&text.replacen(|_| true, "#", 1)));
        assert_ne!(sum, checksum(text.strip_suffix(|_: char| true).unwrap()));
    }

    #[test]
    fn most_sizes_are_small_and_some_are_large() {
        let mut random = Random::new(1);
        let sizes: Vec<usize> = (0..20_000).map(|_| random.size()).collect();
        assert!(sizes.contains(&0));
        assert!(sizes.iter().filter(|&&size| size <= 256).count() > 12_000);
        assert!(sizes.iter().any(|&size| size > 100 << 10));
        assert!(sizes.iter().all(|&size| size <= 256 << 10));
    }
}
