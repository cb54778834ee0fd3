//! The gRPC services of the fake.

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_types::{ErrorDetails, StatusExt as _};
use varvelog_client::proto as v1;
use varvelog_client::proto::position::At;
use varvelog_store::batch::read_header;

use super::net::Incoming;
use super::{Fake, Fault, Seen, refusal};

pub(super) type Answer<T> = Result<Response<T>, Status>;
pub(super) type Stream<T> = ReceiverStream<Result<T, Status>>;

pub(super) fn serve(fake: &Fake, incoming: Incoming) {
    let server = Server::builder()
        .add_service(v1::log_service_server::LogServiceServer::new(fake.clone()))
        .add_service(v1::topic_service_server::TopicServiceServer::new(
            fake.clone(),
        ))
        .add_service(v1::group_service_server::GroupServiceServer::new(
            fake.clone(),
        ))
        .add_service(v1::group_admin_service_server::GroupAdminServiceServer::new(fake.clone()))
        .serve_with_incoming(incoming);
    tokio::spawn(server);
}

pub(super) fn status(error: v1::StreamError) -> Status {
    let info = ErrorDetails::with_error_info(error.reason, "varvelog", error.metadata);
    Status::with_error_details(Code::from_i32(error.code), error.message, info)
}

pub(super) fn not_built<T>() -> Result<T, Status> {
    Err(Status::unimplemented("not in the fake"))
}

impl Fake {
    async fn answer_produce(
        &self,
        request: v1::ProduceStreamRequest,
    ) -> Option<v1::ProduceStreamResponse> {
        self.stalled
            .subscribe()
            .wait_for(|stalled| !stalled)
            .await
            .ok()?;
        let v1::ProduceStreamRequest { sequence, request } = request;
        let request = request.unwrap_or_default();
        let (fault, answer) = {
            let mut state = self.state();
            let records = |batch: &v1::PartitionBatch| {
                let header = read_header(&batch.batch).expect("a valid batch");
                (batch.partition, header.record_count)
            };
            let batches = request.batches.iter().map(records).collect();
            state.unanswered -= 1;
            state.requests.push(Seen {
                at: tokio::time::Instant::now(),
                batches,
            });
            let fault = state.faults.pop_front().flatten();
            let answer = match &fault {
                None | Some(Fault::CutAfter | Fault::Swallow) => state.log.produce(&request),
                Some(Fault::CutBefore) => Err(refusal(Code::Unavailable, "", &[])),
                Some(Fault::Refuse(error)) => Err(error.clone()),
            };
            (fault, answer)
        };
        self.note_change();
        match fault {
            Some(Fault::CutAfter | Fault::CutBefore) => {
                self.cut();
                None
            }
            Some(Fault::Swallow) => std::future::pending().await,
            None | Some(Fault::Refuse(_)) => {
                use v1::produce_stream_response::Outcome;
                let outcome = match answer {
                    Ok(response) => Outcome::Response(response),
                    Err(error) => Outcome::Error(error),
                };
                Some(v1::ProduceStreamResponse {
                    sequence,
                    outcome: Some(outcome),
                })
            }
        }
    }
}

#[tonic::async_trait]
impl v1::log_service_server::LogService for Fake {
    async fn produce(&self, _: Request<v1::ProduceRequest>) -> Answer<v1::ProduceResponse> {
        not_built()
    }

    type ProduceStreamStream = Stream<v1::ProduceStreamResponse>;

