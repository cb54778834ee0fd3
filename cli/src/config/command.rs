//! The commands below `varvelog config`.

use clap::Subcommand;

use super::{check, show, template};
use crate::context::Context;
use crate::failure::Failure;

/// Below `config`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// Say whether a broker would start with this configuration
    Check(check::CheckArgs),
    /// Show every value in force and where it comes from
    Show(show::ShowArgs),
    /// Print a configuration file with every key, its default, unit and bounds
    Template(template::TemplateArgs),
}

pub(crate) async fn run(command: Command, context: &mut Context) -> Result<(), Failure> {
    match command {
        Command::Check(args) => check::run(&args, context),
        Command::Show(args) => show::run(args, context).await,
        Command::Template(args) => template::run(args, context),
    }
}
