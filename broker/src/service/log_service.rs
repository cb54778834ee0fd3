//! `LogService`: each call is handed to the file that has it.

use std::sync::Arc;

use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status, Streaming};
use varvelog_proto::v1;

use super::context::Context;
use super::generated::log_service_server::LogService;
use super::{fetch, produce, tail, wire};

/// The service.
#[derive(Debug, Clone)]
pub(super) struct Log {
    context: Arc<Context>,
}

impl Log {
    pub(super) fn new(context: Arc<Context>) -> Self {
        Self { context }
    }
}

#[tonic::async_trait]
impl LogService for Log {
    async fn produce(
        &self,
        request: Request<wire::ProduceRequest>,
    ) -> Result<Response<v1::ProduceResponse>, Status> {
        Ok(Response::new(
            produce::produce(&self.context, request.into_inner()).await?,
        ))
    }

    async fn produce_stream(
        &self,
        request: Request<Streaming<wire::ProduceStreamRequest>>,
    ) -> Result<Response<BoxStream<v1::ProduceStreamResponse>>, Status> {
        Ok(Response::new(produce::produce_stream(
            &self.context,
            request.into_inner(),
        )))
    }

    async fn fetch(
        &self,
        request: Request<v1::FetchRequest>,
    ) -> Result<Response<wire::FetchResponse>, Status> {
        Ok(Response::new(
            fetch::fetch(&self.context, request.into_inner()).await?,
        ))
    }

    async fn tail(
        &self,
        request: Request<v1::TailRequest>,
    ) -> Result<Response<BoxStream<wire::TailResponse>>, Status> {
        Ok(Response::new(
            tail::tail(&self.context, request.into_inner()).await?,
        ))
    }

    async fn list_offsets(
        &self,
        request: Request<v1::ListOffsetsRequest>,
    ) -> Result<Response<v1::ListOffsetsResponse>, Status> {
        Ok(Response::new(
            fetch::list_offsets(&self.context, request.into_inner()).await?,
        ))
    }

    async fn init_producer(
        &self,
        request: Request<v1::InitProducerRequest>,
    ) -> Result<Response<v1::InitProducerResponse>, Status> {
        Ok(Response::new(
            produce::init_producer(&self.context, request.into_inner()).await?,
        ))
    }
}
