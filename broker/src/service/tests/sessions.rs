use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use varvelog_proto::v1;
use varvelog_proto::v1::consume_session_request::Message as Ask;
use varvelog_proto::v1::consume_session_response::Message as Told;

use super::groups::member;
use super::{TestBroker, reason, soon, values};

struct Session {
    ask: mpsc::Sender<v1::ConsumeSessionRequest>,
    told: Streaming<v1::ConsumeSessionResponse>,
}

impl Session {
    async fn open(broker: &TestBroker) -> Self {
        let (ask, asked) = mpsc::channel(16);
        let told = broker
            .groups()
            .consume_session(ReceiverStream::new(asked))
            .await
            .unwrap();
        Self {
            ask,
            told: told.into_inner(),
        }
    }

    async fn started(broker: &TestBroker, request: v1::ConsumeRequest) -> Self {
        let mut session = Self::open(broker).await;
        session.say(0, Ask::Start(request)).await;
        let first = session.delivery_or_event().await;
        assert!(first.event.is_some(), "the first message is an event");
        session
    }

    async fn say(&self, sequence: i64, message: Ask) {
        let request = v1::ConsumeSessionRequest {
            message: Some(message),
            sequence,
        };
        self.ask.send(request).await.unwrap();
    }

    async fn hear(&mut self) -> (i64, Told) {
        let response = soon(self.told.message())
            .await
            .unwrap()
            .expect("the stream goes on");
        (response.sequence, response.message.unwrap())
    }

    async fn delivery_or_event(&mut self) -> v1::ConsumeResponse {
        match self.hear().await {
            (0, Told::Response(response)) => response,
            other => panic!("not a delivery: {other:?}"),
        }
    }
}

#[tokio::test]
async fn records_come_for_credit_and_answers_in_order_with_their_sequence() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    broker.produce("orders", &["a", "b", "c"]).await;
    let request = v1::ConsumeRequest {
        max_records: 1,
        ..member("email", &["orders"])
    };
    let mut session = Session::started(&broker, request).await;
    session.say(0, Ask::Credit(2)).await;
    let first = session.delivery_or_event().await;
    let second = session.delivery_or_event().await;
    assert_eq!(
        [values(&first.records), values(&second.records)],
        [["a"], ["b"]]
    );
    // Credit is used up: what comes next are the answers alone, in order.
    let ack = |response: &v1::ConsumeResponse| v1::AckRequest {
        ack_token: response.ack_token.clone(),
        ..Default::default()
    };
    session.say(7, Ask::Ack(ack(&first))).await;
    session.say(8, Ask::Ack(v1::AckRequest::default())).await;
    let extend = v1::ExtendAckRequest {
        ack_token: second.ack_token.clone(),
        ack_timeout: None,
    };
    session.say(9, Ask::Extend(extend)).await;
    let (sequence, told) = session.hear().await;
    assert!(matches!((sequence, told), (7, Told::Ack(answer)) if answer.done == 1));
    let (sequence, told) = session.hear().await;
    assert!(
        matches!((sequence, told), (8, Told::Error(error)) if error.reason == "ACK_TOKEN_INVALID")
    );
    assert!(matches!(session.hear().await, (9, Told::Extend(_))));
    session.say(0, Ask::Credit(1)).await;
    assert_eq!(values(&session.delivery_or_event().await.records), ["c"]);
}

#[tokio::test]
async fn a_half_close_is_a_clean_end_that_answers_what_was_asked_first() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    broker.produce("orders", &["a", "b"]).await;
    let request = v1::ConsumeRequest {
        max_records: 1,
        ..member("email", &["orders"])
    };
    let mut session = Session::started(&broker, request).await;
    session.say(0, Ask::Credit(2)).await;
    let first = session.delivery_or_event().await;
    session.delivery_or_event().await;
    let ack = v1::AckRequest {
        ack_token: first.ack_token,
        ..Default::default()
    };
    session.say(1, Ask::Ack(ack)).await;
    let Session { ask, mut told } = session;
    drop(ask);
    let answer = soon(told.message()).await.unwrap().unwrap();
    assert!(matches!(answer.message, Some(Told::Ack(answer)) if answer.done == 1));
    assert!(soon(told.message()).await.unwrap().is_none(), "it ends OK");
    // Only a clean end lets another have the second record at once, and uncounted.
    let mut other = Session::started(&broker, member("email", &[])).await;
    other.say(0, Ask::Credit(1)).await;
    let given = other.delivery_or_event().await;
    assert_eq!(
        (values(&given.records), given.records[0].attempt),
        (vec!["b".into()], 1)
    );
}

#[tokio::test]
async fn messages_out_of_place_end_the_session() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    let mut early = Session::open(&broker).await;
    early.say(0, Ask::Credit(1)).await;
    assert_eq!(reason(soon(early.told.message()).await), "INVALID_FIELD");

    let start = || Ask::Start(member("email", &["orders"]));
    for bad in [start(), Ask::Credit(0), Ask::Credit(-1), Ask::Credit(1001)] {
        let mut session = Session::open(&broker).await;
        session.say(0, start()).await;
        assert!(session.delivery_or_event().await.event.is_some());
        session.say(0, bad).await;
        let ended = soon(async {
            loop {
                match session.told.message().await {
                    Ok(Some(_)) => {}
                    other => return other,
                }
            }
        });
        assert_eq!(reason(ended.await), "INVALID_FIELD");
    }

    let mut refused = Session::open(&broker).await;
    refused.say(0, Ask::Start(member("new", &[]))).await;
    assert_eq!(reason(soon(refused.told.message()).await), "INVALID_FIELD");
}
