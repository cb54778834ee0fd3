//! A command for one record, whose exit code says what becomes of it.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use varvelog_client::{Failure as RecordFailure, Message};

use crate::failure::Failure;

/// Of what a command writes to standard error, so much is kept.
const STDERR_BYTES_MAX: usize = 64 << 10;
const READ_BYTES: usize = 8 << 10;
/// The conventional code for data that will never do.
const EXIT_BAD_DATA: i32 = 65;

/// What a command did.
#[derive(Debug, PartialEq)]
pub(super) struct Handled {
    /// None: the record is done.
    pub(super) failure: Option<RecordFailure>,
    /// The end of what it wrote to standard error.
    pub(super) errors: String,
}

/// Runs the command, in a process group of its own: it is not interrupted when this program is,
/// and can finish. It ends when this future is dropped.
pub(super) async fn handle(command: &str, message: &Message) -> Result<Handled, Failure> {
    let record = message.record();
    let mut child = Command::new("sh")
        .args(["-c", command])
        .env("VARVELOG_TOPIC", message.topic())
        .env("VARVELOG_PARTITION", message.partition().to_string())
        .env("VARVELOG_OFFSET", message.offset().to_string())
        .env("VARVELOG_KEY", text(message.key()))
        .env("VARVELOG_TIMESTAMP_MS", record.timestamp_ms.to_string())
        .env("VARVELOG_ATTEMPT", message.attempt().to_string())
        .env("VARVELOG_MESSAGE_ID", message.message_id())
        .env("VARVELOG_FENCE", message.fence().to_string())
        .env("VARVELOG_OMITTED_BYTES", omitted(message))
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| Failure::io("--exec: cannot start sh", &error))?;
    let value = record.value.clone().unwrap_or_default();
    let stdin = child.stdin.take();
    let give = async move {
        if let Some(mut stdin) = stdin {
            // A command need not read all, or any, of its input.
            drop(stdin.write_all(&value).await);
        }
    };
    let stderr = child.stderr.take();
    let ((), errors, status) = tokio::join!(give, read_end(stderr), child.wait());
    let status = status.map_err(|error| Failure::io("--exec", &error))?;
    let errors = String::from_utf8_lossy(&errors).into_owned();
    Ok(Handled {
        failure: failure(status, &errors),
        errors,
    })
}

/// The end of what comes; the rest is read and forgotten, so that the command can end.
async fn read_end(source: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut kept = Vec::new();
    let Some(mut source) = source else {
        return kept;
    };
    let mut buffer = vec![0; READ_BYTES];
    while let Ok(count) = source.read(&mut buffer).await
        && let Some(new) = buffer.get(..count).filter(|new| !new.is_empty())
    {
        kept.extend_from_slice(new);
        if kept.len() > 2 * STDERR_BYTES_MAX {
            kept.drain(..kept.len() - STDERR_BYTES_MAX);
        }
    }
    kept.drain(..kept.len().saturating_sub(STDERR_BYTES_MAX));
    kept
}

/// No environment variable holds a zero byte.
fn text(bytes: Option<&[u8]>) -> String {
    String::from_utf8_lossy(bytes.unwrap_or_default()).replace('\0', "\u{fffd}")
}

/// Empty unless the value was too large to be brought.
fn omitted(message: &Message) -> String {
    let bytes = message.record().value_omitted_bytes;
    bytes.map_or_else(String::new, |bytes| bytes.to_string())
}

fn failure(status: ExitStatus, errors: &str) -> Option<RecordFailure> {
    if status.success() {
        return None;
    }
    let code = match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => String::from("unknown end"),
    };
    let last = errors.lines().rev().find(|line| !line.trim().is_empty());
    let message = last.map_or_else(|| status.to_string(), |line| line.trim().to_owned());
    let failure = if status.code() == Some(EXIT_BAD_DATA) {
        RecordFailure::permanent(code, message)
    } else {
        RecordFailure::by_code(code, message)
    };
    Some(failure.stack(errors.trim()))
}

#[cfg(test)]
mod tests {
    use varvelog_client::ReadRecord;
    use varvelog_proto::v1::FailureAction;

    use super::*;

    async fn run(command: &str, value: &str) -> Option<RecordFailure> {
        let record = ReadRecord {
            offset: 12,
            key: Some("SAN\0".into()),
            value: Some(value.to_owned().into()),
            attempt: 2,
            message_id: String::from("id-7"),
            ..ReadRecord::default()
        };
        let message = Message::new("flights", 3, 9, record);
        handle(command, &message).await.unwrap().failure
    }

    #[tokio::test]
    async fn exit_code_zero_settles_the_record() {
        assert_eq!(run("exit 0", "x").await, None);
        assert_eq!(run("test \"$(cat)\" = hello", "hello").await, None);
        let told = "test \"$VARVELOG_TOPIC/$VARVELOG_PARTITION@$VARVELOG_OFFSET\
                    #$VARVELOG_ATTEMPT.$VARVELOG_FENCE.$VARVELOG_MESSAGE_ID\" = \
                    'flights/3@12#2.9.id-7'";
        assert_eq!(run(told, "").await, None);
    }

    #[tokio::test]
    async fn another_code_fails_it_with_the_last_words_of_the_command() {
        let failed = run("echo first >&2; echo ' no such seat ' >&2; exit 3", "x").await;
        let wanted = RecordFailure::by_code("exit 3", "no such seat");
        assert_eq!(failed, Some(wanted.stack("first\n no such seat")));
        let silent = run("kill -9 $$", "x").await.unwrap();
        assert_eq!(silent.code(), "signal 9");
        assert!(silent.message().contains("signal: 9"), "{silent:?}");
    }

    #[tokio::test]
    async fn code_65_makes_a_dead_letter() {
        let failed = run("exit 65", "x").await.unwrap();
        assert_eq!(failed.action(), FailureAction::DeadLetter);
        assert_eq!(failed.code(), "exit 65");
    }

    #[tokio::test]
    async fn a_command_may_leave_its_input_and_say_too_much() {
        let value = "x".repeat(1 << 20);
        assert_eq!(run("exit 0", &value).await, None);
        let loud = "head -c 300000 /dev/zero | tr '\\0' e >&2; printf '\\nthe end\\n' >&2; exit 1";
        let failed = run(loud, "x").await.unwrap();
        assert_eq!(failed.message(), "the end");
    }
}
