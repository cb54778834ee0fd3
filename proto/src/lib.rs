//! The API contract of Varvelog, compiled from the `.proto` files in this package.
//!
//! [`v1`] holds messages, clients and server traits as `prost` and `tonic` make them. The broker
//! generates its own servers beside these, so that records never pass through a vector of
//! structs; everybody else uses what is here.

/// Package `varvelog.v1`.
pub mod v1 {
    #![expect(
        unused_qualifications,
        clippy::pedantic,
        clippy::allow_attributes,
        clippy::allow_attributes_without_reason,
        reason = "generated code; its comments are those of the .proto files"
    )]
    tonic::include_proto!("varvelog.v1");
}

/// Package `externalscaler`: the external scaler of KEDA.
pub mod externalscaler {
    #![expect(
        unused_qualifications,
        clippy::pedantic,
        clippy::allow_attributes,
        clippy::allow_attributes_without_reason,
        reason = "generated code; its comments are those of the .proto files"
    )]
    tonic::include_proto!("externalscaler");
}

/// The encoded `FileDescriptorSet` of the contract with its imports, for reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] =
    include_bytes!(concat!(env!("OUT_DIR"), "/varvelog_descriptor.bin"));

/// The `.proto` files: path below the include root (for example `varvelog/v1/types.proto`) and
/// text, by path.
pub const PROTO_FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/varvelog_sources.rs"));
