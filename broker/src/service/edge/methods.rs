//! What each method may be sent, read from the contract itself.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use prost::Message;
use prost_types::{FileDescriptorSet, MethodDescriptorProto};

/// Services for administrators: what they are sent is small.
const ADMIN_SERVICES: &[&str] = &[
    "varvelog.v1.TopicService",
    "varvelog.v1.GroupAdminService",
    "varvelog.v1.ClusterService",
    "varvelog.v1.DeadLetterService",
    "varvelog.v1.AlertService",
    "externalscaler.ExternalScaler",
    "grpc.health.v1.Health",
];
/// Requests that carry records: the broker walks them itself, so size costs only size.
const WALKED: &[&str] = &[
    ".varvelog.v1.ProduceRequest",
    ".varvelog.v1.ProduceStreamRequest",
    ".varvelog.v1.AckRequest",
    ".varvelog.v1.ConsumeSessionRequest",
];
/// Requests of administrators that name up to 10,000 records.
const LISTING: &[&str] = &[
    ".varvelog.v1.RetryNowRequest",
    ".varvelog.v1.SettleRecordsRequest",
    ".varvelog.v1.ListDeadLettersRequest",
];
/// Bounds of the largest other request of an administrator: structs take many times the bytes they
/// come as.
const ADMIN_BYTES: RangeInclusive<usize> = 64 * 1024..=1 << 20;
/// Its share of `limits.request_bytes`, as a divisor: 256 KiB of the default hold 10,000
/// partitions, or topics, by name.
const ADMIN_SHARE: usize = 64;
/// Largest message to a method that does not exist.
const UNKNOWN_BYTES_MAX: usize = 64 * 1024;
/// Largest request of everything else that is decoded into structs.
const CALL_BYTES_MAX: usize = 1 << 20;

/// How a method is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MethodShape {
    /// The caller sends any number of messages; else exactly one.
    pub is_client_stream: bool,
    /// The answer is a stream.
    pub is_server_stream: bool,
    /// Largest message that it takes, bytes.
    pub message_bytes_max: usize,
}

/// All methods by path (`/package.Service/Method`).
#[derive(Debug, Default)]
pub struct Methods {
    by_path: BTreeMap<String, MethodShape>,
    request_bytes_max: usize,
}

impl Methods {
    /// The methods of encoded descriptor sets. Requests that carry records may have
    /// `request_bytes_max` bytes, those of administrators a share of it.
    pub fn of(sets: &[&[u8]], request_bytes_max: usize) -> Result<Self, prost::DecodeError> {
        let mut methods = Self {
            by_path: BTreeMap::new(),
            request_bytes_max,
        };
        for set in sets {
            for file in FileDescriptorSet::decode(*set)?.file {
                for service in &file.service {
                    let service_name = format!("{}.{}", file.package(), service.name());
                    for method in &service.method {
                        methods.add(&service_name, method);
                    }
                }
            }
        }
        Ok(methods)
    }

    /// How the method at `path` is called. One that does not exist is answered without being read.
    pub fn shape(&self, path: &str) -> MethodShape {
        self.by_path.get(path).copied().unwrap_or(MethodShape {
            is_client_stream: true,
            is_server_stream: true,
            message_bytes_max: UNKNOWN_BYTES_MAX,
        })
    }

    /// Paths of all methods.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.by_path.keys().map(String::as_str)
    }

    fn add(&mut self, service: &str, method: &MethodDescriptorProto) {
        let message_bytes_max = if WALKED.contains(&method.input_type()) {
            self.request_bytes_max
        } else if ADMIN_SERVICES.contains(&service) && !LISTING.contains(&method.input_type()) {
            let share = self.request_bytes_max / ADMIN_SHARE;
            share.clamp(*ADMIN_BYTES.start(), *ADMIN_BYTES.end())
        } else {
            CALL_BYTES_MAX
        };
        let shape = MethodShape {
            is_client_stream: method.client_streaming(),
            is_server_stream: method.server_streaming(),
            message_bytes_max,
        };
        self.by_path
            .insert(format!("/{service}/{}", method.name()), shape);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_method_has_the_shape_and_limit_of_the_contract() {
        let sets = [
            varvelog_proto::FILE_DESCRIPTOR_SET,
            tonic_health::pb::FILE_DESCRIPTOR_SET,
        ];
        let methods = Methods::of(&sets, 16 << 20).unwrap();
        let shape = |path| {
            let shape = methods.shape(path);
            (
                shape.is_client_stream,
                shape.is_server_stream,
                shape.message_bytes_max,
            )
        };
        let request = 16 << 20;
        assert_eq!(
            shape("/varvelog.v1.LogService/Produce"),
            (false, false, request)
        );
        assert_eq!(
            shape("/varvelog.v1.LogService/ProduceStream"),
            (true, true, request)
        );
        assert_eq!(
            shape("/varvelog.v1.LogService/Fetch"),
            (false, false, 1 << 20)
        );
        assert_eq!(
            shape("/varvelog.v1.LogService/Tail"),
            (false, true, 1 << 20)
        );
        assert_eq!(
            shape("/varvelog.v1.GroupService/Ack"),
            (false, false, request)
        );
        assert_eq!(
            shape("/varvelog.v1.GroupService/ConsumeSession"),
            (true, true, request)
        );
        assert_eq!(
            shape("/varvelog.v1.TopicService/CreateTopic"),
            (false, false, 256 << 10)
        );
        let health = "/grpc.health.v1.Health/Watch";
        assert_eq!(shape(health), (false, true, 256 << 10));
        for (request, admin) in [(2 << 20, 64 << 10), (64 << 20, 1 << 20), (1 << 40, 1 << 20)] {
            let methods = Methods::of(&sets, request).unwrap();
            assert_eq!(methods.shape(health).message_bytes_max, admin);
        }
        assert_eq!(
            shape("/varvelog.v1.GroupAdminService/SettleRecords"),
            (false, false, 1 << 20)
        );
        assert_eq!(shape("/nobody/Nothing"), (true, true, 65_536));
    }

    #[test]
    fn every_admin_service_and_every_walked_request_is_in_the_contract() {
        let sets = [
            varvelog_proto::FILE_DESCRIPTOR_SET,
            tonic_health::pb::FILE_DESCRIPTOR_SET,
        ];
        let methods = Methods::of(&sets, 16 << 20).unwrap();
        for service in ADMIN_SERVICES {
            let prefix = format!("/{service}/");
            assert!(
                methods.paths().any(|path| path.starts_with(&prefix)),
                "{service}"
            );
        }
        let walked = methods
            .paths()
            .filter(|path| methods.shape(path).message_bytes_max > 1 << 20);
        assert_eq!(walked.count(), WALKED.len());
        let listing = methods.paths().filter(|path| {
            let is_admin = ADMIN_SERVICES
                .iter()
                .any(|service| path.starts_with(&format!("/{service}/")));
            is_admin && methods.shape(path).message_bytes_max == CALL_BYTES_MAX
        });
        assert_eq!(listing.count(), LISTING.len());
    }
}
