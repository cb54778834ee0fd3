//! From a line to a record.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::value::RawValue;
use varvelog_client::Record;
use varvelog_proto::v1;

/// Longest message id.
const MESSAGE_ID_BYTES_MAX: usize = 128;

/// What a line is made of.
#[derive(Clone, Debug, Default)]
pub(super) struct Shape {
    /// The key is the text of this field of a JSON object; the value is the whole line.
    pub(super) key_field: Option<String>,
    /// Key and value stand on both sides of the first of these.
    pub(super) separator: Option<String>,
    /// Of every record.
    pub(super) key: Option<String>,
    /// The message id is the text of this field of a JSON object.
    pub(super) id_field: Option<String>,
    /// The message id of every record.
    pub(super) id: Option<String>,
    /// Of every record.
    pub(super) headers: Vec<(String, String)>,
    /// Of every record.
    pub(super) partition: Option<u32>,
    /// An empty value is a tombstone.
    pub(super) tombstones: bool,
    /// Largest record: key, value and headers.
    pub(super) record_bytes_max: usize,
}

/// Key and value of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    key: Option<Bytes>,
    value: Option<Bytes>,
    id: Option<String>,
}

impl Shape {
    /// What the line stands for, or what is wrong with it.
    pub(super) fn parts(&self, line: Vec<u8>) -> Result<Parts, String> {
        let id = self.id_of(&line)?;
        let (key, value) = self.split(line)?;
        let key = key.or_else(|| self.key.clone().map(Bytes::from));
        let headers: usize = self
            .headers
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        let bytes = key.as_ref().map_or(0, Bytes::len) + value.len() + headers;
        if bytes > self.record_bytes_max {
            return Err(format!(
                "{bytes} bytes, and the topic takes records of {} at most",
                self.record_bytes_max
            ));
        }
        if !self.tombstones || !value.is_empty() {
            return Ok(Parts {
                key,
                value: Some(value),
                id,
            });
        }
        if key.is_none() {
            return Err(String::from("a tombstone needs a key"));
        }
        Ok(Parts {
            key,
            value: None,
            id,
        })
    }

    /// For the client's producer.
    pub(super) fn record(&self, parts: Parts) -> Record {
        let Parts { key, value, id } = parts;
        let mut record = match value {
            Some(value) => {
                let record = Record::new(value);
                if let Some(key) = key {
                    record.key(key)
                } else {
                    record
                }
            }
            None => Record::tombstone(key.unwrap_or_default()),
        };
        if let Some(id) = id {
            record = record.message_id(id);
        }
        for (name, value) in &self.headers {
            record = record.header(name.clone(), value.clone());
        }
        match self.partition {
            Some(partition) => record.partition(partition),
            None => record,
        }
    }

    /// For a call without an answer.
    pub(super) fn message(&self, parts: Parts) -> v1::NewRecord {
        let header = |(name, value): &(String, String)| (name.clone(), value.clone().into());
        v1::NewRecord {
            key: parts.key,
            value: parts.value,
            headers: self.headers.iter().map(header).collect(),
            partition: self
                .partition
                .and_then(|partition| i32::try_from(partition).ok()),
            message_id: parts.id.unwrap_or_default(),
            ..v1::NewRecord::default()
        }
    }

    fn id_of(&self, line: &[u8]) -> Result<Option<String>, String> {
        let id = match &self.id_field {
            Some(field) => Some(field_text(line, field)?),
            None => self.id.clone(),
        };
        match id.as_deref() {
            Some("") => Err(String::from("an empty message id")),
            Some(id) if id.len() > MESSAGE_ID_BYTES_MAX => Err(format!(
                "a message id of {} bytes, {MESSAGE_ID_BYTES_MAX} are allowed",
                id.len()
            )),
            _ => Ok(id),
        }
    }

    fn split(&self, line: Vec<u8>) -> Result<(Option<Bytes>, Bytes), String> {
        let line = Bytes::from(line);
        if let Some(field) = &self.key_field {
            let key = field_text(&line, field)?;
            return Ok((Some(key.into()), line));
        }
        let Some(separator) = &self.separator else {
            return Ok((None, line));
        };
        let separator = separator.as_bytes();
        let at = line
            .windows(separator.len())
            .position(|window| window == separator);
        let at = at.ok_or_else(|| {
            format!(
                "no separator {:?} in it",
                String::from_utf8_lossy(separator)
            )
        })?;
        Ok((Some(line.slice(..at)), line.slice(at + separator.len()..)))
    }
}

