//! `varvelog group describe`.

use clap::Args;

use super::calls::get_group;
use super::views::group_view;
use crate::context::Context;
use crate::failure::Failure;

/// Arguments.
#[derive(Args, Clone, Debug)]
pub(crate) struct DescribeArgs {
    /// Its name
    name: String,
}

pub(crate) async fn run(args: DescribeArgs, context: &mut Context) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let group = get_group(&connection, &args.name).await?;
    context
        .output
        .show(&group_view(&group, &context.output.zone.clone()))?;
    Ok(())
}
