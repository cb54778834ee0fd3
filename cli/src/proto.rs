//! `varvelog proto`: the API contract as files, for programs in any language.

use std::path::PathBuf;

use clap::Args;
use prost_types::method_options::IdempotencyLevel;
use serde_json::{Value, json};

use crate::context::Context;
use crate::failure::Failure;
use crate::output::descriptors;

const SERVICE_CONFIG: &str = "varvelog-service-config.json";

/// Arguments.
#[derive(Args, Clone, Debug)]
pub(crate) struct ProtoArgs {
    /// Made if it does not exist; files of the same names are replaced
    #[arg(value_name = "FOLDER")]
    pub(crate) dir: PathBuf,
}

pub(crate) async fn run(args: &ProtoArgs, context: &mut Context) -> Result<(), Failure> {
    let config = serde_json::to_string_pretty(&service_config()).map_err(std::io::Error::from)?;
    let mut files: Vec<(&str, String)> = varvelog_proto::PROTO_FILES
        .iter()
        .map(|(path, text)| (*path, (*text).into()))
        .collect();
    files.push((SERVICE_CONFIG, config + "\n"));
    for (path, text) in &files {
        let target = args.dir.join(path);
        let shown = target.display().to_string();
        if let Some(folder) = target.parent() {
            let made = tokio::fs::create_dir_all(folder).await;
            made.map_err(|error| Failure::io(&shown, &error))?;
        }
        tokio::fs::write(&target, text)
            .await
            .map_err(|error| Failure::io(&shown, &error))?;
        context.output.raw(format!("{shown}\n").as_bytes())?;
    }
    Ok(context.output.flush()?)
}

/// The gRPC service config: calls that the contract calls idempotent are sent again when the
/// broker could not be reached. Others never are, since they may have been done.
fn service_config() -> Value {
    let mut names = Vec::new();
    for service in descriptors()
        .services()
        .filter(|s| s.full_name().starts_with("varvelog."))
    {
        for method in service.methods() {
            let options = method
                .method_descriptor_proto()
                .options
                .clone()
                .unwrap_or_default();
            if options.idempotency_level() != IdempotencyLevel::IdempotencyUnknown {
                names.push(json!({ "service": service.full_name(), "method": method.name() }));
            }
        }
    }
    json!({
        "methodConfig": [{
            "name": names,
            "retryPolicy": {
                "maxAttempts": 5,
                "initialBackoff": "0.2s",
                "maxBackoff": "5s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_idempotent_calls_are_sent_again() {
        let config = service_config();
        let names = config["methodConfig"][0]["name"].as_array().unwrap();
        let has = |service: &str, method: &str| {
            let service = format!("varvelog.v1.{service}");
            names
                .iter()
                .any(|name| name["service"] == *service && name["method"] == *method)
        };
        assert!(has("LogService", "Produce"));
        assert!(has("LogService", "Fetch"));
        assert!(has("GroupService", "Ack"));
        assert!(!has("LogService", "InitProducer"));
        assert!(!has("TopicService", "DeleteTopic"));
    }
}
