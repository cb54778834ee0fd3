//! The layers: where values come from, and what each layer sets.

use std::collections::BTreeMap;
use std::fmt;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::ConfigError;
use super::keys::Key;

const ENVIRONMENT_PREFIX: &str = "VARVELOG__";

/// Which layer a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Built in.
    Default,
    /// The TOML file.
    File,
    /// A variable.
    Environment,
    /// The command line.
    Flag,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::File => "file",
            Self::Environment => "environment",
            Self::Flag => "flag",
        })
    }
}

/// A configuration file that was read.
#[derive(Clone, Debug)]
pub struct FileText {
    /// Its name, for messages.
    pub name: String,
    /// What is in it.
    pub text: String,
}

/// All that a configuration is made of.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The file, if there is one.
    pub file: Option<FileText>,
    /// All variables; those that do not begin with `VARVELOG__` are passed over.
    pub environment: Vec<(String, String)>,
    /// Key and value of each flag; of a key given twice the last counts.
    pub flags: Vec<(String, String)>,
}

/// A value as written, and where.
#[derive(Clone, Debug)]
pub(super) struct Raw {
    pub(super) text: String,
    pub(super) source: Source,
    /// For messages: file and line, variable or flag.
    pub(super) place: String,
}

/// The last word on each key that a layer sets.
pub(super) type RawValues = BTreeMap<&'static str, Raw>;

/// Lays the layers over each other. Every key of every layer must exist.
pub(super) fn gather(sources: &Sources) -> Result<RawValues, ConfigError> {
    let mut values = RawValues::new();
    if let Some(file) = &sources.file {
        read_file(file, &mut values)?;
    }
    for (variable, text) in &sources.environment {
        let Some(path) = variable.strip_prefix(ENVIRONMENT_PREFIX) else {
            continue;
        };
        let name = path.to_lowercase().replace("__", ".");
        set(
            &mut values,
            &name,
            text.clone(),
            Source::Environment,
            variable.clone(),
        )?;
    }
    for (name, text) in &sources.flags {
        set(
            &mut values,
            name,
            text.clone(),
            Source::Flag,
            String::from("command line"),
        )?;
    }
    Ok(values)
}

fn set(
    values: &mut RawValues,
    name: &str,
    text: String,
    source: Source,
    place: String,
) -> Result<(), ConfigError> {
    let Some(key) = Key::find(name) else {
        let nearest = Key::nearest(name).map(str::to_owned);
        return Err(ConfigError::UnknownKey {
            place,
            key: name.to_owned(),
            nearest,
        });
    };
    values.insert(
        key.name,
        Raw {
            text,
            source,
            place,
        },
    );
    Ok(())
}

fn read_file(file: &FileText, values: &mut RawValues) -> Result<(), ConfigError> {
    let table = DeTable::parse(&file.text).map_err(|error| ConfigError::Syntax {
        place: place(file, error.span().map_or(0, |span| span.start)),
        message: error.message().to_owned(),
    })?;
    read_table(file, "", table.get_ref(), values)
}

/// Depth is bounded: a table at a path that is no section of a known key is refused at once.
fn read_table(
    file: &FileText,
    prefix: &str,
    table: &DeTable<'_>,
    values: &mut RawValues,
) -> Result<(), ConfigError> {
    for (name, value) in table {
        let path = format!("{prefix}{}", name.get_ref());
        let section = format!("{path}.");
        let place = place(file, name.span().start);
        match value.get_ref() {
            DeValue::Table(inner) if is_section(&section) => {
                read_table(file, &section, inner, values)?;
            }
            DeValue::Table(inner) => return Err(unknown_section(place, &section, inner)),
            DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_) => {
                set(values, &path, scalar_text(value), Source::File, place)?;
            }
        }
    }
    Ok(())
}

fn is_section(section: &str) -> bool {
    super::KEYS.iter().any(|key| key.name.starts_with(section))
}

/// Names the first key in an unknown section, since that is what was meant to be set.
fn unknown_section(place: String, section: &str, inner: &DeTable<'_>) -> ConfigError {
    let key = match inner.keys().next() {
        Some(first) => format!("{section}{}", first.get_ref()),
        None => section.trim_end_matches('.').to_owned(),
    };
    let nearest = Key::nearest(&key).map(str::to_owned);
    ConfigError::UnknownKey {
        place,
        key,
        nearest,
    }
}

/// An array or a date is given as text that no kind accepts, so that the error names the bound.
fn scalar_text(value: &Spanned<DeValue<'_>>) -> String {
    match value.get_ref() {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) if number.radix() == 10 => number.to_string(),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or_else(|_| number.to_string(), |n| n.to_string()),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(on) => on.to_string(),
        DeValue::Datetime(date) => date.to_string(),
        DeValue::Array(_) => String::from("[...]"),
        DeValue::Table(_) => String::from("{...}"),
    }
}

fn place(file: &FileText, position: usize) -> String {
    let line = file
        .text
        .get(..position)
        .unwrap_or_default()
        .matches('\n')
        .count()
        + 1;
    format!("{}:{line}", file.name)
}
