//! The commands below `varvelog dlq`.

use clap::Subcommand;

use super::jobs::Control;
use super::{audit, discard, export, jobs, list, replay, show, stats, tail};
use crate::context::Context;
use crate::failure::Failure;

/// Below `dlq`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// List dead-letter topics and what is in them
    List(list::ListArgs),
    /// Show what records died of, and how they came and went
    Stats(stats::StatsArgs),
    /// Show dead letters, all or some
    Show(show::ShowArgs),
    /// Follow dead letters as they come
    Tail(tail::TailArgs),
    /// Give dead letters out again, all or some
    Replay(replay::ReplayArgs),
    /// Drop dead letters for good, all or some
    Discard(discard::DiscardArgs),
    /// List replay jobs of the last 30 days
    Jobs(jobs::JobsArgs),
    /// Show a replay job, or wait for its end
    Job(jobs::JobArgs),
    /// Hold a replay job; it keeps what it has claimed
    Pause(jobs::ControlArgs),
    /// Let a paused replay job go on
    Resume(jobs::ControlArgs),
    /// End a replay job; what it has not replayed is released
    Cancel(jobs::ControlArgs),
    /// Write dead letters to standard output, a JSON object a line
    Export(export::ExportArgs),
    /// Show who replayed, discarded, paused or cancelled what
    Audit(audit::AuditArgs),
}

pub(crate) async fn run(command: Command, context: &mut Context) -> Result<(), Failure> {
    match command {
        Command::List(args) => list::run(args, context).await,
        Command::Stats(args) => stats::run(args, context).await,
        Command::Show(args) => show::run(args, context).await,
        Command::Tail(args) => tail::run(args, context).await,
        Command::Replay(args) => replay::run(args, context).await,
        Command::Discard(args) => discard::run(args, context).await,
        Command::Jobs(args) => jobs::list(args, context).await,
        Command::Job(args) => jobs::show(args, context).await,
        Command::Pause(args) => jobs::control(args, Control::Pause, context).await,
        Command::Resume(args) => jobs::control(args, Control::Resume, context).await,
        Command::Cancel(args) => jobs::control(args, Control::Cancel, context).await,
        Command::Export(args) => export::run(args, context).await,
        Command::Audit(args) => audit::run(args, context).await,
    }
}
