//! The broker's configuration: read once at the start, valid for ever after.
//!
//! Four layers give each key its value, a later one replacing an earlier: the built-in default,
//! the TOML file, the environment (`VARVELOG__SECTION__KEY`), the command line. Everything here
//! is a function of its arguments: file text and environment are given in, nothing is read.
//!
//! [`KEYS`] is the one list of keys. Parsing, bounds, the template and what a running broker
//! reports about itself all come from it, so that they cannot disagree.

mod error;
mod keys;
mod settings;
mod sources;
mod template;
mod value;

#[cfg(test)]
mod tests;

pub use error::ConfigError;
pub use keys::{KEYS, Key};
pub use settings::{
    CheckpointSettings, Config, DiskSettings, Entry, FlushSettings, GroupSettings, LimitSettings,
    LogSettings, ProducerSettings, RetentionSettings, ShutdownSettings, TopicSettings, WalSettings,
};
pub use sources::{FileText, Source, Sources};
pub use template::template;
pub use value::{DiskReserve, Kind, LogFormat, SyncPolicy};
