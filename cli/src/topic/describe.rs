//! `varvelog topic describe`.

use clap::Args;
use varvelog_client::Admin;
use varvelog_proto::v1;

use super::views::topic_view;
use crate::connect::Connection;
use crate::context::Context;
use crate::failure::Failure;
use crate::group::groups_of_topic;

/// Arguments.
#[derive(Args, Clone, Debug)]
pub(crate) struct DescribeArgs {
    /// Its name
    name: String,
}

pub(crate) async fn run(args: DescribeArgs, context: &mut Context) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let topic = get_topic(&connection, &args.name).await?;
    let groups = groups_of_topic(&connection, &args.name).await?;
    context
        .output
        .show(&topic_view(&topic, &groups, &context.output.zone.clone()))?;
    Ok(())
}

/// The topic with its partitions.
pub(super) async fn get_topic(connection: &Connection, name: &str) -> Result<v1::Topic, Failure> {
    let topic = Admin::new(connection).topic(name).await;
    topic.map_err(|error| connection.failure(error))
}
