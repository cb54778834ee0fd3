//! Members of the fake's group.

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status, Streaming};
use varvelog_client::proto as v1;
use varvelog_client::proto::consume_session_request::Message as In;
use varvelog_client::proto::consume_session_response::Message as Out;

use super::group::Asking;
use super::services::{Answer, Stream, not_built, status};
use super::{Fake, refusal};

/// One stream of a member.
struct Member {
    fake: Fake,
    asking: Asking,
    credit: i32,
    /// Without credit: so many may be unsettled.
    unacked_max: Option<usize>,
    responses: mpsc::Sender<Result<v1::ConsumeSessionResponse, Status>>,
}

impl Member {
    async fn send(&self, message: Out, sequence: i64) -> bool {
        let message = Some(message);
        self.responses
            .send(Ok(v1::ConsumeSessionResponse { message, sequence }))
            .await
            .is_ok()
    }

    async fn join(&mut self, start: v1::ConsumeRequest) -> bool {
        let event = self.fake.state().groups.join(&start.member_id);
        self.asking = Asking {
            member: event.member_id.clone(),
            auto_ack: start.auto_ack,
            as_batches: start.as_batches,
        };
        self.fake.note_change();
        let response = v1::ConsumeResponse {
            event: Some(event),
            ..Default::default()
        };
        self.send(Out::Response(response), 0).await
    }

    async fn hand_out(&mut self) -> bool {
        loop {
            let response = {
                let mut state = self.fake.state();
                let held = state.groups.held();
                let full = self.unacked_max.is_some_and(|most| held >= most);
                if full || self.unacked_max.is_none() && self.credit == 0 {
                    return true;
                }
                let batches = state.log.topics["t"].clone();
                state.groups.expire_due(tokio::time::Instant::now());
                state.groups.hand_out(&self.asking, &batches)
            };
            let Some(response) = response else {
                return true;
            };
            self.fake.note_change();
            self.credit = (self.credit - 1).max(0);
            if !self.send(Out::Response(response), 0).await {
                return false;
            }
        }
    }

    async fn on_message(&mut self, message: v1::ConsumeSessionRequest) -> bool {
        match message.message {
            Some(In::Start(start)) => self.join(start).await,
            Some(In::Credit(more)) => {
                self.credit += more;
                true
            }
            Some(In::Ack(ack)) => {
                let (answer, cut) = {
                    let groups = &mut self.fake.state().groups;
                    (groups.ack(&ack), std::mem::take(&mut groups.cut_after_ack))
                };
                self.fake.note_change();
                if cut {
                    self.fake.cut();
                    return false;
                }
                let invalid = |()| refusal(Code::InvalidArgument, "ACK_TOKEN_INVALID", &[]);
                let answer = answer.map_err(invalid).map_or_else(Out::Error, Out::Ack);
                self.send(answer, message.sequence).await
            }
            Some(In::Extend(extend)) => {
                let answer = self.fake.state().groups.extend(&extend.ack_token);
                self.fake.note_change();
                let lost = || refusal(Code::Aborted, "LEASE_LOST", &[("offset", 0)]);
                let answer = answer.map_or_else(|| Out::Error(lost()), Out::Extend);
                self.send(answer, message.sequence).await
            }
            None => false,
        }
    }

    async fn run(mut self, mut requests: Streaming<v1::ConsumeSessionRequest>) {
        let mut changed = self.fake.changed.subscribe();
        loop {
            let end = self.fake.state().groups.end_with;
            if let Some(code) = end {
                let fenced = status(refusal(code, "MEMBER_FENCED", &[("generation", 8)]));
                // The client may be gone already.
                drop(self.responses.send(Err(fenced)).await);
                return;
            }
            let event = self.fake.state().groups.announce.take();
            if event.is_some() {
                let response = v1::ConsumeResponse {
                    event,
                    ..Default::default()
                };
                self.send(Out::Response(response), 0).await;
            }
            if !self.hand_out().await {
                return;
            }
            let expiry = self.fake.state().groups.next_expiry();
            tokio::select! {
                () = passed(expiry) => {}
                message = requests.message() => match message {
                    Ok(Some(message)) => {
                        if !self.on_message(message).await {
                            return;
                        }
                    }
                    Ok(None) if !self.responses.is_closed() => {
                        self.fake.state().groups.leave(&self.asking.member);
                        self.fake.note_change();
                        return;
                    }
                    Ok(None) | Err(_) => return,
                },
                _ = changed.changed() => {}
                () = self.responses.closed() => return,
            }
        }
    }
}

