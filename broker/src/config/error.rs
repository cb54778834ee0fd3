//! What is wrong with a configuration, said so that it can be put right.

use std::net::SocketAddr;

/// Why a configuration was refused. Each text names the key, where it was set, and what would
/// be accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The file is not TOML.
    #[error("{place}: not valid TOML: {message}")]
    Syntax {
        /// File and line.
        place: String,
        /// What the parser says.
        message: String,
    },
    /// A key that does not exist.
    #[error("{place}: unknown key `{key}`{}", nearest_hint(nearest.as_deref()))]
    UnknownKey {
        /// File and line, variable or flag.
        place: String,
        /// As written.
        key: String,
        /// The existing key that looks most like it, if one does.
        nearest: Option<String>,
    },
    /// A value that cannot be read or lies out of its bounds.
    #[error("{place}: `{key}` is {shown}: expected {expected}")]
    InvalidValue {
        /// File and line, variable or flag.
        place: String,
        /// The key.
        key: &'static str,
        /// The value as given, quoted; of a secret only that it is one.
        shown: String,
        /// What would be accepted, with bounds and unit.
        expected: String,
    },
    /// Two values that cannot hold together.
    #[error("`{key}` = {value} does not go with `{other_key}` = {other_value}: {rule}")]
    Conflict {
        /// One key.
        key: &'static str,
        /// Its value.
        value: String,
        /// The other key.
        other_key: &'static str,
        /// Its value.
        other_value: String,
        /// What must hold between them.
        rule: &'static str,
    },
    /// An address that other machines can reach, though nothing protects it.
    #[error(
        "`{key}` = {address} can be reached from other machines, and there is neither TLS nor \
         authentication on it: listen on 127.0.0.1, or accept the risk with `insecure = true` \
         (flag --insecure)"
    )]
    Exposed {
        /// `listen` or `http_listen`.
        key: &'static str,
        /// Its value.
        address: SocketAddr,
    },
}

fn nearest_hint(nearest: Option<&str>) -> String {
    match nearest {
        Some(key) => format!(", did you mean `{key}`?"),
        None => String::from("; `varvelog config template` lists every key"),
    }
}
