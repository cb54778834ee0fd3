//! Names, parsed once and valid for ever.

use std::fmt;
use std::sync::Arc;

/// Longest topic name, derived ones included.
pub const TOPIC_NAME_BYTES_MAX: usize = 249;
/// How the names of dead-letter topics end.
pub const DEAD_LETTER_SUFFIX: &str = ".dlq";
/// Longest group name.
pub const GROUP_NAME_BYTES_MAX: usize = 64;

/// Why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It is empty.
    #[error("a name must not be empty")]
    Empty,
    /// It is too long.
    #[error("a name of {got} bytes is too long: at most {limit}")]
    TooLong {
        /// Its length in bytes.
        got: usize,
        /// The most allowed.
        limit: usize,
    },
    /// A character is not allowed.
    #[error("the name {name:?} has a character outside [{allowed}]")]
    Character {
        /// The name, cut to 64 characters.
        name: String,
        /// The characters allowed.
        allowed: &'static str,
    },
    /// `.` or `..`.
    #[error("the name {name:?} is reserved")]
    Reserved {
        /// The name.
        name: String,
    },
}

/// Name of a topic: 1 to 249 of `[A-Za-z0-9._-]`, not `.` or `..`. Derived names are topic names
/// too.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicName(Arc<str>);

impl TopicName {
    /// Checks and takes a name.
    pub fn parse(name: &str) -> Result<Self, NameError> {
        check(name, TOPIC_NAME_BYTES_MAX, true)?;
        if name == "." || name == ".." {
            return Err(NameError::Reserved {
                name: name.to_owned(),
            });
        }
        Ok(Self(name.into()))
    }

    /// The name of the retry topic of `group` on this topic.
    pub fn retry_of(&self, group: &GroupName) -> Result<Self, NameError> {
        Self::parse(&format!("{self}.{group}.retry"))
    }

    /// The name of the dead-letter topic of `group` on this topic.
    pub fn dead_letter_of(&self, group: &GroupName) -> Result<Self, NameError> {
        Self::parse(&format!("{self}.{group}{DEAD_LETTER_SUFFIX}"))
    }

    /// Whether it ends as only the names of retry and dead-letter topics may.
    pub fn is_derived(&self) -> bool {
        self.0.ends_with(".retry") || self.0.ends_with(DEAD_LETTER_SUFFIX)
    }

    /// The name itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Name of a group: 1 to 64 of `[A-Za-z0-9_-]`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupName(Arc<str>);

impl GroupName {
    /// Checks and takes a name.
    pub fn parse(name: &str) -> Result<Self, NameError> {
        check(name, GROUP_NAME_BYTES_MAX, false)?;
        Ok(Self(name.into()))
    }

    /// The name itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn check(name: &str, limit: usize, dots: bool) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name.len() > limit {
        return Err(NameError::TooLong {
            got: name.len(),
            limit,
        });
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-' || (dots && c == '.');
    if name.chars().all(allowed) {
        return Ok(());
    }
    Err(NameError::Character {
        name: name.chars().take(64).collect(),
        allowed: if dots { "A-Za-z0-9._-" } else { "A-Za-z0-9_-" },
    })
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &self.0)
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_name_takes_249_of_its_characters_and_no_more() {
        assert!(TopicName::parse(&"a".repeat(249)).is_ok());
        assert_eq!(
            TopicName::parse(&"a".repeat(250)),
            Err(NameError::TooLong {
                got: 250,
                limit: 249
            })
        );
        assert!(TopicName::parse("A.z_0-9").is_ok());
    }

    #[test]
    fn names_that_could_walk_the_disk_or_confuse_a_reader_are_refused() {
        for bad in ["", ".", "..", "a/b", "a b", "a\0", "ä"] {
            assert!(TopicName::parse(bad).is_err(), "{bad:?}");
        }
        for bad in ["", "a.b", "a/b", "ä", &"a".repeat(65)] {
            assert!(GroupName::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn derived_names_are_checked_with_their_suffix() {
        let group = GroupName::parse("email").unwrap();
        let orders = TopicName::parse("orders").unwrap();
        assert_eq!(
            orders.retry_of(&group).unwrap().as_str(),
            "orders.email.retry"
        );
        assert_eq!(
            orders.dead_letter_of(&group).unwrap().as_str(),
            "orders.email.dlq"
        );
        assert!(orders.dead_letter_of(&group).unwrap().is_derived());
        let long = TopicName::parse(&"a".repeat(240)).unwrap();
        assert!(long.retry_of(&group).is_err());
    }
}
