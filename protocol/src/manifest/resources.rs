//! The bounds of a plugin's scope and of its frames.

use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::frame::{FRAME_MAX_CAP, FRAME_MAX_DEFAULT, FRAME_MAX_FLOOR};

/// The bounds of the plugin's scope and of its frames. Sizes are bytes, written as `"256M"` (K, M, G and T count in
/// 1024s, as systemd's do) or as digits in a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Resources {
    /// `MemoryMax` of its scope; /tmp and /dev/shm count.
    #[serde(with = "size")]
    #[schemars(with = "String", regex(pattern = SIZE))]
    pub memory_max: u64,
    /// `CPUQuota` of its scope in per cent of one CPU, written as `"50%"`.
    #[serde(with = "percent")]
    #[schemars(with = "String", regex(pattern = PERCENT))]
    pub cpu_quota: u32,
    /// `TasksMax` of its scope; the sandbox itself takes three.
    #[schemars(range(min = *Resources::TASKS.start(), max = *Resources::TASKS.end()))]
    pub tasks_max: u32,
    /// The size of /tmp.
    #[serde(with = "size")]
    #[schemars(with = "String", regex(pattern = SIZE))]
    pub tmp_size: u64,
    /// The longest frame in either direction.
    #[serde(with = "size")]
    #[schemars(with = "String", regex(pattern = SIZE))]
    pub frame_max: u64,
    /// How many calls it works on at once.
    #[schemars(range(min = *Resources::IN_FLIGHT.start(), max = *Resources::IN_FLIGHT.end()))]
    pub in_flight: u32,
}

impl Resources {
    /// What `memory_max` may be: less than 16 MiB starts no sandbox.
    pub const MEMORY: RangeInclusive<u64> = 16 << 20..=1 << 40;
    /// What `cpu_quota` may be.
    pub const CPU: RangeInclusive<u32> = 1..=102_400;
    /// What `tasks_max` may be.
    pub const TASKS: RangeInclusive<u32> = 8..=32_768;
    /// What `tmp_size` may be; 0 would mean no bound to tmpfs.
    pub const TMP: RangeInclusive<u64> = 64 << 10..=1 << 40;
    /// What `frame_max` may be.
    pub const FRAME: RangeInclusive<u64> = FRAME_MAX_FLOOR as u64..=FRAME_MAX_CAP as u64;
    /// What `in_flight` may be.
    pub const IN_FLIGHT: RangeInclusive<u32> = 1..=1024;

    /// `frame_max` as the codec takes it.
    #[must_use]
    pub fn frame_limit(&self) -> usize {
        usize::try_from(self.frame_max).unwrap_or(FRAME_MAX_CAP)
    }
}

impl Default for Resources {
    fn default() -> Resources {
        Resources {
            memory_max: 512 << 20,
            cpu_quota: 100,
            tasks_max: 64,
            tmp_size: 64 << 20,
            frame_max: FRAME_MAX_DEFAULT as u64,
            in_flight: 32,
        }
    }
}

const SIZE: &str = "^[1-9][0-9]{0,18}[KMGT]?$";
const PERCENT: &str = "^[1-9][0-9]{0,5}%$";
const UNITS: [(char, u32); 4] = [('T', 40), ('G', 30), ('M', 20), ('K', 10)];

/// Bytes from `"256M"` or `"1000"`.
#[must_use]
pub fn parse_size(text: &str) -> Option<u64> {
    let (digits, shift) = UNITS
        .iter()
        .find_map(|(unit, shift)| text.strip_suffix(*unit).map(|digits| (digits, *shift)))
        .unwrap_or((text, 0));
    whole(digits)?.checked_mul(1 << shift)
}

/// The shortest text that [`parse_size`] reads back.
#[must_use]
pub fn format_size(bytes: u64) -> String {
    UNITS
        .iter()
        .find(|(_, shift)| bytes != 0 && bytes.trailing_zeros() >= *shift)
        .map_or_else(|| bytes.to_string(), |(unit, shift)| format!("{}{unit}", bytes >> shift))
}

/// A number with no sign, space or leading zero: one text for each.
fn whole(digits: &str) -> Option<u64> {
    let plain = !digits.starts_with(['0', '+']) || digits == "0";
    digits.parse().ok().filter(|_| plain)
}

mod size {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
    pub(super) fn serialize<S: Serializer>(bytes: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::format_size(*bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = String::deserialize(deserializer)?;
        super::parse_size(&text)
            .ok_or_else(|| D::Error::custom(format!("`{text}` is not a size: write digits and K, M, G or T")))
    }
}

mod percent {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
    pub(super) fn serialize<S: Serializer>(percent: &u32, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{percent}%"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.strip_suffix('%')
            .and_then(super::whole)
            .and_then(|percent| percent.try_into().ok())
            .ok_or_else(|| D::Error::custom(format!("`{text}` is not a share of a CPU: write e.g. \"50%\"")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_count_as_systemd_does() {
        for (text, bytes) in [("1", 1), ("1000", 1000), ("64K", 65_536), ("256M", 256 << 20), ("1T", 1 << 40)]
        {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
            assert_eq!(parse_size(&format_size(bytes)), Some(bytes));
        }
        assert_eq!(format_size(512 << 20), "512M");
        assert_eq!(format_size(1025), "1025");
        for text in [
            "",
            "M",
            "1.5M",
            "-1",
            "+1",
            "01M",
            " 1M",
            "1 M",
            "1MB",
            "1m",
            "1MM",
            "99999999999999999999",
            "18446744073709551615K",
        ] {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }

    #[test]
    fn defaults_lie_within_the_bounds_and_survive_json() {
        let resources = Resources::default();
        assert!(Resources::MEMORY.contains(&resources.memory_max));
        assert!(Resources::CPU.contains(&resources.cpu_quota));
        assert!(Resources::FRAME.contains(&resources.frame_max));
        let text = serde_json::to_string(&resources).unwrap();
        assert!(text.contains(r#""cpu_quota":"100%""#), "{text}");
        assert_eq!(serde_json::from_str::<Resources>(&text).unwrap(), resources);
    }
}
