//! `varvelog topic create`.

use clap::Args;
use varvelog_proto::v1;

use super::settings::SettingArgs;
use super::views::topic_view;
use crate::context::Context;
use crate::failure::Failure;

/// Arguments.
#[derive(Args, Clone, Debug)]
pub(crate) struct CreateArgs {
    /// Letters, digits and . _ -, at most 249
    name: String,
    /// How many partitions
    #[arg(short, long, default_value_t = 1)]
    partitions: i32,
    #[command(flatten)]
    settings: SettingArgs,
    /// A topic that is there already is no error, whatever its settings
    #[arg(long)]
    if_not_exists: bool,
    /// Check and change nothing
    #[arg(long)]
    dry_run: bool,
}

pub(crate) async fn run(args: CreateArgs, context: &mut Context) -> Result<(), Failure> {
    let (config, _) = args.settings.to_config()?;
    let topic = v1::Topic {
        name: args.name,
        partitions: args.partitions,
        config: Some(config),
        ..v1::Topic::default()
    };
    let connection = context.connect().await?;
    let request = connection.request(v1::CreateTopicRequest {
        topic: Some(topic),
        validate_only: args.dry_run,
        ok_if_exists: args.if_not_exists,
    });
    let answer = connection
        .answer(connection.topics().create_topic(request))
        .await?;
    let topic = answer.topic.unwrap_or_default();
    context
        .output
        .show(&topic_view(&topic, &[], &context.output.zone.clone()))?;
    if args.dry_run {
        context.output.note("dry run: nothing was changed");
    }
    Ok(())
}
