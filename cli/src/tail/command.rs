//! Arguments and loop of `varvelog tail`.

use std::time::Duration;

use clap::Args;
use tonic::Streaming;
use varvelog_proto::v1;

use super::backlog::{Backlog, PartitionName};
use crate::clock;
use crate::connect::Connection;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{Output, Printed, RecordPrinter, Template};
use crate::parse;

const LAST_DEFAULT: u32 = 10;
const LAST_MAX: i64 = 10_000;
/// A broker that sends nothing for so long has sent what it has.
const QUIET_TIME: Duration = Duration::from_secs(1);

/// Arguments.
#[derive(Args, Clone, Debug)]
pub(crate) struct TailArgs {
    /// Their names
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<String>,
    /// Begin at earliest, latest, an offset, a time, -15m for so long ago, or -N for the last N
    /// of each partition
    #[arg(
        long,
        value_parser = parse::from,
        allow_hyphen_values = true,
        value_name = "POSITION",
        conflicts_with = "last"
    )]
    from: Option<parse::From>,
    /// Begin with the last N of all partitions together [default: 10]
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(0..=LAST_MAX)
    )]
    last: Option<u32>,
    /// End after so many records
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    limit: Option<i64>,
    /// End at the newest record instead of waiting for more
    #[arg(short, long)]
    exit: bool,
    /// Leave out records appended at this time or later; implies --exit
    #[arg(long, value_parser = parse::time, value_name = "TIME")]
    until: Option<i64>,
    /// Only records with this key
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Only records whose value holds this text
    #[arg(long, value_name = "TEXT")]
    grep: Option<String>,
    /// Template: %t topic, %p partition, %o offset, %k key, %v value, %h headers, %d time,
    /// %v{hex}, \n
    #[arg(short, long, value_parser = Template::parse, value_name = "TEMPLATE")]
    format: Option<Template>,
}

pub(crate) async fn run(args: TailArgs, context: &mut Context) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let backlog = backlog(&args, &connection).await?;
    let request = args.to_request(backlog.is_some());
    let stream = connection.answer(connection.log().tail(request)).await?;
    let tail = Tail {
        printer: RecordPrinter::new(args.format.clone(), &context.output),
        output: &mut context.output,
        printed: 0,
        args: &args,
    };
    let reading = tail.read(stream, backlog, &connection);
    tokio::select! {
        ended = reading => ended,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted.map_err(|error| Failure::io("Ctrl-C", &error))
        }
    }
}

impl TailArgs {
    /// Records are left out here, so the broker cannot count them.
    fn filters(&self) -> bool {
        self.grep.is_some() || self.until.is_some()
    }

    /// The last N over all partitions can be told only where every record is seen.
    fn last_of_all(&self) -> Option<u32> {
        let seen = self.from.is_none() && self.key.is_none() && !self.filters();
        seen.then(|| self.last.unwrap_or(LAST_DEFAULT))
    }

    fn to_request(&self, counted_here: bool) -> v1::TailRequest {
        let last = i64::from(self.last.unwrap_or(LAST_DEFAULT));
        let start = self.from.unwrap_or(parse::From::Last(last));
        let counted_here = counted_here || self.filters();
        v1::TailRequest {
            topics: self.topics.clone(),
            start: Some(start.to_position(clock::unix_ms())),
            limit: if counted_here {
                0
            } else {
                self.limit.unwrap_or(0)
            },
            stop_at_end: self.exit || self.until.is_some(),
            key_equals: self.key.clone().unwrap_or_default().into(),
        }
    }

    fn wants(&self, record: &v1::Record) -> bool {
        let in_time = self.until.is_none_or(|until| record.append_time_ms < until);
        let value = record.value.as_deref().unwrap_or_default();
        in_time
            && self
                .grep
                .as_ref()
                .is_none_or(|text| contains(value, text.as_bytes()))
    }
}

fn contains(value: &[u8], text: &[u8]) -> bool {
    text.is_empty() || value.windows(text.len()).any(|window| window == text)
}

/// Where the last N of each partition begin and end now.
async fn backlog(args: &TailArgs, connection: &Connection) -> Result<Option<Backlog>, Failure> {
    let Some(last) = args.last_of_all() else {
        return Ok(None);
    };
    let mut partitions = Vec::new();
    for topic in &args.topics {
        let offsets = async |position: parse::From| {
            let request = connection.request(v1::ListOffsetsRequest {
                topic: topic.clone(),
                partitions: Vec::new(),
                at: Some(position.to_position(0)),
            });
            connection
                .answer(connection.log().list_offsets(request))
                .await
        };
        let ends = offsets(parse::From::Latest).await?.offsets;
        let starts = offsets(parse::From::Last(last.into())).await?.offsets;
        for (start, end) in starts.into_iter().zip(ends) {
            partitions.push(((topic.clone(), end.partition), start.offset, end.offset));
        }
    }
    Ok(Some(Backlog::new(
        usize::try_from(last).unwrap_or(usize::MAX),
        partitions,
    )))
}

