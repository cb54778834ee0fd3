//! `GroupService`: each call is handed to the file that has it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status, Streaming};
use varvelog_proto::v1;

use super::context::Context;
use super::edge::{ConnectionGuard, Peer};
use super::generated::group_service_server::GroupService;
use super::{ack, consume, settle, wire};

/// The service.
#[derive(Debug, Clone)]
pub(super) struct Members {
    context: Arc<Context>,
}

impl Members {
    pub(super) fn new(context: Arc<Context>) -> Self {
        Self { context }
    }
}

/// What the connection put beside the request.
fn connection_of<T>(request: &Request<T>) -> (ConnectionGuard, Peer) {
    let extensions = request.extensions();
    let unknown = Peer(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
    (
        extensions
            .get::<ConnectionGuard>()
            .cloned()
            .unwrap_or_default(),
        extensions.get::<Peer>().copied().unwrap_or(unknown),
    )
}

#[tonic::async_trait]
impl GroupService for Members {
    async fn consume(
        &self,
        request: Request<v1::ConsumeRequest>,
    ) -> Result<Response<BoxStream<wire::ConsumeResponse>>, Status> {
        let connection = connection_of(&request);
        let stream = consume::consume(&self.context, request.into_inner(), connection).await?;
        Ok(Response::new(stream))
    }

    async fn consume_session(
        &self,
        request: Request<Streaming<wire::ConsumeSessionRequest>>,
    ) -> Result<Response<BoxStream<wire::ConsumeSessionResponse>>, Status> {
        let connection = connection_of(&request);
        let stream = consume::consume_session(&self.context, request.into_inner(), connection);
        Ok(Response::new(stream))
    }

    async fn ack(
        &self,
        request: Request<wire::AckRequest>,
    ) -> Result<Response<v1::AckResponse>, Status> {
        Ok(Response::new(
            settle::ack(&self.context, request.into_inner()).await?,
        ))
    }

    async fn extend_ack(
        &self,
        request: Request<v1::ExtendAckRequest>,
    ) -> Result<Response<v1::ExtendAckResponse>, Status> {
        Ok(Response::new(
            ack::extend(&self.context, request.get_ref()).await?,
        ))
    }

    async fn leave(
        &self,
        request: Request<v1::LeaveRequest>,
    ) -> Result<Response<v1::LeaveResponse>, Status> {
        Ok(Response::new(
            ack::leave(&self.context, request.into_inner()).await?,
        ))
    }

    async fn commit_offsets(
        &self,
        request: Request<v1::CommitOffsetsRequest>,
    ) -> Result<Response<v1::CommitOffsetsResponse>, Status> {
        Ok(Response::new(
            ack::commit(&self.context, request.into_inner()).await?,
        ))
    }

    async fn get_offsets(
        &self,
        request: Request<v1::GetOffsetsRequest>,
    ) -> Result<Response<v1::GetOffsetsResponse>, Status> {
        Ok(Response::new(
            ack::get_offsets(&self.context, request.into_inner()).await?,
        ))
    }
}
