//! `varvelog log repair`.

use clap::Args;
use serde_json::json;
use varvelog_store::wal::WalError;

use super::command::FolderArgs;
use super::folder::Folder;
use crate::confirm::Consent;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Block, View};

/// Arguments.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "A last resort: what was acknowledged since the checkpoint is lost. Restoring the \
                  files of the write-ahead log loses nothing. The log is moved aside, not deleted."
)]
pub(crate) struct RepairArgs {
    #[command(flatten)]
    folder: FolderArgs,
    /// Start from the newest whole checkpoint, without the write-ahead log
    #[arg(long, required = true)]
    from_checkpoint: bool,
    #[command(flatten)]
    consent: Consent,
}

pub(crate) fn run(args: &RepairArgs, context: &mut Context) -> Result<(), Failure> {
    let path = &args.folder.folder;
    let folder = Folder::open(path)?;
    let error = match folder.wal_tail() {
        Ok(_) => {
            context
                .output
                .note("the write-ahead log is sound: nothing to repair");
            return Ok(());
        }
        Err(error @ WalError::Io { .. }) => {
            return Err(Failure::new(Exit::Failed, error.to_string()));
        }
        Err(error) => error,
    };
    let Some(checkpoint) = &folder.checkpoint else {
        let message = format!("{error}; and there is no checkpoint to start from");
        return Err(Failure::new(Exit::Damage, message)
            .hint("restore the folder from a copy, or begin with an empty one"));
    };
    let sequence = checkpoint.sequence;
    let shown = path.display().to_string();
    let plan = vec![
        ("folder", shown.clone()),
        ("write-ahead log", error.to_string()),
        (
            "start from",
            format!("the checkpoint of command {sequence}"),
        ),
        (
            "lost",
            format!("all that was acknowledged after command {sequence}"),
        ),
    ];
    let json = json!({
        "folder": shown,
        "wal": error.to_string(),
        "checkpoint": sequence.to_string(),
    });
    let plan = View::one(shown, json, vec![Block::Pairs(plan)]);
    if !args
        .consent
        .obtain(&plan, "Give up the write-ahead log?", context)?
    {
        return Ok(());
    }
    let aside = folder.give_up_wal(sequence)?;
    context.output.note(&format!(
        "the folder wal is called {aside} now; the next start begins with command {}",
        sequence.next()
    ));
    Ok(())
}
