//! `varvelog config check`.

use clap::Args;

use super::sources::{SourceArgs, load};
use crate::context::Context;
use crate::failure::Failure;

/// Arguments.
#[derive(Args, Clone, Debug)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    sources: SourceArgs,
}

pub(crate) fn run(args: &CheckArgs, context: &mut Context) -> Result<(), Failure> {
    load(&args.sources)?;
    context.output.note("the configuration is valid");
    Ok(())
}
