//! `varvelog topic list`.

use clap::Args;
use varvelog_client::Admin;

use super::views::topics_view;
use crate::context::Context;
use crate::failure::Failure;

/// Arguments.
#[derive(Args, Clone, Debug)]
pub(crate) struct ListArgs {
    /// Only names that begin so
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
    /// Also the retry and dead-letter topics of groups
    #[arg(long)]
    derived: bool,
}

pub(crate) async fn run(args: ListArgs, context: &mut Context) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let topics = Admin::new(&connection)
        .topics(args.prefix, args.derived)
        .await;
    let topics = topics.map_err(|error| connection.failure(error))?;
    context
        .output
        .show(&topics_view(&topics, &context.output.zone.clone()))?;
    Ok(())
}
