//! `varvelog completions`: what a shell needs to complete commands and options.

use clap::Args;
use clap_complete::Shell;

use crate::context::Context;
use crate::failure::Failure;
use crate::run::command;

/// Arguments.
#[derive(Args, Clone, Debug)]
pub(crate) struct CompletionsArgs {
    /// For which shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs, context: &mut Context) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command(), "varvelog", &mut script);
    context.output.raw(&script)?;
    Ok(context.output.flush()?)
}
