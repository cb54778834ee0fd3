//! Record templates: `%t %p %o %k %v %h %d`, in the letters that readers of other logs know.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use varvelog_proto::v1::Record;

/// A parsed template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Vec<u8>),
    Topic,
    Partition,
    Offset,
    Key(Bytes),
    Value(Bytes),
    Headers,
    Time(Time),
    Attempt,
}

/// How bytes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bytes {
    Raw,
    Hex,
    Base64,
}

/// How a time is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Time {
    UnixMs,
    Rfc3339,
}

impl Template {
    /// Reads a template. `\n`, `\t`, `\r`, `\0` and `\\` are what they are elsewhere, `%%` is a
    /// percent sign.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut literal = Vec::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            rest = rest.get(first.len_utf8()..).unwrap_or_default();
            match first {
                '%' => {
                    let (piece, after) = parse_letter(rest)?;
                    rest = after;
                    if let Piece::Text(percent) = &piece {
                        literal.extend_from_slice(percent);
                        continue;
                    }
                    if !literal.is_empty() {
                        pieces.push(Piece::Text(std::mem::take(&mut literal)));
                    }
                    pieces.push(piece);
                }
                '\\' => {
                    let (byte, after) = parse_escape(rest)?;
                    rest = after;
                    literal.push(byte);
                }
                _ => {
                    let mut buffer = [0; 4];
                    literal.extend_from_slice(first.encode_utf8(&mut buffer).as_bytes());
                }
            }
        }
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal));
        }
        Ok(Self(pieces))
    }

    /// Appends a record to `out`.
    pub(crate) fn render(&self, topic: &str, partition: i32, record: &Record, out: &mut Vec<u8>) {
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text),
                Piece::Topic => out.extend_from_slice(topic.as_bytes()),
                Piece::Partition => out.extend_from_slice(partition.to_string().as_bytes()),
                Piece::Offset => out.extend_from_slice(record.offset.to_string().as_bytes()),
                Piece::Attempt => out.extend_from_slice(record.attempt.to_string().as_bytes()),
                Piece::Key(form) => form.push(record.key.as_deref().unwrap_or_default(), out),
                Piece::Value(form) => form.push(record.value.as_deref().unwrap_or_default(), out),
                Piece::Headers => push_headers(record, out),
                Piece::Time(form) => form.push(record.timestamp_ms, out),
            }
        }
    }
}

impl Bytes {
    fn push(self, bytes: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Raw => out.extend_from_slice(bytes),
            Self::Base64 => out.extend_from_slice(BASE64_STANDARD.encode(bytes).as_bytes()),
            Self::Hex => {
                let mut hex = String::with_capacity(bytes.len() * 2);
                for byte in bytes {
                    write!(hex, "{byte:02x}").expect("writing to a String cannot fail");
                }
                out.extend_from_slice(hex.as_bytes());
            }
        }
    }
}

impl Time {
    fn push(self, time_ms: i64, out: &mut Vec<u8>) {
        let shown = match self {
            Self::UnixMs => time_ms.to_string(),
            Self::Rfc3339 => jiff::Timestamp::from_millisecond(time_ms)
                .map_or_else(|_| time_ms.to_string(), |time| format!("{time:.3}")),
        };
        out.extend_from_slice(shown.as_bytes());
    }
}

/// `name=value`, separated by commas, by name.
fn push_headers(record: &Record, out: &mut Vec<u8>) {
    let mut headers: Vec<_> = record.headers.iter().collect();
    headers.sort_unstable();
    for (index, (name, value)) in headers.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(name.as_bytes());
        out.push(b'=');
        out.extend_from_slice(value);
    }
}

fn parse_letter(text: &str) -> Result<(Piece, &str), String> {
    let mut chars = text.chars();
    let Some(letter) = chars.next() else {
        return Err(String::from(
            "a template ends in a single %; %% is a percent sign",
        ));
    };
    let after = chars.as_str();
    let (form, after) = match after
        .strip_prefix('{')
        .and_then(|inner| inner.split_once('}'))
    {
        Some((form, after)) if "kvd".contains(letter) => (form, after),
        _ => ("", after),
    };
    let piece = match (letter, form) {
        ('%', _) => Piece::Text(b"%".to_vec()),
        ('t', _) => Piece::Topic,
        ('p', _) => Piece::Partition,
        ('o', _) => Piece::Offset,
        ('h', _) => Piece::Headers,
        ('a', _) => Piece::Attempt,
        ('d', "") => Piece::Time(Time::UnixMs),
        ('d', "rfc3339") => Piece::Time(Time::Rfc3339),
        ('k', _) => Piece::Key(bytes_form(form).ok_or_else(|| no_form(letter, form))?),
        ('v', _) => Piece::Value(bytes_form(form).ok_or_else(|| no_form(letter, form))?),
        ('d', _) => return Err(no_form(letter, form)),
        _ => {
            return Err(format!(
                "`%{letter}` is unknown: %t topic, %p partition, %o offset, %k key, %v value, \
                 %h headers, %d time, %a attempt, %% percent"
            ));
        }
    };
    Ok((piece, after))
}

fn bytes_form(form: &str) -> Option<Bytes> {
    match form {
        "" => Some(Bytes::Raw),
        "hex" => Some(Bytes::Hex),
        "base64" => Some(Bytes::Base64),
        _ => None,
    }
}

fn no_form(letter: char, form: &str) -> String {
    let forms = if letter == 'd' {
        "{rfc3339}"
    } else {
        "{hex} and {base64}"
    };
    format!("`%{letter}{{{form}}}` is unknown: %{letter} takes {forms}")
}

fn parse_escape(text: &str) -> Result<(u8, &str), String> {
    let mut chars = text.chars();
    let byte = match chars.next() {
        Some('n') => b'\n',
        Some('t') => b'\t',
        Some('r') => b'\r',
        Some('0') => 0,
        Some('\\') => b'\\',
        Some(other) => return Err(format!("`\\{other}` is unknown: \\n, \\t, \\r, \\0, \\\\")),
        None => return Err(String::from("a template ends in a single \\")),
    };
    Ok((byte, chars.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(template: &str) -> String {
        let record = Record {
            offset: 12,
            key: Some("SAN".into()),
            value: Some(vec![0xff, 0x00].into()),
            headers: [("b".into(), "2".into()), ("a".into(), "1".into())].into(),
            timestamp_ms: 979_397_760_123,
            attempt: 2,
            ..Record::default()
        };
        let mut out = Vec::new();
        Template::parse(template)
            .unwrap()
            .render("flights", 3, &record, &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn every_letter_stands_for_its_field() {
        assert_eq!(
            render("%t/%p@%o %k #%a\\t%h\\n"),
            "flights/3@12 SAN #2\ta=1,b=2\n"
        );
        assert_eq!(
            render("%d %d{rfc3339}"),
            "979397760123 2001-01-13T14:56:00.123Z"
        );
        assert_eq!(render("%v{hex} %v{base64} %k{hex}"), "ff00 /wA= 53414e");
        assert_eq!(render("100%% {x} \\\\ ü %k{"), "100% {x} \\ ü SAN{");
        assert_eq!(render("%t{x}"), "flights{x}");
    }

    #[test]
    fn what_a_template_cannot_mean_is_refused() {
        for wrong in ["%", "%z", "%v{upper}", "%d{unix}", "\\q", "end\\"] {
            assert!(Template::parse(wrong).is_err(), "{wrong}");
        }
    }
}
