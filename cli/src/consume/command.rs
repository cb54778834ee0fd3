//! Arguments of `varvelog consume`, and joining and leaving the group.

use clap::{Args, ValueEnum};
use varvelog_proto::v1;

use super::interrupts::Interrupts;
use super::session::Session;
use super::work;
use crate::clock;
use crate::connect::Connection;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{RecordPrinter, Template};
use crate::parse;

/// Responses that may be out unsettled when none ever is.
const UNACKED_MAX: i32 = 1000;

/// Arguments.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "With --exec each record's value is the command's standard input, and \
                  VARVELOG_TOPIC, VARVELOG_PARTITION, VARVELOG_OFFSET, VARVELOG_KEY, \
                  VARVELOG_TIMESTAMP_MS, VARVELOG_ATTEMPT, VARVELOG_MESSAGE_ID and VARVELOG_FENCE \
                  tell the rest. VARVELOG_OMITTED_BYTES is empty unless the value was too large \
                  to be brought. A record stays with its command for as long as that takes.\n\n\
                  Exit code 0: the record is done. 65: it is a dead letter. Any other, N: it \
                  comes again, unless the group has a rule for the error code `exit N`; the last \
                  line of standard error is the message. If any failed, this exits with 8.\n\n\
                  A connection that breaks is made again. Ctrl-C finishes the commands that run \
                  and gives back the rest; a second one, more than 1 s later, ends them."
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
    /// Commands at a time; with more than one the order of a partition is lost
    #[arg(long, default_value_t = 1, requires = "exec", value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) concurrency: u32,
    /// End once the group has nothing left to do
    #[arg(short, long)]
    pub(super) exit: bool,
    /// End after so many records
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) limit: Option<u64>,
    /// Where a new group begins: as of tail [default: earliest]
    #[arg(long, value_parser = parse::from, allow_hyphen_values = true, value_name = "POSITION")]
    pub(super) from: Option<parse::From>,
    /// A name that keeps its place in the group through a restart
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "NAME"
    )]
    pub(super) member: String,
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
    if args.exec.is_some() && args.ack == Settle::None {
        return Err(Failure::usage(
            "--exec settles each record by the exit code, so it does not go with --ack none",
        ));
    }
    let connection = context.connect().await?;
    let (interrupts, counting) = Interrupts::watch()?;
    let consuming = async {
        match &args.exec {
            Some(command) => work::work(&args, command, &connection, context, &interrupts).await,
            None => print(&args, &connection, context, &interrupts).await,
        }
    };
    tokio::select! {
        ended = consuming => ended,
        never = counting => match never {},
    }
}

async fn print(
    args: &ConsumeArgs,
    connection: &Connection,
    context: &mut Context,
    interrupts: &Interrupts,
) -> Result<(), Failure> {
    let printer = RecordPrinter::new(args.format.clone(), &context.output);
    let mut session = Session::new(args, connection, printer, &mut context.output);
    let ended = tokio::select! {
        ended = session.run() => ended,
        () = interrupts.at_least(1) => Err(Failure::silent(Exit::Interrupted)),
    };
    leave(&args.group, session.finish(), connection).await;
    ended
}

impl ConsumeArgs {
    /// For a member that was `member_id` before; empty: a new one.
    pub(super) fn to_request(&self, member_id: &str) -> v1::ConsumeRequest {
        v1::ConsumeRequest {
            group: self.group.clone(),
            topics: self.topics.clone(),
            member_id: member_id.to_owned(),
            member_name: self.member.clone(),
            start: self.from.map(|from| from.to_position(clock::unix_ms())),
            max_unacked_responses: match self.ack {
                Settle::None => UNACKED_MAX,
                Settle::Auto | Settle::Each => 0,
            },
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
        Parsed::try_parse_from(words)
            .unwrap()
            .consume
            .to_request("")
    }

    #[test]
    fn what_is_never_settled_does_not_hold_up_the_rest() {
        let plain = request("orders -g email");
        assert_eq!((plain.max_records, plain.max_unacked_responses), (0, 0));
        assert_eq!(plain.start, None);
        let none = request("orders -g email --ack none");
        assert_eq!(none.max_unacked_responses, 1000);
    }

    #[test]
    fn concurrency_is_of_commands() {
        let parse = |line: &str| {
            let words = std::iter::once("consume").chain(line.split(' '));
            Parsed::try_parse_from(words).map(|parsed| parsed.consume.concurrency)
        };
        assert_eq!(parse("o -g email --exec true").unwrap(), 1);
        assert_eq!(parse("o -g email --exec true --concurrency 8").unwrap(), 8);
        assert!(parse("o -g email --concurrency 8").is_err());
        assert!(parse("o -g email --exec true --concurrency 0").is_err());
    }

    #[test]
    fn a_group_is_required() {
        assert!(Parsed::try_parse_from(["consume", "orders"]).is_err());
        assert!(request("-g email").topics.is_empty());
    }
}
