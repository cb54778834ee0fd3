//! Lines of a file or of standard input, of any content but of bounded length.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _};

/// The largest line: no topic takes larger records.
pub(super) const LINE_BYTES_MAX: usize = 16 << 20;

/// A line without its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// As it stands.
    Bytes(Vec<u8>),
    /// Longer than [`LINE_BYTES_MAX`]; it was passed over.
    TooLong,
}

/// The next line, or none at the end. The last one needs no line end.
pub(super) async fn next_line(
    reader: &mut (impl AsyncBufRead + Unpin),
) -> io::Result<Option<Line>> {
    let mut line = Vec::new();
    let mut too_long = false;
    let mut begun = false;
    loop {
        let available = reader.fill_buf().await?;
        if available.is_empty() {
            return Ok(begun.then(|| finish(line, too_long)));
        }
        begun = true;
        let end = available.iter().position(|byte| *byte == b'\n');
        let part = available
            .get(..end.unwrap_or(available.len()))
            .unwrap_or_default();
        if line.len() + part.len() > LINE_BYTES_MAX {
            too_long = true;
            line = Vec::new();
        } else if !too_long {
            line.extend_from_slice(part);
        }
        let taken = part.len() + usize::from(end.is_some());
        reader.consume(taken);
        if end.is_some() {
            return Ok(Some(finish(line, too_long)));
        }
    }
}

fn finish(mut line: Vec<u8>, too_long: bool) -> Line {
    if too_long {
        return Line::TooLong;
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Line::Bytes(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(mut text: &[u8]) -> Vec<Line> {
        let mut lines = Vec::new();
        while let Some(line) = next_line(&mut text).await.unwrap() {
            lines.push(line);
        }
        lines
    }

    fn bytes(text: &str) -> Line {
        Line::Bytes(text.into())
    }

    #[tokio::test]
    async fn a_line_ends_at_its_end_or_at_the_last_byte() {
        assert_eq!(lines(b"").await, []);
        assert_eq!(lines(b"a").await, [bytes("a")]);
        assert_eq!(
            lines(b"a\nb\r\n\nc\n").await,
            [bytes("a"), bytes("b"), bytes(""), bytes("c")]
        );
        assert_eq!(lines(b"\r\n").await, [bytes("")]);
        assert_eq!(lines(b"a\rb\n").await, [bytes("a\rb")]);
        assert_eq!(lines(b"\xff\n").await, [Line::Bytes(vec![0xff])]);
    }

    #[tokio::test]
    async fn a_line_beyond_the_limit_is_passed_over_whole() {
        let mut text = vec![b'x'; LINE_BYTES_MAX + 1];
        text.extend_from_slice(b"\nshort\n");
        assert_eq!(lines(&text).await, [Line::TooLong, bytes("short")]);
        let mut text = vec![b'x'; LINE_BYTES_MAX];
        text.push(b'\n');
        assert_eq!(
            lines(&text).await,
            [Line::Bytes(vec![b'x'; LINE_BYTES_MAX])]
        );
    }

    #[tokio::test]
    async fn a_line_may_come_in_pieces() {
        let mut reader = tokio::io::BufReader::with_capacity(3, &b"abcdefg\nhi"[..]);
        assert_eq!(
            next_line(&mut reader).await.unwrap(),
            Some(bytes("abcdefg"))
        );
        assert_eq!(next_line(&mut reader).await.unwrap(), Some(bytes("hi")));
        assert_eq!(next_line(&mut reader).await.unwrap(), None);
    }
}
