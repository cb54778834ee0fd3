//! Arguments of `varvelog consume`, and joining and leaving the group.

use std::time::Duration;

use clap::{Args, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};
use varvelog_proto::v1;

use super::session::Session;
use crate::clock;
use crate::connect::Connection;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{RecordPrinter, Template};
use crate::parse;

/// With --exec a record is held for so long, and for so long again while its command runs.
pub(super) const EXEC_HOLD: Duration = Duration::from_secs(30);
/// Responses that may be out unsettled when none ever is.
const UNACKED_MAX: i32 = 1000;

/// Arguments.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "With --exec each record's value is the command's standard input, and \
                  VARVELOG_TOPIC, VARVELOG_PARTITION, VARVELOG_OFFSET, VARVELOG_KEY, \
                  VARVELOG_TIMESTAMP_MS and VARVELOG_ATTEMPT tell the rest. Exit code 0 settles \
                  the record, 65 makes it a dead letter, any other fails it: it comes again as \
                  the group's retry policy says. If any failed, the exit code is 8."
)]
pub(crate) struct ConsumeArgs {
    /// What to read; a group that exists knows its topics, and is given those it lacks
    #[arg(value_name = "TOPIC")]
    pub(super) topics: Vec<String>,
    /// The group; made if it does not exist
    #[arg(short, long)]
    pub(super) group: String,
    /// When records are settled: with each response, with each record, or never (they come again)
    #[arg(long, value_enum, default_value_t = Settle::Auto)]
    pub(super) ack: Settle,
    /// Run this shell command for each record
    #[arg(long, value_name = "COMMAND", conflicts_with = "format")]
    pub(super) exec: Option<String>,
    /// End once the group has nothing left to do
    #[arg(short, long)]
    pub(super) exit: bool,
    /// End after so many records
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) limit: Option<u64>,
    /// Where a new group begins: as of tail [default: earliest]
    #[arg(long, value_parser = parse::from, allow_hyphen_values = true, value_name = "POSITION")]
    from: Option<parse::From>,
    /// A name that keeps its place in the group through a restart
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "NAME"
    )]
    member: String,
    /// Template, as of tail; %a is the attempt
    #[arg(short, long, value_parser = Template::parse, value_name = "TEMPLATE")]
    format: Option<Template>,
}

/// `--ack`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Settle {
    Auto,
    Each,
    None,
}

pub(crate) async fn run(args: ConsumeArgs, context: &mut Context) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let stream = connection
        .answer(connection.group().consume(args.to_request()))
        .await?;
    let mut terminated = signal(SignalKind::terminate())
        .map_err(|error| Failure::io("cannot watch for SIGTERM", &error))?;
    let printer = RecordPrinter::new(args.format.clone(), &context.output);
    let mut session = Session::new(&args, &connection, printer, &mut context.output);
    let ended = tokio::select! {
        ended = session.work(stream) => ended,
        _ = tokio::signal::ctrl_c() => Err(Failure::silent(Exit::Interrupted)),
        _ = terminated.recv() => Err(Failure::silent(Exit::Interrupted)),
    };
    let (member_id, failed) = session.finish();
    leave(&args.group, member_id, &connection).await;
    ended?;
    if failed > 0 {
        return Err(Failure::new(
            Exit::Partly,
            format!("{failed} records failed"),
        ));
    }
    Ok(())
}

impl ConsumeArgs {
    fn to_request(&self) -> v1::ConsumeRequest {
        let one_by_one = self.exec.is_some();
        let hold = one_by_one.then(|| prost_types::Duration::try_from(EXEC_HOLD).ok());
        v1::ConsumeRequest {
            group: self.group.clone(),
            topics: self.topics.clone(),
            member_name: self.member.clone(),
            start: self.from.map(|from| from.to_position(clock::unix_ms())),
            max_records: i32::from(one_by_one),
            max_unacked_responses: match (self.ack, one_by_one) {
                (Settle::None, _) => UNACKED_MAX,
                (_, true) => 1,
                (_, false) => 0,
            },
            ack_timeout: hold.flatten(),
            accept_omitted: true,
            ..v1::ConsumeRequest::default()
        }
    }
}

/// What is held is given to others at once. Failing at it costs them the session timeout only.
async fn leave(group: &str, member_id: String, connection: &Connection) {
    if member_id.is_empty() {
        return;
    }
    let request = connection.request(v1::LeaveRequest {
        group: group.to_owned(),
        member_id,
    });
    if let Err(failure) = connection.answer(connection.group().leave(request)).await {
        tracing::info!(%failure, "could not leave the group");
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Parsed {
        #[command(flatten)]
        consume: ConsumeArgs,
    }

    fn request(line: &str) -> v1::ConsumeRequest {
        let words = std::iter::once("consume").chain(line.split(' '));
        Parsed::try_parse_from(words).unwrap().consume.to_request()
    }

    #[test]
    fn commands_get_one_record_at_a_time() {
        let plain = request("orders -g email");
        assert_eq!((plain.max_records, plain.max_unacked_responses), (0, 0));
        assert_eq!(plain.start, None);
        let exec = request("orders -g email --exec true");
        assert_eq!((exec.max_records, exec.max_unacked_responses), (1, 1));
        assert_eq!(exec.ack_timeout.unwrap().seconds, 30);
        assert_eq!(
            request("orders -g email --ack none").max_unacked_responses,
            1000
        );
    }

    #[test]
    fn a_group_is_required() {
        assert!(Parsed::try_parse_from(["consume", "orders"]).is_err());
        assert!(request("-g email").topics.is_empty());
    }
}
