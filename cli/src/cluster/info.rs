//! `varvelog cluster info`.

use clap::Args;
use jiff::tz::TimeZone;
use varvelog_proto::v1;

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{Block, View, show_time, to_json};

/// Arguments.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct InfoArgs {}

pub(crate) async fn run(_: InfoArgs, context: &mut Context) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let request = connection.request(v1::GetInfoRequest {});
    let info = connection
        .answer(connection.cluster().get_info(request))
        .await?;
    context
        .output
        .show(&info_view(&info, &context.output.zone.clone()))?;
    Ok(())
}

fn info_view(info: &v1::GetInfoResponse, zone: &TimeZone) -> View {
    let pairs = vec![
        ("version", info.version.clone()),
        ("cluster", info.cluster_id.clone()),
        ("node", info.node_id.clone()),
        ("started", show_time(info.start_time.as_ref(), zone)),
        ("wal.sync", info.sync_policy.clone()),
        ("features", info.features.join(", ")),
    ];
    let json = to_json("GetInfoResponse", info);
    View::one(info.cluster_id.clone(), json, vec![Block::Pairs(pairs)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_broker_says_who_it_is() {
        let info = v1::GetInfoResponse {
            version: "0.1.0".into(),
            cluster_id: "c".into(),
            node_id: "n".into(),
            start_time: Some(prost_types::Timestamp {
                seconds: 979_397_760,
                nanos: 0,
            }),
            sync_policy: "always".into(),
            ..v1::GetInfoResponse::default()
        };
        let view = info_view(&info, &TimeZone::UTC);
        insta::assert_snapshot!(view.to_text(str::to_owned));
        insta::assert_snapshot!(view.json.to_string());
    }
}
