//! `varvelog topic alter`.

use clap::Args;
use prost_types::FieldMask;
use varvelog_proto::v1;

use super::settings::SettingArgs;
use super::views::topic_view;
use crate::context::Context;
use crate::failure::Failure;

/// Arguments.
#[derive(Args, Clone, Debug)]
pub(crate) struct AlterArgs {
    /// Its name
    name: String,
    #[command(flatten)]
    settings: SettingArgs,
    /// Check and change nothing
    #[arg(long)]
    dry_run: bool,
}

pub(crate) async fn run(args: AlterArgs, context: &mut Context) -> Result<(), Failure> {
    let (config, paths) = args.settings.to_config()?;
    if paths.is_empty() {
        return Err(
            Failure::usage("nothing to change: give a setting").hint("varvelog topic alter --help")
        );
    }
    let topic = v1::Topic {
        name: args.name,
        config: Some(config),
        ..v1::Topic::default()
    };
    let connection = context.connect().await?;
    let request = connection.request(v1::UpdateTopicRequest {
        topic: Some(topic),
        update_mask: Some(FieldMask { paths }),
        validate_only: args.dry_run,
    });
    let answer = connection
        .answer(connection.topics().update_topic(request))
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
