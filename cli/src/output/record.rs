//! Records as lines: JSON for programs, text for people, a template for both.

use std::io;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::tz::TimeZone;
use serde_json::{Map, Value, json};
use varvelog_proto::v1::Record;

use super::format::{Format, Output};
use super::human::{show_text, show_time_ms};
use super::template::Template;

/// A record and where it is from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Printed<'a> {
    /// Name.
    pub(crate) topic: &'a str,
    /// From 0.
    pub(crate) partition: i32,
    /// Of that partition.
    pub(crate) record: &'a Record,
}

/// How records are printed.
#[derive(Clone, Debug)]
pub(crate) struct RecordPrinter {
    form: Form,
    zone: TimeZone,
}

#[derive(Clone, Debug)]
enum Form {
    Template(Template),
    Text,
    Json,
    Name,
}

impl RecordPrinter {
    /// By template if there is one, else by the format of the output.
    pub(crate) fn new(template: Option<Template>, output: &Output) -> Self {
        let form = match (template, output.format) {
            (Some(template), _) => Form::Template(template),
            (None, Format::Table) => Form::Text,
            (None, Format::Json | Format::Jsonl) => Form::Json,
            (None, Format::Name) => Form::Name,
        };
        Self {
            form,
            zone: output.zone.clone(),
        }
    }

    /// Prints one record. Nothing is flushed.
    pub(crate) fn print(&self, printed: Printed<'_>, output: &mut Output) -> io::Result<()> {
        let Printed {
            topic,
            partition,
            record,
        } = printed;
        let mut line = Vec::new();
        match &self.form {
            Form::Template(template) => template.render(topic, partition, record, &mut line),
            Form::Text => line.extend(record_text(printed, &self.zone).into_bytes()),
            Form::Json => {
                serde_json::to_writer(&mut line, &record_json(printed))?;
                line.push(b'\n');
            }
            Form::Name => line.extend(format!("{topic}/{partition}@{}\n", record.offset).bytes()),
        }
        output.raw(&line)
    }
}

/// Key and value as text where they are UTF-8, else `keyBase64` and `valueBase64`; null where
/// there is none.
fn record_json(printed: Printed<'_>) -> Value {
    let Printed {
        topic,
        partition,
        record,
    } = printed;
    let mut object = Map::new();
    object.insert("topic".into(), topic.into());
    object.insert("partition".into(), partition.into());
    object.insert("offset".into(), record.offset.to_string().into());
    insert_bytes(&mut object, "key", record.key.as_deref());
    insert_bytes(&mut object, "value", record.value.as_deref());
    insert_headers(&mut object, record);
    object.insert("timestampMs".into(), record.timestamp_ms.to_string().into());
    object.insert(
        "appendTimeMs".into(),
        record.append_time_ms.to_string().into(),
    );
    object.insert("attempt".into(), record.attempt.into());
    object.insert("messageId".into(), record.message_id.as_str().into());
    if record.value_omitted {
        object.insert("valueOmitted".into(), true.into());
        object.insert("valueBytes".into(), record.value_bytes.to_string().into());
    }
    Value::Object(object)
}

fn insert_bytes(object: &mut Map<String, Value>, name: &str, bytes: Option<&[u8]>) {
    let (name, value) = match bytes.map(|bytes| (bytes, std::str::from_utf8(bytes))) {
        None => (name.to_owned(), Value::Null),
        Some((_, Ok(text))) => (name.to_owned(), text.into()),
        Some((bytes, Err(_))) => (
            format!("{name}Base64"),
            BASE64_STANDARD.encode(bytes).into(),
        ),
    };
    object.insert(name, value);
}

/// Headers that are not UTF-8 stand in `headersBase64`.
fn insert_headers(object: &mut Map<String, Value>, record: &Record) {
    let mut headers: Vec<_> = record.headers.iter().collect();
    headers.sort_unstable();
    let (mut text, mut base64) = (Map::new(), Map::new());
    for (name, value) in headers {
        match std::str::from_utf8(value) {
            Ok(value) => text.insert(name.clone(), value.into()),
            Err(_) => base64.insert(name.clone(), json!(BASE64_STANDARD.encode(value))),
        };
    }
    object.insert("headers".into(), Value::Object(text));
    if !base64.is_empty() {
        object.insert("headersBase64".into(), Value::Object(base64));
    }
}

fn record_text(printed: Printed<'_>, zone: &TimeZone) -> String {
    let Printed {
        topic,
        partition,
        record,
    } = printed;
    let key = record
        .key
        .as_deref()
        .map_or_else(|| String::from("-"), show_text);
    let value = match record.value.as_deref() {
        Some(value) => show_text(value),
        None if record.value_omitted => format!("({} bytes left out)", record.value_bytes),
        None => String::from("(tombstone)"),
    };
    let attempt = if record.attempt > 1 {
        format!("  #{}", record.attempt)
    } else {
        String::new()
    };
    let time = show_time_ms(record.timestamp_ms, zone);
    format!(
        "{topic}/{partition}@{}  {time}{attempt}  {key}  {value}\n",
        record.offset
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(format: Format, record: &Record) -> String {
        let printed = Printed {
            topic: "flights",
            partition: 3,
            record,
        };
        if format == Format::Table {
            record_text(printed, &TimeZone::UTC)
        } else {
            record_json(printed).to_string()
        }
    }

    fn flight() -> Record {
        Record {
            offset: 12,
            key: Some("SAN".into()),
            value: Some("{\"delay\":32}".into()),
            headers: [("source".into(), "tower".into())].into(),
            timestamp_ms: 979_397_760_123,
            append_time_ms: 979_397_760_200,
            message_id: "m1".into(),
            ..Record::default()
        }
    }

    #[test]
    fn the_json_of_a_record_keeps_text_readable() {
        insta::assert_snapshot!(print(Format::Json, &flight()));
    }

    #[test]
    fn bytes_that_are_no_text_are_base64_and_absent_ones_are_null() {
        let record = Record {
            key: Some(vec![0xff].into()),
            value: None,
            headers: [("h".into(), vec![0xfe].into())].into(),
            ..flight()
        };
        insta::assert_snapshot!(print(Format::Json, &record));
    }

    #[test]
    fn a_value_left_out_is_no_tombstone() {
        let record = Record {
            value: None,
            value_omitted: true,
            value_bytes: 5_000_000,
            ..flight()
        };
        let shown: Value = serde_json::from_str(&print(Format::Json, &record)).unwrap();
        assert_eq!(shown["valueOmitted"], true);
        assert_eq!(shown["valueBytes"], "5000000");
        assert!(print(Format::Table, &record).ends_with("(5000000 bytes left out)\n"));
        let record = Record {
            value: None,
            ..flight()
        };
        assert!(print(Format::Table, &record).ends_with("(tombstone)\n"));
    }

    #[test]
    fn the_line_of_a_record_shows_a_second_attempt() {
        let first = print(Format::Table, &flight());
        assert_eq!(
            first,
            "flights/3@12  2001-01-13 14:56:00.123  SAN  {\"delay\":32}\n"
        );
        let again = print(
            Format::Table,
            &Record {
                attempt: 2,
                ..flight()
            },
        );
        assert!(again.contains("  #2  "), "{again}");
    }
}