struct Tail<'a> {
    args: &'a TailArgs,
    printer: RecordPrinter,
    output: &'a mut Output,
    printed: i64,
}

impl Tail<'_> {
    async fn read(
        mut self,
        mut stream: Streaming<v1::TailResponse>,
        mut backlog: Option<Backlog>,
        connection: &Connection,
    ) -> Result<(), Failure> {
        loop {
            if let Some(complete) = backlog.take_if(|backlog| backlog.is_complete()) {
                self.print_backlog(complete)?;
            }
            if self.is_full() {
                return Ok(());
            }
            let next = stream.message();
            let message = if backlog.is_none() {
                next.await
            } else if let Ok(message) = tokio::time::timeout(QUIET_TIME, next).await {
                message
            } else {
                if let Some(found) = backlog.take() {
                    self.print_backlog(found)?;
                }
                continue;
            };
            let Some(response) = message.map_err(|status| connection.failure(status))? else {
                return backlog.map_or(Ok(()), |found| self.print_backlog(found));
            };
            self.take(response, &mut backlog)?;
        }
    }

    fn take(
        &mut self,
        response: v1::TailResponse,
        backlog: &mut Option<Backlog>,
    ) -> Result<(), Failure> {
        let partition = (response.topic, response.partition);
        for record in response.records {
            match backlog {
                Some(backlog) => backlog.push(partition.clone(), record),
                None => self.print(&partition, &record)?,
            }
        }
        Ok(self.output.flush()?)
    }

    fn print_backlog(&mut self, backlog: Backlog) -> Result<(), Failure> {
        for (partition, record) in backlog.into_records() {
            self.print(&partition, &record)?;
        }
        Ok(self.output.flush()?)
    }

    fn print(&mut self, partition: &PartitionName, record: &v1::Record) -> Result<(), Failure> {
        if self.is_full() || !self.args.wants(record) {
            return Ok(());
        }
        self.printed += 1;
        let printed = Printed {
            topic: &partition.0,
            partition: partition.1,
            record,
        };
        Ok(self.printer.print(printed, self.output)?)
    }

    fn is_full(&self) -> bool {
        self.args.limit.is_some_and(|limit| self.printed >= limit)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Parsed {
        #[command(flatten)]
        tail: TailArgs,
    }

    fn args(line: &str) -> TailArgs {
        let words = std::iter::once("tail").chain(line.split(' '));
        Parsed::try_parse_from(words).unwrap().tail
    }

    #[test]
    fn without_a_position_the_last_ten_of_all_are_shown() {
        let ten = args("t");
        assert_eq!(ten.last_of_all(), Some(10));
        let request = ten.to_request(true);
        assert_eq!(request.start.unwrap().at, Some(v1::position::At::LastN(10)));
        assert!(!request.stop_at_end);
        assert_eq!(args("t -n 3").last_of_all(), Some(3));
        assert_eq!(args("t --from earliest").last_of_all(), None);
        assert_eq!(args("t --key SAN").last_of_all(), None);
        assert_eq!(args("t --grep x").last_of_all(), None);
    }

    #[test]
    fn the_broker_counts_only_what_it_sees_as_we_do() {
        assert_eq!(
            args("t --from earliest --limit 5").to_request(false).limit,
            5
        );
        assert_eq!(
            args("t --from earliest --limit 5 --grep x")
                .to_request(false)
                .limit,
            0
        );
        assert_eq!(args("t --limit 5").to_request(true).limit, 0);
        assert!(args("t -e").to_request(true).stop_at_end);
        assert!(
            args("t --until 2001-01-13T14:56:00Z")
                .to_request(false)
                .stop_at_end
        );
    }

    #[test]
    fn grep_and_until_choose_records() {
        let record = v1::Record {
            value: Some("{\"origin\":\"SAN\"}".into()),
            append_time_ms: 979_397_760_000,
            ..v1::Record::default()
        };
        assert!(args("t --grep SAN").wants(&record));
        assert!(!args("t --grep SFO").wants(&record));
        assert!(!args("t --until 2001-01-13T14:56:00Z").wants(&record));
        assert!(args("t --until 2001-01-13T14:56:01Z").wants(&record));
    }

    #[test]
    fn two_ways_to_begin_contradict_each_other() {
        let words = ["tail", "t", "-n", "3", "--from", "5"];
        assert!(Parsed::try_parse_from(words).is_err());
        assert!(Parsed::try_parse_from(["tail"]).is_err());
    }
}
