//! `--exec`: a command for one record, whose exit code says what becomes of it.

use std::process::{ExitStatus, Stdio};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use varvelog_proto::v1;

use crate::failure::Failure;
use crate::output::Printed;

/// Of what a command writes to standard error, so much is kept.
const STDERR_BYTES_MAX: u64 = 64 << 10;
const MESSAGE_CHARS_MAX: usize = 256;
/// The conventional code for data that will never do.
const EXIT_BAD_DATA: i32 = 65;

/// What a command did.
#[derive(Debug, PartialEq)]
pub(super) struct Handled {
    /// None: the record is settled.
    pub(super) failure: Option<v1::Failure>,
    /// The beginning of what it wrote to standard error.
    pub(super) errors: String,
}

/// Runs the command.
pub(super) async fn handle(command: &str, printed: Printed<'_>) -> Result<Handled, Failure> {
    let record = printed.record;
    let mut child = Command::new("sh")
        .args(["-c", command])
        .env("VARVELOG_TOPIC", printed.topic)
        .env("VARVELOG_PARTITION", printed.partition.to_string())
        .env("VARVELOG_OFFSET", record.offset.to_string())
        .env("VARVELOG_KEY", text(record.key.as_deref()))
        .env("VARVELOG_TIMESTAMP_MS", record.timestamp_ms.to_string())
        .env("VARVELOG_ATTEMPT", record.attempt.to_string())
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
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
    let ((), errors, status) = tokio::join!(give, read_some(stderr), child.wait());
    let status = status.map_err(|error| Failure::io("--exec", &error))?;
    let errors = String::from_utf8_lossy(&errors).into_owned();
    Ok(Handled {
        failure: failure(status, &errors, record.offset),
        errors,
    })
}

/// The beginning of what comes; the rest is read and forgotten, so that the command can end.
async fn read_some(source: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut kept = Vec::new();
    if let Some(mut source) = source {
        drop(
            (&mut source)
                .take(STDERR_BYTES_MAX)
                .read_to_end(&mut kept)
                .await,
        );
        drop(tokio::io::copy(&mut source, &mut tokio::io::sink()).await);
    }
    kept
}

/// No environment variable holds a zero byte.
fn text(bytes: Option<&[u8]>) -> String {
    String::from_utf8_lossy(bytes.unwrap_or_default()).replace('\0', "\u{fffd}")
}

fn failure(status: ExitStatus, errors: &str, offset: i64) -> Option<v1::Failure> {
    if status.success() {
        return None;
    }
    let action = if status.code() == Some(EXIT_BAD_DATA) {
        v1::FailureAction::DeadLetter
    } else {
        v1::FailureAction::Unspecified
    };
    let error_code = match status.code() {
        Some(code) => format!("exit_{code}"),
        None => String::from("signal"),
    };
    let last = errors.lines().rev().find(|line| !line.trim().is_empty());
    let error_message = match last {
        Some(line) => line.trim().chars().take(MESSAGE_CHARS_MAX).collect(),
        None => status.to_string(),
    };
    Some(v1::Failure {
        offset,
        action: action.into(),
        error_code,
        error_message,
        ..v1::Failure::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn run(command: &str, value: &str) -> Option<v1::Failure> {
        let record = v1::Record {
            offset: 12,
            key: Some("SAN\0".into()),
            value: Some(value.to_owned().into()),
            attempt: 2,
            ..v1::Record::default()
        };
        let printed = Printed {
            topic: "flights",
            partition: 3,
            record: &record,
        };
        handle(command, printed).await.unwrap().failure
    }

    #[tokio::test]
    async fn exit_code_zero_settles_the_record() {
        assert_eq!(run("exit 0", "x").await, None);
        assert_eq!(run("test \"$(cat)\" = hello", "hello").await, None);
        let told = "test \"$VARVELOG_TOPIC/$VARVELOG_PARTITION@$VARVELOG_OFFSET\
                    #$VARVELOG_ATTEMPT\" = 'flights/3@12#2'";
        assert_eq!(run(told, "").await, None);
    }

    #[tokio::test]
    async fn another_code_fails_it_with_the_last_words_of_the_command() {
        let failed = run("echo first >&2; echo ' no such seat ' >&2; exit 3", "x")
            .await
            .unwrap();
        assert_eq!(failed.offset, 12);
        assert_eq!(failed.action(), v1::FailureAction::Unspecified);
        assert_eq!(failed.error_code, "exit_3");
        assert_eq!(failed.error_message, "no such seat");
        let silent = run("kill -9 $$", "x").await.unwrap();
        assert_eq!(silent.error_code, "signal");
        assert!(silent.error_message.contains("signal: 9"), "{silent:?}");
    }

    #[tokio::test]
    async fn code_65_makes_a_dead_letter() {
        assert_eq!(
            run("exit 65", "x").await.unwrap().action(),
            v1::FailureAction::DeadLetter
        );
    }

    #[tokio::test]
    async fn a_command_may_leave_its_input_and_say_too_much() {
        let value = "x".repeat(1 << 20);
        assert_eq!(run("exit 0", &value).await, None);
        let loud = "head -c 300000 /dev/zero | tr '\\0' e >&2; exit 1";
        let failed = run(loud, "x").await.unwrap();
        assert_eq!(failed.error_message.len(), MESSAGE_CHARS_MAX);
    }
}
