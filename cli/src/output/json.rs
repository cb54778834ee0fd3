//! Messages of the contract as JSON: the names of proto JSON, 64-bit numbers as text, fields
//! with their default value present.

use std::sync::LazyLock;

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};
use serde_json::Value;

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    DescriptorPool::decode(varvelog_proto::FILE_DESCRIPTOR_SET)
        .expect("the contract was compiled with this program")
});

/// The descriptors of the contract.
pub(crate) fn descriptors() -> &'static DescriptorPool {
    &POOL
}

/// A message as JSON. `name` is that of its type in package `varvelog.v1`.
pub(crate) fn to_json(name: &str, message: &impl Message) -> Value {
    let descriptor = POOL
        .get_message_by_name(&format!("varvelog.v1.{name}"))
        .expect("callers name a message of the contract");
    let bytes = message.encode_to_vec();
    let dynamic = DynamicMessage::decode(descriptor, bytes.as_slice())
        .expect("a message decodes as its own type");
    let options = SerializeOptions::new().skip_default_fields(false);
    dynamic
        .serialize_with_options(serde_json::value::Serializer, &options)
        .expect("every message of the contract has a JSON form")
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use varvelog_proto::v1;

    use super::*;

    #[test]
    fn names_are_those_of_proto_json_and_wide_numbers_are_text() {
        let status = v1::PartitionStatus {
            partition: 3,
            latest_offset: i64::MAX,
            oldest_append_time: Some(prost_types::Timestamp {
                seconds: 979_397_760,
                nanos: 0,
            }),
            ..v1::PartitionStatus::default()
        };
        assert_eq!(
            to_json("PartitionStatus", &status),
            json!({
                "partition": 3,
                "earliestOffset": "0",
                "latestOffset": "9223372036854775807",
                "oldestAppendTime": "2001-01-13T14:56:00Z",
                "sizeBytes": "0",
                "epoch": 0,
            })
        );
    }

    #[test]
    fn enums_are_names_and_durations_are_seconds() {
        let config = v1::GroupConfig {
            mode: v1::GroupMode::Queue.into(),
            visibility_timeout: Some(prost_types::Duration {
                seconds: 1,
                nanos: 500_000_000,
            }),
            ..v1::GroupConfig::default()
        };
        let shown = to_json("GroupConfig", &config);
        assert_eq!(shown["mode"], "GROUP_MODE_QUEUE");
        assert_eq!(shown["onFailure"], "ON_FAILURE_UNSPECIFIED");
        assert_eq!(shown["visibilityTimeout"], "1.500s");
        assert_eq!(shown.get("sessionTimeout"), None);
    }
}
