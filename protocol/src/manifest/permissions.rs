//! What a plugin asks for.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::MOUNTS_MAX;
use super::validate::LIST_MAX;
use crate::name::pattern;
use crate::permission::{Access, Permission};

/// What the plugin asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Permissions {
    /// Network; none without it.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Network")]
    pub network: Option<Network>,
    /// Folders that the operator's configuration names.
    #[schemars(length(max = MOUNTS_MAX))]
    pub mounts: Vec<Mount>,
    /// Host services.
    #[schemars(length(max = LIST_MAX), extend("uniqueItems" = true), inner(regex(pattern = pattern::COMMAND)))]
    pub host: Vec<String>,
    /// Secrets, each a file below /run/credentials.
    #[schemars(length(max = LIST_MAX), extend("uniqueItems" = true), inner(regex(pattern = pattern::LOCAL)))]
    pub secrets: Vec<String>,
    /// Variables of the supervisor's environment.
    #[schemars(length(max = LIST_MAX), extend("uniqueItems" = true), inner(regex(pattern = pattern::ENV)))]
    pub env: Vec<String>,
}

/// The network that a plugin asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "NetworkForm", into = "NetworkForm")]
pub enum Network {
    /// The host's network, unfiltered: `{"mode": "host"}`.
    Host,
    /// Requests to these hosts, made by plugind: `{"hosts": […]}`.
    Hosts(Vec<String>),
}

/// A named root of the operator's configuration, below `/workspace`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// The root's name.
    #[schemars(regex(pattern = pattern::LOCAL))]
    pub root: String,
    /// What the plugin does there.
    pub access: Access,
}

impl Permissions {
    /// Each of them as one permission.
    #[must_use]
    pub fn requested(&self) -> BTreeSet<Permission> {
        let mut requested = BTreeSet::new();
        match &self.network {
            None => {}
            Some(Network::Host) => {
                requested.insert(Permission::NetworkHost);
            }
            Some(Network::Hosts(hosts)) => {
                requested.extend(hosts.iter().cloned().map(Permission::Network));
            }
        }
        requested.extend(
            self.mounts
                .iter()
                .map(|mount| Permission::Mount { root: mount.root.clone(), access: mount.access }),
        );
        requested.extend(self.host.iter().cloned().map(Permission::Host));
        requested.extend(self.secrets.iter().cloned().map(Permission::Secret));
        requested.extend(self.env.iter().cloned().map(Permission::Env));
        requested
    }
}

/// Refuses `null`: what is not asked for is left out.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Network>, D::Error> {
    Network::deserialize(deserializer).map(Some)
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NetworkForm {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hosts: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<Mode>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Host,
}

impl TryFrom<NetworkForm> for Network {
    type Error = &'static str;

    fn try_from(form: NetworkForm) -> Result<Network, Self::Error> {
        match (form.hosts, form.mode) {
            (Some(hosts), None) => Ok(Network::Hosts(hosts)),
            (None, Some(Mode::Host)) => Ok(Network::Host),
            _ => Err("write either `hosts` or `mode`"),
        }
    }
}

impl From<Network> for NetworkForm {
    fn from(network: Network) -> NetworkForm {
        match network {
            Network::Host => NetworkForm { hosts: None, mode: Some(Mode::Host) },
            Network::Hosts(hosts) => NetworkForm { hosts: Some(hosts), mode: None },
        }
    }
}

impl JsonSchema for Network {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Network".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "The network that a plugin asks for.",
            "oneOf": [
                {
                    "description": "Requests to these hosts, made by plugind.",
                    "type": "object",
                    "properties": {
                        "hosts": {
                            "type": "array",
                            "items": { "type": "string", "pattern": pattern::HOST },
                            "minItems": 1,
                            "maxItems": LIST_MAX,
                            "uniqueItems": true,
                        },
                    },
                    "required": ["hosts"],
                    "additionalProperties": false,
                },
                {
                    "description": "The host's network, unfiltered.",
                    "type": "object",
                    "properties": { "mode": { "const": "host" } },
                    "required": ["mode"],
                    "additionalProperties": false,
                },
            ],
        })
    }
}
