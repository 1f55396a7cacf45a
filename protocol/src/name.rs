//! The names that plugind knows, each with its rule.

use std::fmt;

/// What a name is the name of; each has its own rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Name {
    /// A plugin: part of unit names, D-Bus paths and folder names.
    Plugin,
    /// A command of a plugin.
    Command,
    /// A named root of the operator's configuration.
    Root,
    /// A secret; it is a file name below `/run/credentials`.
    Secret,
    /// A variable of the environment.
    Env,
    /// A host service.
    Service,
    /// A kind of contribution.
    Contribution,
    /// A network host: a DNS name.
    Host,
}

/// A text that is not the name it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {}: {}", .kind, .kind.rule())]
pub struct NameError {
    /// What it should have named.
    pub kind: Name,
    /// The text, shortened and escaped.
    pub text: String,
}

impl Name {
    /// Whether `text` is such a name.
    pub fn check(self, text: &str) -> Result<(), NameError> {
        let valid = match self {
            Name::Plugin => {
                shaped(text, 40, lower, |byte| lower(byte) || digit(byte) || byte == b'-')
                    && !text.ends_with('-')
            }
            Name::Command | Name::Service | Name::Contribution => {
                shaped(text, 64, lower, |byte| lower(byte) || digit(byte) || b"-_.".contains(&byte))
            }
            Name::Root | Name::Secret => shaped(
                text,
                64,
                |byte| lower(byte) || digit(byte),
                |byte| lower(byte) || digit(byte) || b"-_".contains(&byte),
            ),
            Name::Env => {
                shaped(
                    text,
                    64,
                    |byte| upper(byte) || byte == b'_',
                    |byte| upper(byte) || digit(byte) || byte == b'_',
                ) && !reserved_env(text)
            }
            Name::Host => is_host(text),
        };
        if valid { Ok(()) } else { Err(NameError { kind: self, text: crate::text::clip(text, 80) }) }
    }

    /// The rule in words.
    #[must_use]
    pub fn rule(self) -> &'static str {
        match self {
            Name::Plugin => "up to 40 of a-z, 0-9 and `-`, beginning with a letter and not ending in `-`",
            Name::Command | Name::Service | Name::Contribution => {
                "up to 64 of a-z, 0-9, `-`, `_` and `.`, beginning with a letter"
            }
            Name::Root | Name::Secret => {
                "up to 64 of a-z, 0-9, `-` and `_`, beginning with a letter or a digit"
            }
            Name::Env => {
                "up to 64 of A-Z, 0-9 and `_`, not beginning with a digit, and none that plugind, the loader or the \
                 session gives a meaning (PATH, HOME, LD_*, PLUGIND_*, DBUS_* …)"
            }
            Name::Host => "a DNS name in lower case with at least one dot, no address, port or wildcard",
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Name::Plugin => "plugin name",
            Name::Command => "command name",
            Name::Root => "root name",
            Name::Secret => "secret name",
            Name::Env => "grantable environment name",
            Name::Service => "host service name",
            Name::Contribution => "contribution kind",
            Name::Host => "network host",
        })
    }
}

/// `plugin.command`, as callers write it; a plugin's name holds no dot, so the first one parts the two.
#[must_use]
pub fn split_qualified(text: &str) -> Option<(&str, &str)> {
    let (plugin, command) = text.split_once('.')?;
    (Name::Plugin.check(plugin).is_ok() && Name::Command.check(command).is_ok()).then_some((plugin, command))
}

/// The last element of the plugin's D-Bus object path, where `-` is not allowed.
#[must_use]
pub fn dbus_label(name: &str) -> String {
    name.replace('-', "_2d")
}

/// The plugin's name from [`dbus_label`].
#[must_use]
pub fn from_dbus_label(label: &str) -> Option<String> {
    let name = label.replace("_2d", "-");
    Name::Plugin.check(&name).is_ok().then_some(name)
}

fn shaped(text: &str, max: usize, first: fn(u8) -> bool, rest: fn(u8) -> bool) -> bool {
    let Some((head, tail)) = text.as_bytes().split_first() else { return false };
    text.len() <= max && first(*head) && tail.iter().all(|byte| rest(*byte))
}

fn lower(byte: u8) -> bool {
    byte.is_ascii_lowercase()
}

fn upper(byte: u8) -> bool {
    byte.is_ascii_uppercase()
}

fn digit(byte: u8) -> bool {
    byte.is_ascii_digit()
}

