//! Service traits and servers as `tonic` makes them, with our codec and our messages.

#![expect(
    unused_qualifications,
    clippy::pedantic,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    unreachable_pub,
    reason = "generated code; its comments are those of the .proto files"
)]

tonic::include_proto!("varvelog.v1");

/// The external scaler of KEDA.
pub(super) mod scaler {
    tonic::include_proto!("externalscaler");
}

/// Health checks.
pub(super) mod health {
    tonic::include_proto!("grpc.health.v1");
}