/// The text of a field without quotes; a number or a truth value as it is written. Null, lists
/// and objects are no key.
fn field_text(line: &[u8], field: &str) -> Result<String, String> {
    let not_json = |error: serde_json::Error| format!("not JSON: {error}");
    let object: BTreeMap<Cow<'_, str>, &RawValue> =
        serde_json::from_slice(line).map_err(not_json)?;
    let raw = object
        .get(field)
        .ok_or_else(|| format!("no field {field:?}"))?
        .get();
    match raw.as_bytes().first() {
        Some(b'"') => serde_json::from_str(raw).map_err(not_json),
        Some(b'n' | b'[' | b'{') | None => Err(format!("field {field:?} is no text or number")),
        Some(_) => Ok(raw.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> Shape {
        Shape {
            record_bytes_max: 100,
            ..Shape::default()
        }
    }

    fn by_field(field: &str) -> Shape {
        Shape {
            key_field: Some(field.into()),
            ..shape()
        }
    }

    fn read(shape: &Shape, line: &str) -> Result<(Option<String>, Option<String>), String> {
        let text =
            |bytes: Option<&[u8]>| bytes.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap());
        let parts = shape.parts(line.into())?;
        let message = shape.message(parts.clone());
        let record = shape.record(parts);
        assert_eq!(record.key_bytes(), message.key.as_deref());
        assert_eq!(record.value_bytes(), message.value.as_deref());
        Ok((text(record.key_bytes()), text(record.value_bytes())))
    }

    fn both(key: &str, value: &str) -> (Option<String>, Option<String>) {
        (Some(key.into()), Some(value.into()))
    }

    #[test]
    fn a_plain_line_is_a_value_without_key() {
        assert_eq!(read(&shape(), " {x} "), Ok((None, Some(" {x} ".into()))));
        assert_eq!(read(&shape(), ""), Ok((None, Some(String::new()))));
    }

    #[test]
    fn the_key_is_the_field_s_text_and_the_value_the_whole_line() {
        let line = r#"{"ori\u0067in":"S\"AN","n":1.50,"b":true,"z":null,"l":[]}"#;
        assert_eq!(read(&by_field("origin"), line), Ok(both("S\"AN", line)));
        assert_eq!(read(&by_field("b"), line), Ok(both("true", line)));
        assert_eq!(read(&by_field("n"), line), Ok(both("1.50", line)));
        for (field, line) in [
            ("x", line),
            ("z", line),
            ("l", line),
            ("a", "[1]"),
            ("a", ""),
        ] {
            assert!(read(&by_field(field), line).is_err(), "{field} {line}");
        }
    }

    #[test]
    fn the_message_id_is_a_field_s_text_or_the_same_for_all() {
        let by = |field: &str| Shape {
            id_field: Some(field.into()),
            ..shape()
        };
        let id = |shape: &Shape, line: &str| {
            let parts = shape.parts(line.into())?;
            Ok::<String, String>(shape.message(parts).message_id)
        };
        assert_eq!(id(&by("n"), r#"{"n":17}"#), Ok("17".into()));
        assert!(id(&by("n"), r#"{"n":""}"#).is_err());
        assert!(id(&by("x"), r#"{"n":17}"#).is_err());
        let long = "e".repeat(129);
        assert!(id(&by("n"), &format!(r#"{{"n":"{long}"}}"#)).is_err());
        let all = Shape {
            id: Some("a".into()),
            ..shape()
        };
        assert_eq!(id(&all, "x"), Ok("a".into()));
        assert_eq!(id(&shape(), "x"), Ok(String::new()));
    }

    #[test]
    fn a_separator_cuts_once() {
        let by = |separator: &str| Shape {
            separator: Some(separator.into()),
            ..shape()
        };
        assert_eq!(read(&by(":"), "k:v:w"), Ok(both("k", "v:w")));
        assert_eq!(read(&by("::"), "k::"), Ok(both("k", "")));
        assert_eq!(read(&by("\t"), "\tv"), Ok(both("", "v")));
        assert!(read(&by(":"), "kv").is_err());
    }

    #[test]
    fn an_empty_value_is_a_tombstone_when_asked_for() {
        let shape = Shape {
            separator: Some(":".into()),
            tombstones: true,
            ..shape()
        };
        assert_eq!(read(&shape, "k:"), Ok((Some("k".into()), None)));
        let keyless = Shape {
            separator: None,
            ..shape
        };
        assert!(read(&keyless, "").is_err());
    }

    #[test]
    fn a_record_beyond_the_topic_s_limit_is_refused_here() {
        let shape = Shape {
            headers: vec![("h".into(), "123".into())],
            ..shape()
        };
        assert!(read(&shape, &"x".repeat(96)).is_ok());
        assert!(
            read(&shape, &"x".repeat(97))
                .unwrap_err()
                .contains("101 bytes")
        );
    }
}