    async fn produce_stream(
        &self,
        request: Request<Streaming<v1::ProduceStreamRequest>>,
    ) -> Answer<Self::ProduceStreamStream> {
        let (answers, stream) = mpsc::channel(64);
        let (ahead, mut queue) = mpsc::channel(1_000);
        let mut requests = request.into_inner();
        let reader = self.clone();
        tokio::spawn(async move {
            while let Ok(Some(request)) = requests.message().await {
                reader.state().unanswered += 1;
                reader.note_change();
                if ahead.send(request).await.is_err() {
                    break;
                }
            }
        });
        let fake = self.clone();
        tokio::spawn(async move {
            while let Some(request) = queue.recv().await {
                let Some(answer) = fake.answer_produce(request).await else {
                    break;
                };
                if answers.send(Ok(answer)).await.is_err() {
                    break;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn fetch(&self, request: Request<v1::FetchRequest>) -> Answer<v1::FetchResponse> {
        let request = request.into_inner();
        let partition = usize::try_from(request.partition).expect("not negative");
        let deadline = tokio::time::Instant::now()
            + request
                .max_wait
                .and_then(|wait| wait.try_into().ok())
                .unwrap_or_default();
        let mut changed = self.changed.subscribe();
        loop {
            let response = {
                let state = self.state();
                let latest = state.log.latest(&request.topic, partition);
                let earliest = state.log.earliest;
                if !(earliest..=latest).contains(&request.offset) {
                    let pairs = [("earliest", earliest), ("latest", latest)];
                    return Err(status(refusal(
                        Code::OutOfRange,
                        "OFFSET_OUT_OF_RANGE",
                        &pairs,
                    )));
                }
                let end = |b: &v1::StoredBatch| b.base_offset + i64::from(b.record_count);
                let stored = state.log.topics[&request.topic][partition].iter();
                let batches: Vec<_> = stored
                    .filter(|batch| end(batch) > request.offset)
                    .take(2)
                    .cloned()
                    .collect();
                v1::FetchResponse {
                    next_offset: batches.last().map_or(request.offset, end),
                    earliest_offset: earliest,
                    latest_offset: latest,
                    epoch: 1,
                    batches,
                    ..Default::default()
                }
            };
            let waited = tokio::time::Instant::now() >= deadline;
            if !response.batches.is_empty() || waited {
                return Ok(Response::new(response));
            }
            // Whichever comes first, the partition is looked at again.
            drop(tokio::time::timeout_at(deadline, changed.changed()).await);
        }
    }

    type TailStream = Stream<v1::TailResponse>;

    async fn tail(&self, request: Request<v1::TailRequest>) -> Answer<Self::TailStream> {
        let topic = request.into_inner().topics.remove(0);
        let (responses, stream) = mpsc::channel(4);
        let record = v1::Record {
            offset: 4,
            ..Default::default()
        };
        let response = v1::TailResponse {
            topic,
            partition: 0,
            records: vec![record],
        };
        let ended = status(refusal(Code::NotFound, "TOPIC_NOT_FOUND", &[]));
        for item in [Ok(response), Err(ended)] {
            responses.send(item).await.expect("there is room");
        }
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn list_offsets(
        &self,
        request: Request<v1::ListOffsetsRequest>,
    ) -> Answer<v1::ListOffsetsResponse> {
        let request = request.into_inner();
        let state = self.state();
        let partitions = state.log.topics.get(&request.topic).map_or(0, Vec::len);
        if partitions == 0 {
            return Err(status(refusal(Code::NotFound, "TOPIC_NOT_FOUND", &[])));
        }
        let at = request.at.and_then(|position| position.at);
        let offsets = (0..partitions).map(|partition| {
            let latest = state.log.latest(&request.topic, partition);
            let offset = match at {
                Some(At::Earliest(_)) => state.log.earliest,
                Some(At::Offset(offset)) => offset.clamp(state.log.earliest, latest),
                Some(At::LastN(count)) => (latest - count).max(state.log.earliest),
                Some(At::Latest(_) | At::TimestampMs(_)) | None => latest,
            };
            let partition = i32::try_from(partition).expect("small");
            v1::PartitionOffset {
                partition,
                offset,
                append_time_ms: -1,
            }
        });
        let wanted = |found: &v1::PartitionOffset| {
            request.partitions.is_empty() || request.partitions.contains(&found.partition)
        };
        Ok(Response::new(v1::ListOffsetsResponse {
            offsets: offsets.filter(wanted).collect(),
        }))
    }

    async fn init_producer(
        &self,
        request: Request<v1::InitProducerRequest>,
    ) -> Answer<v1::InitProducerResponse> {
        let name = request.into_inner().producer_name;
        let (producer_id, epoch) = self.state().log.init_producer(&name);
        let producer_epoch = epoch.into();
        Ok(Response::new(v1::InitProducerResponse {
            producer_id,
            producer_epoch,
        }))
    }
}

#[tonic::async_trait]
impl v1::topic_service_server::TopicService for Fake {
    async fn create_topic(
        &self,
        _: Request<v1::CreateTopicRequest>,
    ) -> Answer<v1::CreateTopicResponse> {
        not_built()
    }

    async fn get_topic(
        &self,
        request: Request<v1::GetTopicRequest>,
    ) -> Answer<v1::GetTopicResponse> {
        let name = request.into_inner().name;
        let mut state = self.state();
        state.topic_lookups += 1;
        let partitions = state.log.topics.get(&name).map(Vec::len);
        let partitions =
            partitions.ok_or_else(|| status(refusal(Code::NotFound, "TOPIC_NOT_FOUND", &[])))?;
        let partitions = i32::try_from(partitions).expect("small");
        let topic = Some(v1::Topic {
            name,
            partitions,
            ..Default::default()
        });
        Ok(Response::new(v1::GetTopicResponse { topic }))
    }

    async fn list_topics(
        &self,
        request: Request<v1::ListTopicsRequest>,
    ) -> Answer<v1::ListTopicsResponse> {
        // Three pages of one topic each.
        let token = request.into_inner().page_token;
        let page: u32 = token.parse().unwrap_or(0);
        let topic = v1::Topic {
            name: format!("topic-{page}"),
            ..Default::default()
        };
        let next_page_token = if page < 2 {
            (page + 1).to_string()
        } else {
            String::new()
        };
        Ok(Response::new(v1::ListTopicsResponse {
            topics: vec![topic],
            next_page_token,
        }))
    }

    async fn update_topic(
        &self,
        _: Request<v1::UpdateTopicRequest>,
    ) -> Answer<v1::UpdateTopicResponse> {
        not_built()
    }

    async fn add_partitions(
        &self,
        _: Request<v1::AddPartitionsRequest>,
    ) -> Answer<v1::AddPartitionsResponse> {
        not_built()
    }

    async fn delete_records(
        &self,
        _: Request<v1::DeleteRecordsRequest>,
    ) -> Answer<v1::DeleteRecordsResponse> {
        not_built()
    }

    async fn delete_topic(
        &self,
        _: Request<v1::DeleteTopicRequest>,
    ) -> Answer<v1::DeleteTopicResponse> {
        not_built()
    }
}
