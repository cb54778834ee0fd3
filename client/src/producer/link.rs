//! One produce stream, read by a task of its own.

use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use varvelog_proto::v1;

use super::lane::Identity;
use crate::connection::Connection;
use crate::error::CallError;

/// What happens outside of the driver.
#[derive(Debug)]
pub(super) enum Event {
    /// An answer on the link of this generation.
    Answer {
        generation: u64,
        answer: v1::ProduceStreamResponse,
    },
    /// The link of this generation is gone.
    Broken { generation: u64, error: CallError },
    /// A producer id, or why there is none.
    Identity(Result<Identity, CallError>),
    /// How many partitions the topic has.
    Partitions(Result<u32, CallError>),
}

/// An open stream, or one that is being opened. Dropping it ends the stream.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) generation: u64,
    requests: mpsc::Sender<v1::ProduceStreamRequest>,
    task: AbortHandle,
}

impl Link {
    /// `in_flight`: how many requests are sent ahead of their answers at most.
    pub(super) fn open(
        connection: Connection,
        generation: u64,
        in_flight: usize,
        events: mpsc::Sender<Event>,
    ) -> Self {
        let (requests, outgoing) = mpsc::channel(in_flight.max(1));
        let task = tokio::spawn(async move {
            let error = follow(&connection, outgoing, generation, &events).await;
            // Nobody listens only when the producer is gone.
            drop(events.send(Event::Broken { generation, error }).await);
        });
        Self {
            generation,
            requests,
            task: task.abort_handle(),
        }
    }

    /// Hand a request over. One that finds the stream gone is lost with it: the event that tells
    /// so is on its way, and makes everything unanswered go out again.
    pub(super) fn send(&self, request: v1::ProduceStreamRequest) {
        if let Err(error) = self.requests.try_send(request) {
            tracing::debug!(generation = self.generation, %error, "request met a broken stream");
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Passes answers on until the stream ends, and says why it did.
async fn follow(
    connection: &Connection,
    outgoing: mpsc::Receiver<v1::ProduceStreamRequest>,
    generation: u64,
    events: &mpsc::Sender<Event>,
) -> CallError {
    let opened = connection
        .log()
        .produce_stream(ReceiverStream::new(outgoing))
        .await;
    let mut answers = match opened {
        Ok(response) => response.into_inner(),
        Err(status) => return status.into(),
    };
    loop {
        match answers.message().await {
            Ok(Some(answer)) => {
                if events
                    .send(Event::Answer { generation, answer })
                    .await
                    .is_err()
                {
                    return CallError::local(Code::Cancelled, "the producer is gone");
                }
            }
            Ok(None) => {
                return CallError::local(Code::Unavailable, "the broker ended the produce stream");
            }
            Err(status) => return status.into(),
        }
    }
}
