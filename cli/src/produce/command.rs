//! Arguments and loop of `varvelog produce`.

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, ValueEnum};
use tokio::io::{AsyncBufRead, BufReader};
use varvelog_client::{Compression, Producer, SendError};
use varvelog_proto::v1;

use super::input::Shape;
use super::lines::{LINE_BYTES_MAX, Line, next_line};
use super::sink::{Committed, Settled, Unanswered};
use super::summary::Summary;
use crate::clock::Since;
use crate::connect::Connection;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Block, Progress, View};
use crate::parse;

const READ_BYTES: usize = 256 << 10;
const BATCH_BYTES: usize = 256 << 10;

/// Arguments.
#[derive(Args, Clone, Debug)]
#[command(
    group = ArgGroup::new("keys"),
    group = ArgGroup::new("ids"),
    after_help = "Each line is one record, as it stands, without its line end. Lines that are no \
                  record are reported by number, the others are sent, and the exit code is 8."
)]
pub(crate) struct ProduceArgs {
    /// The topic
    topic: String,
    /// Read this file instead of standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Lines are JSON objects, and this field is the key
    #[arg(long, group = "keys", value_name = "FIELD")]
    key_field: Option<String>,
    /// Lines are key and value with this between them
    #[arg(
        short = 'k',
        long,
        group = "keys",
        value_name = "SEPARATOR",
        value_parser = clap::builder::NonEmptyStringValueParser::new()
    )]
    key_separator: Option<String>,
    /// The key of every record
    #[arg(long, group = "keys", value_name = "KEY")]
    key: Option<String>,
    /// A header of every record; may be given again
    #[arg(short = 'H', long = "header", value_parser = parse::pair, value_name = "NAME=VALUE")]
    headers: Vec<(String, String)>,
    /// Lines are JSON objects, and this field is the message id: a line whose id was appended
    /// before, within the topic's message-id window, is not appended again
    #[arg(long, group = "ids", value_name = "FIELD")]
    message_id_field: Option<String>,
    /// The message id of every line; of one id only the first is appended
    #[arg(long, group = "ids", value_name = "ID")]
    message_id: Option<String>,
    /// Into this partition; else by key
    #[arg(short, long)]
    partition: Option<u32>,
    /// An empty value is a tombstone: what the key names is gone
    #[arg(long)]
    tombstones: bool,
    /// When a record counts as sent: once it is committed, or at once
    #[arg(long, value_enum, default_value_t = Acks::Committed)]
    acks: Acks,
    /// How batches are compressed
    #[arg(short = 'z', long, value_enum, default_value_t = Codec::None)]
    compression: Codec,
    /// At most so many records a second
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Acks {
    Committed,
    None,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Codec {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

pub(crate) async fn run(args: ProduceArgs, context: &mut Context) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let request = connection.request(v1::GetTopicRequest {
        name: args.topic.clone(),
    });
    let topic = connection
        .answer(connection.topics().get_topic(request))
        .await?
        .topic;
    let shape = args.shape(&topic.unwrap_or_default().config.unwrap_or_default());
    let reader = open(&args, context).await?;
    let progress = Progress::new("sent", None, context.output.quiet);
    let work = Work {
        shape,
        summary: Summary::default(),
        progress,
        rate: args.rate,
        server: context.global.server.clone(),
        begun: Since::now(),
    };
    let begun = work.begun;
    let summary = match args.acks {
        Acks::Committed => {
            work.commit(reader, open_producer(&args, &connection, context).await?)
                .await
        }
        Acks::None => {
            work.send(reader, Unanswered::new(connection, args.topic.clone()))
                .await
        }
    };
    let took = begun.passed();
    context.output.note(&summary.to_text(took));
    if context.global.output.is_some() {
        let blocks = vec![Block::Text(summary.to_text(took))];
        context.output.show(&View::one(
            &args.topic,
            summary.to_json(&args.topic, took),
            blocks,
        ))?;
    }
    summary.into_result()
}

impl ProduceArgs {
    fn has_ids(&self) -> bool {
        self.message_id_field.is_some() || self.message_id.is_some()
    }

    fn shape(&self, config: &v1::TopicConfig) -> Shape {
        let record_bytes_max = usize::try_from(config.max_record_bytes).ok();
        Shape {
            key_field: self.key_field.clone(),
            separator: self.key_separator.clone(),
            key: self.key.clone(),
            id_field: self.message_id_field.clone(),
            id: self.message_id.clone(),
            headers: self.headers.clone(),
            partition: self.partition,
            tombstones: self.tombstones,
            record_bytes_max: record_bytes_max
                .filter(|max| *max > 0)
                .unwrap_or(LINE_BYTES_MAX),
        }
    }
}

async fn open(
    args: &ProduceArgs,
    context: &Context,
) -> Result<Box<dyn AsyncBufRead + Unpin>, Failure> {
    let Some(path) = &args.file else {
        if io::stdin().is_terminal() {
            context.output.note("one record a line, Ctrl-D ends");
        }
        return Ok(Box::new(BufReader::with_capacity(
            READ_BYTES,
            tokio::io::stdin(),
        )));
    };
    let file = tokio::fs::File::open(path)
        .await
        .map_err(|error| Failure::io(&path.display().to_string(), &error))?;
    Ok(Box::new(BufReader::with_capacity(READ_BYTES, file)))
}

async fn open_producer(
    args: &ProduceArgs,
    connection: &Connection,
    context: &Context,
) -> Result<Producer, Failure> {
    let compression = match args.compression {
        Codec::None => Compression::None,
        Codec::Gzip => Compression::Gzip,
        Codec::Snappy => Compression::Snappy,
        Codec::Lz4 => Compression::Lz4,
        Codec::Zstd => Compression::Zstd,
    };
    let opened = Producer::config()
        .compression(compression)
        .message_ids(args.has_ids())
        .batch_bytes(BATCH_BYTES)
        .delivery_timeout(context.global.timeout)
        .request_timeout(context.global.timeout)
        .max_block(context.global.timeout)
        .open(connection, args.topic.as_str())
        .await;
    opened.map_err(|error| connection.failure(error.error))
}

struct Work {
    shape: Shape,
    summary: Summary,
    progress: Progress,
    rate: Option<u32>,
    server: String,
    begun: Since,
}

impl Work {
    async fn commit(
        mut self,
        mut reader: impl AsyncBufRead + Unpin,
        producer: Producer,
    ) -> Summary {
        let mut sink = Committed::new(producer);
        let mut settled = Vec::new();
        let mut number = 0;
        while self.summary.fatal.is_none() {
            let Some(line) = self.read(&mut reader).await else {
                break;
            };
            number += 1;
            if let Some((parts, bytes)) = self.parse(number, line) {
                self.pace(number).await;
                sink.send(number, bytes, self.shape.record(parts), &mut settled)
                    .await;
            }
            self.count(&mut settled);
        }
        sink.finish(&mut settled).await;
        self.count(&mut settled);
        self.progress.finish();
        self.summary
    }

    async fn send(
        mut self,
        mut reader: impl AsyncBufRead + Unpin,
        mut sink: Unanswered,
    ) -> Summary {
        let mut number = 0;
        while let Some(line) = self.read(&mut reader).await {
            number += 1;
            let Some((parts, bytes)) = self.parse(number, line) else {
                continue;
            };
            self.pace(number).await;
            self.summary.bytes += bytes;
            let sent = sink.send(self.shape.message(parts)).await;
            if !self.sent(sent) {
                break;
            }
        }
        if self.summary.fatal.is_none() {
            let sent = sink.flush().await;
            self.sent(sent);
        }
        self.progress.finish();
        self.summary
    }

    /// The next line; none at the end, or when reading failed.
    async fn read(&mut self, reader: &mut (impl AsyncBufRead + Unpin)) -> Option<Line> {
        match next_line(reader).await {
            Ok(line) => line,
            Err(error) => {
                self.summary.fatal = Some(Failure::io("reading the input", &error));
                None
            }
        }
    }

    fn parse(&mut self, number: u64, line: Line) -> Option<(super::input::Parts, u64)> {
        let parts = match line {
            Line::TooLong => Err(format!("longer than {LINE_BYTES_MAX} bytes")),
            Line::Bytes(line) => {
                let bytes = line.len() as u64;
                self.shape.parts(line).map(|parts| (parts, bytes))
            }
        };
        parts.map_err(|why| self.fail(number, &why)).ok()
    }

    fn fail(&mut self, number: u64, why: &str) {
        if let Some(report) = self.summary.fail(number, why) {
            self.progress.note(&report);
        }
    }

    fn count(&mut self, settled: &mut Vec<Settled>) {
        for Settled {
            line,
            bytes,
            outcome,
        } in settled.drain(..)
        {
            match outcome {
                Ok(true) => {
                    self.summary.duplicate += 1;
                    self.progress.add(1);
                }
                Ok(false) => {
                    self.summary.appended += 1;
                    self.summary.bytes += bytes;
                    self.progress.add(1);
                }
                Err(error) => {
                    self.fail(line, &error.to_string());
                    if self.summary.fatal.is_none() && is_fatal(&error) {
                        self.summary.fatal = Some(failure(&error, &self.server));
                    }
                }
            }
        }
    }

    fn sent(&mut self, sent: Result<u64, Failure>) -> bool {
        match sent {
            Ok(records) => {
                self.summary.appended += records;
                self.progress.add(records);
                true
            }
            Err(failure) => {
                self.summary.fatal = Some(failure);
                false
            }
        }
    }

    async fn pace(&self, number: u64) {
        let Some(rate) = self.rate else { return };
        let nanos = u128::from(number - 1) * 1_000_000_000 / u128::from(rate);
        let due = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let wait = due.saturating_sub(self.begun.passed());
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }
}

/// What befell this record will befall the next ones too.
fn is_fatal(error: &SendError) -> bool {
    match error {
        SendError::Invalid(_) => false,
        SendError::Refused { error, .. } => error.code() != tonic::Code::InvalidArgument,
        SendError::BufferFull { .. }
        | SendError::Backpressure { .. }
        | SendError::TimedOut { .. }
        | SendError::Closed
        | SendError::Lost => true,
    }
}

fn failure(error: &SendError, server: &str) -> Failure {
    match error {
        SendError::Refused { error, .. } | SendError::Backpressure { error, .. } => {
            Failure::call(error, server)
        }
        SendError::TimedOut {
            last: Some(last), ..
        } if last.code() == tonic::Code::Unavailable || last.is_backpressure() => {
            Failure::call(last, server)
        }
        SendError::TimedOut { .. } | SendError::BufferFull { .. } => {
            Failure::new(Exit::Timeout, error.to_string()).hint("--timeout with more time")
        }
        SendError::Invalid(_) | SendError::Closed | SendError::Lost => {
            Failure::new(Exit::Failed, error.to_string())
        }
    }
}
