//! The external scaler, asked as KEDA asks it.

use varvelog_proto::externalscaler as wire;
use varvelog_proto::externalscaler::external_scaler_client::ExternalScalerClient;

use super::groups::{delivery, join, member};
use super::{TestBroker, reason, soon};

fn scaled(metadata: &[(&str, &str)]) -> wire::ScaledObjectRef {
    let pairs = metadata.iter();
    // KEDA passes all of the trigger's metadata on.
    let all = pairs.chain(&[("scalerAddress", "varvelog:7461")]);
    wire::ScaledObjectRef {
        name: "email-workers".into(),
        namespace: "default".into(),
        scaler_metadata: all
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
    }
}

async fn measured(broker: &TestBroker, of: &wire::ScaledObjectRef, name: &str) -> f64 {
    let request = wire::GetMetricsRequest {
        scaled_object_ref: Some(of.clone()),
        metric_name: name.into(),
    };
    let mut scaler = ExternalScalerClient::new(broker.channel.clone());
    let answer = scaler.get_metrics(request).await.unwrap().into_inner();
    assert_eq!(answer.metric_values.len(), 1);
    let value = &answer.metric_values[0];
    assert_eq!(value.metric_name, name);
    let whole = u32::try_from(value.metric_value).unwrap();
    assert!((f64::from(whole) - value.metric_value_float).abs() < 1.0);
    value.metric_value_float
}

#[tokio::test]
async fn keda_learns_the_targets_then_the_measures_and_whether_a_worker_is_needed_at_all() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    let (mut stream, _) = join(&broker, member("email", &["orders"])).await;
    let mut scaler = ExternalScalerClient::new(broker.channel.clone());
    let of = scaled(&[
        ("group", "email"),
        ("targetDepth", "500"),
        ("targetAge", "30s"),
    ]);
    let specs = scaler.get_metric_spec(of.clone()).await.unwrap();
    let specs = specs.into_inner().metric_specs;
    let told: Vec<_> = specs
        .iter()
        .map(|spec| (spec.metric_name.as_str(), spec.target_size))
        .collect();
    assert_eq!(told, [("depth", 500), ("age", 30)]);
    let mut active = scaler
        .stream_is_active(of.clone())
        .await
        .unwrap()
        .into_inner();
    assert!(!soon(active.message()).await.unwrap().unwrap().result);
    assert!(measured(&broker, &of, "depth").await.abs() < f64::EPSILON);
    assert!(measured(&broker, &of, "age").await.abs() < f64::EPSILON);

    broker.produce("orders", &["a", "b", "c"]).await;
    assert!(soon(active.message()).await.unwrap().unwrap().result);
    let is_active = scaler.is_active(of.clone()).await.unwrap();
    assert!(is_active.into_inner().result);
    assert!((measured(&broker, &of, "depth").await - 3.0).abs() < f64::EPSILON);
    while measured(&broker, &of, "age").await <= 0.0 {
        tokio::task::yield_now().await;
    }
    let above = scaled(&[("group", "email"), ("activationDepth", "3")]);
    let is_active = scaler.is_active(above).await.unwrap();
    assert!(!is_active.into_inner().result);

    let delivered = delivery(&mut stream).await;
    let ack = varvelog_proto::v1::AckRequest {
        ack_token: delivered.ack_token,
        ..Default::default()
    };
    broker.groups().ack(ack).await.unwrap();
    assert!(!soon(active.message()).await.unwrap().unwrap().result);
}

#[tokio::test]
async fn without_targets_depth_is_measured_and_age_alone_where_only_that_is_given() {
    let broker = TestBroker::start().await;
    let mut scaler = ExternalScalerClient::new(broker.channel.clone());
    let mut named = async |metadata: &[(&str, &str)]| {
        let answer = scaler.get_metric_spec(scaled(metadata)).await.unwrap();
        let specs = answer.into_inner().metric_specs.into_iter();
        specs
            .map(|spec| (spec.metric_name, spec.target_size))
            .collect::<Vec<_>>()
    };
    assert_eq!(named(&[("group", "g")]).await, [("depth".into(), 100)]);
    let aged = named(&[("group", "g"), ("targetAge", "90s")]).await;
    assert_eq!(aged, [("age".into(), 90)]);
}

#[tokio::test]
async fn what_a_trigger_gets_wrong_is_named() {
    let broker = TestBroker::start().await;
    let mut scaler = ExternalScalerClient::new(broker.channel.clone());
    let missing = scaler.is_active(scaled(&[("group", "nobody")])).await;
    assert_eq!(reason(missing), "GROUP_NOT_FOUND");
    let wrong: [&[(&str, &str)]; 5] = [
        &[],
        &[("group", "a.b")],
        &[("group", "g"), ("targetDepth", "0")],
        &[("group", "g"), ("targetDepth", "many")],
        &[("group", "g"), ("targetAge", "-3s")],
    ];
    for metadata in wrong {
        let refused = scaler.get_metric_spec(scaled(metadata)).await;
        assert_eq!(reason(refused), "INVALID_FIELD", "{metadata:?}");
    }
    let request = wire::GetMetricsRequest {
        scaled_object_ref: Some(scaled(&[("group", "g")])),
        metric_name: "lag".into(),
    };
    assert_eq!(reason(scaler.get_metrics(request).await), "INVALID_FIELD");
}
