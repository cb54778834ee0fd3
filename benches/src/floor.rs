//! The floor: what gRPC, a CRC and a file cost by themselves. A server that takes the same
//! messages, checks the batch's CRC, writes it to one file, and answers; and streams it back.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::{Stream, StreamExt, stream};
use tonic::{Request, Response, Status, Streaming};
use varvelog_proto::v1::log_service_server::{LogService, LogServiceServer};
use varvelog_proto::v1::{
    FetchRequest, FetchResponse, InitProducerRequest, InitProducerResponse, ListOffsetsRequest,
    ListOffsetsResponse, ProduceRequest, ProduceResponse, ProduceStreamRequest,
    ProduceStreamResponse, Record, TailRequest, TailResponse, produce_stream_response::Outcome,
};

/// Serves until killed; prints `floor grpc=ADDRESS` when ready.
#[expect(
    clippy::print_stdout,
    reason = "the ready line is the interface of the server"
)]
pub(crate) async fn serve(dir: PathBuf) -> Result<(), Box<dyn std::error::Error>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("floor grpc={}", listener.local_addr()?);
    let floor = Floor {
        file: Arc::new(create(&dir)?),
        written: Arc::new(AtomicU64::new(0)),
    };
    let service = LogServiceServer::new(floor).max_decoding_message_size(64 << 20);
    tonic::transport::Server::builder()
        .initial_stream_window_size(8 << 20)
        .initial_connection_window_size(16 << 20)
        .max_frame_size(1 << 20)
        .add_service(service)
        .serve_with_incoming(tokio_stream::wrappers::TcpListenerStream::new(listener))
        .await?;
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the floor is measured without the product"
)]
fn create(dir: &std::path::Path) -> std::io::Result<std::fs::File> {
    std::fs::OpenOptions::new()
        .create(true)
        .truncate(true)
        .read(true)
        .write(true)
        .open(dir.join("floor"))
}

struct Floor {
    file: Arc<std::fs::File>,
    written: Arc<AtomicU64>,
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Size of a message on the way back.
const READ_BYTES: usize = 1 << 20;

#[tonic::async_trait]
impl LogService for Floor {
    type ProduceStreamStream = Answers<ProduceStreamResponse>;
    type TailStream = Answers<TailResponse>;

    async fn produce_stream(
        &self,
        request: Request<Streaming<ProduceStreamRequest>>,
    ) -> Result<Response<Self::ProduceStreamStream>, Status> {
        let (file, written) = (Arc::clone(&self.file), Arc::clone(&self.written));
        let answers = request.into_inner().map(move |message| {
            let message = message?;
            let request = message.request.unwrap_or_default();
            for batch in &request.batches {
                varvelog_store::batch::verify_crc(&batch.batch)
                    .map_err(|error| Status::invalid_argument(error.to_string()))?;
                let bytes = batch.batch.len() as u64;
                let position = written.fetch_add(bytes, Ordering::Relaxed);
                file.write_all_at(&batch.batch, position)?;
            }
            Ok(ProduceStreamResponse {
                sequence: message.sequence,
                outcome: Some(Outcome::Response(ProduceResponse::default())),
            })
        });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn tail(&self, _: Request<TailRequest>) -> Result<Response<Self::TailStream>, Status> {
        let (file, end) = (Arc::clone(&self.file), self.written.load(Ordering::Relaxed));
        let pieces = (0..end / READ_BYTES as u64).map(move |piece| {
            let mut value = vec![0; READ_BYTES];
            file.read_exact_at(&mut value, piece * READ_BYTES as u64)?;
            let record = Record {
                value: Some(value.into()),
                ..Record::default()
            };
            Ok(TailResponse {
                records: vec![record],
                ..TailResponse::default()
            })
        });
        Ok(Response::new(Box::pin(stream::iter(pieces))))
    }

    async fn produce(
        &self,
        _: Request<ProduceRequest>,
    ) -> Result<Response<ProduceResponse>, Status> {
        Err(Status::unimplemented("the floor has streams only"))
    }

    async fn fetch(&self, _: Request<FetchRequest>) -> Result<Response<FetchResponse>, Status> {
        Err(Status::unimplemented("the floor has streams only"))
    }

    async fn list_offsets(
        &self,
        _: Request<ListOffsetsRequest>,
    ) -> Result<Response<ListOffsetsResponse>, Status> {
        Err(Status::unimplemented("the floor has streams only"))
    }

    async fn init_producer(
        &self,
        _: Request<InitProducerRequest>,
    ) -> Result<Response<InitProducerResponse>, Status> {
        Err(Status::unimplemented("the floor has streams only"))
    }
}