/// Names that would change what plugind, the loader or the C library does, or hand over the caller's session.
fn reserved_env(name: &str) -> bool {
    const PREFIXES: [&str; 9] =
        ["LD_", "PLUGIND_", "GLIBC_", "MALLOC_", "DBUS_", "SYSTEMD_", "LISTEN_", "SUDO_", "SSH_"];
    const NAMES: [&str; 19] = [
        "PATH",
        "HOME",
        "LANG",
        "TMPDIR",
        "PWD",
        "OLDPWD",
        "IFS",
        "ENV",
        "BASH_ENV",
        "GCONV_PATH",
        "LOCPATH",
        "NLSPATH",
        "HOSTALIASES",
        "RES_OPTIONS",
        "RESOLV_HOST_CONF",
        "NOTIFY_SOCKET",
        "WATCHDOG_PID",
        "CREDENTIALS_DIRECTORY",
        "XDG_RUNTIME_DIR",
    ];
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// A dot is required so that no host can be called `host`, which means the host's whole network, or `localhost`; a
/// last label of digits only would be read as an IPv4 address.
fn is_host(text: &str) -> bool {
    let labels: Vec<&str> = text.split('.').collect();
    text.len() <= 253
        && labels.len() >= 2
        && labels.iter().all(|label| {
            shaped(
                label,
                63,
                |byte| lower(byte) || digit(byte),
                |byte| lower(byte) || digit(byte) || byte == b'-',
            ) && !label.ends_with('-')
        })
        && labels.last().is_some_and(|last| !last.starts_with(|first: char| first.is_ascii_digit()))
}

/// The rules as regular expressions, for the manifest's JSON Schema.
pub(crate) mod pattern {
    pub(crate) const PLUGIN: &str = "^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$";
    pub(crate) const COMMAND: &str = "^[a-z][a-z0-9_.-]{0,63}$";
    pub(crate) const LOCAL: &str = "^[a-z0-9][a-z0-9_-]{0,63}$";
    pub(crate) const ENV: &str = "^[A-Z_][A-Z0-9_]{0,63}$";
    pub(crate) const HOST: &str = "^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?$";
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::string::string_regex;

    use super::*;

    #[test]
    fn each_rule_holds_at_its_edges() {
        let longest = "a".repeat(40);
        let too_long = "a".repeat(41);
        for (kind, good, bad) in [
            (
                Name::Plugin,
                vec!["a", "text-stats2", &longest],
                vec!["", "A", "2a", "a-", "a_b", "a.b", "é", &too_long],
            ),
            (Name::Command, vec!["a", "a.b_c-d"], vec!["", ".a", "-a", "1a", "a b", "A"]),
            (Name::Root, vec!["docs", "0", "a_b-c"], vec!["", "_a", "-a", "a.b", "a/b", ".."]),
            (Name::Secret, vec!["token"], vec!["Token", "a:b"]),
            (
                Name::Env,
                vec!["TZ", "_X9", "LC_ALL"],
                vec!["", "tz", "9A", "PATH", "LD_PRELOAD", "PLUGIND_NAME", "A=B"],
            ),
            (
                Name::Host,
                vec!["api.example.org", "a.b2", "xn--nxasmq6b.example"],
                vec![
                    "",
                    "host",
                    "localhost",
                    "10.0.0.1",
                    "a.b.",
                    ".a.b",
                    "*.a.b",
                    "a.b:80",
                    "A.b",
                    "-a.b",
                    "a-.b",
                    "1.2",
                ],
            ),
        ] {
            for text in good {
                assert_eq!(kind.check(text), Ok(()), "{text}");
            }
            for text in bad {
                assert!(kind.check(text).is_err(), "{kind}: {text}");
            }
        }
    }

    #[test]
    fn an_error_says_what_was_expected() {
        let text = Name::Plugin.check("A\u{1b}").unwrap_err().to_string();
        assert!(text.starts_with("`A\\u{1b}` is not a plugin name: up to 40 of"), "{text}");
    }

    #[test]
    fn a_qualified_name_is_parted_at_its_first_dot() {
        assert_eq!(split_qualified("textstats.count"), Some(("textstats", "count")));
        assert_eq!(split_qualified("a-b.c.d"), Some(("a-b", "c.d")));
        for text in ["textstats", "textstats.", ".count", "a.B", "A.b"] {
            assert_eq!(split_qualified(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_the_schema_accepts_is_accepted(
            plugin in string_regex(pattern::PLUGIN.trim_matches(['^', '$'])).unwrap(),
            command in string_regex(pattern::COMMAND.trim_matches(['^', '$'])).unwrap(),
            local in string_regex(pattern::LOCAL.trim_matches(['^', '$'])).unwrap(),
        ) {
            prop_assert_eq!(Name::Plugin.check(&plugin), Ok(()));
            prop_assert_eq!(Name::Command.check(&command), Ok(()));
            prop_assert_eq!(Name::Root.check(&local), Ok(()));
            prop_assert_eq!(from_dbus_label(&dbus_label(&plugin)), Some(plugin));
        }
    }
}
