//! What a plugin asks for and an operator grants, one string each.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::name::{Name, NameError};

/// What may be done below a mounted root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Read only.
    Read,
    /// Read and write.
    Write,
}

/// One thing that a plugin has only when it asked for it and an operator granted it.
///
/// Its text form is what `grant` and `revoke` take and what is stored: `network:host`, `network:<host>`,
/// `mount:<root>:read`, `mount:<root>:write`, `host:<service>`, `secret:<name>`, `env:<NAME>`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Permission {
    /// The host's network, as any program of the machine has it.
    NetworkHost,
    /// Requests to one host, made by plugind for the plugin.
    Network(String),
    /// A root of the operator's configuration, below `/workspace`.
    Mount {
        /// The root's name.
        root: String,
        /// Read, or read and write.
        access: Access,
    },
    /// Calls of one host service.
    Host(String),
    /// One secret, as a file below `/run/credentials`.
    Secret(String),
    /// One variable of the supervisor's environment.
    Env(String),
}

impl Permission {
    /// Whether who has `self` has `other` too: the same, or reading where writing is granted.
    #[must_use]
    pub fn covers(&self, other: &Permission) -> bool {
        match (self, other) {
            (
                Permission::Mount { root, access: Access::Write },
                Permission::Mount { root: other_root, .. },
            ) => root == other_root,
            _ => self == other,
        }
    }

    /// What it means, in one sentence for the person who decides.
    #[must_use]
    pub fn summary(&self) -> String {
        match self {
            Permission::NetworkHost => {
                "use the HOST'S NETWORK, unfiltered: every server this machine reaches, its local services included"
                    .to_owned()
            }
            Permission::Network(host) => format!("send NETWORK requests to {host}, through plugind"),
            Permission::Mount { root, access: Access::Read } => {
                format!("read every file of the root \"{root}\"")
            }
            Permission::Mount { root, access: Access::Write } => {
                format!("read, change and delete every file of the root \"{root}\"")
            }
            Permission::Host(service) => format!("call the host service {service}"),
            Permission::Secret(name) => format!("read the secret \"{name}\""),
            Permission::Env(name) => format!("see the environment variable {name}"),
        }
    }
}

/// What is in force: requested ∩ granted, where a request for writing that was granted for reading only is reading.
#[must_use]
pub fn effective(requested: &BTreeSet<Permission>, granted: &BTreeSet<Permission>) -> BTreeSet<Permission> {
    let both: BTreeSet<Permission> = requested
        .iter()
        .filter(|permission| granted.iter().any(|grant| grant.covers(permission)))
        .chain(granted.iter().filter(|grant| requested.iter().any(|permission| permission.covers(grant))))
        .cloned()
        .collect();
    both.iter()
        .filter(|weak| !both.iter().any(|strong| strong != *weak && strong.covers(weak)))
        .cloned()
        .collect()
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Permission::NetworkHost => f.write_str("network:host"),
            Permission::Network(host) => write!(f, "network:{host}"),
            Permission::Mount { root, access: Access::Read } => write!(f, "mount:{root}:read"),
            Permission::Mount { root, access: Access::Write } => write!(f, "mount:{root}:write"),
            Permission::Host(service) => write!(f, "host:{service}"),
            Permission::Secret(name) => write!(f, "secret:{name}"),
            Permission::Env(name) => write!(f, "env:{name}"),
        }
    }
}

/// A text that is no permission.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PermissionError {
    /// The kind before the first `:` is unknown, or the form behind it is.
    #[error(
        "`{0}` is not a permission: write network:host, network:<host>, mount:<root>:read, mount:<root>:write, \
         host:<service>, secret:<name> or env:<NAME>"
    )]
    Form(String),
    /// The form is right, the name in it is not.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl FromStr for Permission {
    type Err = PermissionError;

    fn from_str(text: &str) -> Result<Permission, PermissionError> {
        let form = || PermissionError::Form(crate::text::clip(text, 80));
        let (kind, rest) = text.split_once(':').ok_or_else(form)?;
        let named = |name: Name| name.check(rest).map(|()| rest.to_owned());
        match kind {
            "network" if rest == "host" => Ok(Permission::NetworkHost),
            "network" => Ok(Permission::Network(named(Name::Host)?)),
            "mount" => {
                let (root, access) = rest.split_once(':').ok_or_else(form)?;
                Name::Root.check(root)?;
                let access = match access {
                    "read" => Access::Read,
                    "write" => Access::Write,
                    _ => return Err(form()),
                };
                Ok(Permission::Mount { root: root.to_owned(), access })
            }
            "host" => Ok(Permission::Host(named(Name::Service)?)),
            "secret" => Ok(Permission::Secret(named(Name::Secret)?)),
            "env" => Ok(Permission::Env(named(Name::Env)?)),
            _ => Err(form()),
        }
    }
}

impl From<Permission> for String {
    fn from(permission: Permission) -> String {
        permission.to_string()
    }
}

impl TryFrom<String> for Permission {
    type Error = PermissionError;

    fn try_from(text: String) -> Result<Permission, PermissionError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(texts: &[&str]) -> BTreeSet<Permission> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn the_text_form_is_read_back() {
        for text in [
            "network:host",
            "network:api.example.org",
            "mount:docs:read",
            "mount:docs:write",
            "host:fs.read",
            "secret:token",
            "env:TZ",
        ] {
            let permission: Permission = text.parse().unwrap();
            assert_eq!(permission.to_string(), text);
            assert_eq!(serde_json::to_value(&permission).unwrap(), text);
            assert_eq!(serde_json::from_value::<Permission>(text.into()).unwrap(), permission);
            assert!(!permission.summary().is_empty());
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "network",
            "network:",
            "network:localhost",
            "network:*",
            "mount:docs",
            "mount:docs:exec",
            "mount:../etc:read",
            "mount:docs:read:write",
            "host:",
            "secret:a/b",
            "env:PATH",
            "env:LD_PRELOAD",
            "all",
            "Network:host",
            " network:host",
        ] {
            assert!(text.parse::<Permission>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_networks_are_told_apart_for_the_reader() {
        assert!(Permission::NetworkHost.summary().contains("HOST'S NETWORK"));
        assert!("network:a.example".parse::<Permission>().unwrap().summary().contains("NETWORK"));
    }

    #[test]
    fn effective_is_the_common_part() {
        let requested = set(&["mount:docs:write", "mount:pics:read", "env:TZ", "network:host"]);
        assert_eq!(effective(&requested, &set(&[])), set(&[]));
        assert_eq!(effective(&requested, &set(&["mount:docs:read"])), set(&["mount:docs:read"]));
        assert_eq!(
            effective(&requested, &set(&["mount:docs:read", "mount:docs:write"])),
            set(&["mount:docs:write"])
        );
        assert_eq!(effective(&requested, &set(&["mount:pics:write"])), set(&["mount:pics:read"]));
        assert_eq!(effective(&requested, &set(&["env:TZ", "secret:token"])), set(&["env:TZ"]));
        assert_eq!(effective(&requested, &set(&["network:a.example"])), set(&[]));
    }
}