/// At this time, or never.
async fn passed(time: Option<tokio::time::Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

#[tonic::async_trait]
impl v1::group_service_server::GroupService for Fake {
    type ConsumeStream = Stream<v1::ConsumeResponse>;

    async fn consume(&self, request: Request<v1::ConsumeRequest>) -> Answer<Self::ConsumeStream> {
        let start = request.into_inner();
        let (inner, mut session) = mpsc::channel(64);
        let mut member = Member {
            fake: self.clone(),
            asking: Asking::default(),
            credit: 0,
            // What is settled as it is sent is never unacknowledged.
            unacked_max: usize::try_from(start.max_unacked_responses).ok(),
            responses: inner,
        };
        let (responses, stream) = mpsc::channel(64);
        tokio::spawn(async move {
            while let Some(Ok(message)) = session.recv().await {
                let Some(Out::Response(response)) = message.message else {
                    continue;
                };
                if responses.send(Ok(response)).await.is_err() {
                    break;
                }
            }
        });
        tokio::spawn(async move {
            let mut changed = member.fake.changed.subscribe();
            member.join(start).await;
            loop {
                let gone = {
                    let groups = &member.fake.state().groups;
                    groups.left.contains(&member.asking.member)
                };
                if gone || !member.hand_out().await || changed.changed().await.is_err() {
                    break;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn ack(&self, request: Request<v1::AckRequest>) -> Answer<v1::AckResponse> {
        let answer = self.state().groups.ack(&request.into_inner());
        self.note_change();
        let invalid = |()| status(refusal(Code::InvalidArgument, "ACK_TOKEN_INVALID", &[]));
        answer.map(Response::new).map_err(invalid)
    }

    async fn extend_ack(
        &self,
        request: Request<v1::ExtendAckRequest>,
    ) -> Answer<v1::ExtendAckResponse> {
        let answer = self.state().groups.extend(&request.into_inner().ack_token);
        self.note_change();
        let lost = || status(refusal(Code::Aborted, "LEASE_LOST", &[("offset", 0)]));
        answer.map(Response::new).ok_or_else(lost)
    }

    type ConsumeSessionStream = Stream<v1::ConsumeSessionResponse>;

    async fn consume_session(
        &self,
        request: Request<Streaming<v1::ConsumeSessionRequest>>,
    ) -> Answer<Self::ConsumeSessionStream> {
        if self.state().no_sessions {
            return not_built();
        }
        let (responses, stream) = mpsc::channel(64);
        let member = Member {
            fake: self.clone(),
            asking: Asking::default(),
            credit: 0,
            unacked_max: None,
            responses,
        };
        tokio::spawn(member.run(request.into_inner()));
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn leave(&self, request: Request<v1::LeaveRequest>) -> Answer<v1::LeaveResponse> {
        self.state().groups.leave(&request.into_inner().member_id);
        self.note_change();
        Ok(Response::new(v1::LeaveResponse {}))
    }

    async fn commit_offsets(
        &self,
        _: Request<v1::CommitOffsetsRequest>,
    ) -> Answer<v1::CommitOffsetsResponse> {
        not_built()
    }

    async fn get_offsets(
        &self,
        _: Request<v1::GetOffsetsRequest>,
    ) -> Answer<v1::GetOffsetsResponse> {
        not_built()
    }
}
