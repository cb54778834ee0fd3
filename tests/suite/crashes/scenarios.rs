//! What the broker is doing when the power goes.

use super::deliveries::Delivery;
use super::model::Op;

/// A name and what is done, in order.
pub(super) type Scenario = (&'static str, Vec<Op>);

/// All scenarios. Each begins on an empty disk with the first start.
pub(super) fn all() -> Vec<Scenario> {
    vec![
        ("first start", vec![]),
        ("append", append()),
        ("append to two partitions at once", append_to_two()),
        ("roll and flush", roll()),
        ("checkpoints", checkpoints()),
        ("write-ahead log recycling", recycling()),
        ("retention", retention()),
        ("topics made and deleted", topics()),
        ("offsets", offsets()),
        ("clean stop", clean_stop()),
        ("kill after kill", kills()),
        ("failures", failures()),
        ("failures between checkpoints", failures_and_checkpoints()),
        ("replays of dead letters", replays()),
        ("message ids", message_ids()),
    ]
}

fn appends(count: usize, topic: &'static str) -> Vec<Op> {
    (0..count)
        .map(|number| Op::Append(topic, u32::try_from(number % 2).unwrap(), 3))
        .collect()
}

fn append() -> Vec<Op> {
    let mut ops = vec![Op::CreateTopic("a", 2)];
    ops.extend(appends(6, "a"));
    ops.push(Op::Flush);
    ops.extend(appends(4, "a"));
    ops
}

fn append_to_two() -> Vec<Op> {
    let mut ops = vec![Op::CreateTopic("a", 2)];
    for _ in 0..6 {
        ops.push(Op::AppendToTwo("a", 0, 1));
    }
    ops.extend([Op::Flush, Op::AppendToTwo("a", 1, 0)]);
    ops
}

fn roll() -> Vec<Op> {
    let mut ops = vec![Op::CreateTopic("a", 1)];
    for _ in 0..4 {
        ops.extend([Op::Append("a", 0, 2), Op::Flush, Op::Roll("a", 0)]);
    }
    ops.extend([
        Op::Append("a", 0, 5),
        Op::Flush,
        Op::Checkpoint,
        Op::Append("a", 0, 1),
    ]);
    ops
}

fn checkpoints() -> Vec<Op> {
    let mut ops = vec![Op::CreateTopic("a", 2)];
    for _ in 0..4 {
        ops.extend(appends(2, "a"));
        ops.push(Op::Checkpoint);
    }
    ops.extend(appends(2, "a"));
    ops
}

fn recycling() -> Vec<Op> {
    let mut ops = vec![Op::CreateTopic("a", 1)];
    for _ in 0..5 {
        ops.extend([
            Op::Append("a", 0, 100),
            Op::Append("a", 0, 100),
            Op::Checkpoint,
        ]);
    }
    ops.push(Op::Append("a", 0, 1));
    ops
}

fn retention() -> Vec<Op> {
    let mut ops = vec![Op::CreateTopic("a", 1)];
    for _ in 0..3 {
        ops.extend([Op::Append("a", 0, 4), Op::Flush, Op::Roll("a", 0)]);
    }
    ops.extend([
        Op::CreateGroup("g", "a"),
        Op::Commit("g", "a", 0, 2),
        Op::DeleteRecords("a", 0, 6),
        Op::RemoveFiles,
        Op::Append("a", 0, 1),
        Op::Checkpoint,
        Op::DeleteRecords("a", 0, 13),
        Op::RemoveFiles,
        Op::Append("a", 0, 2),
        Op::Checkpoint,
    ]);
    ops
}

fn topics() -> Vec<Op> {
    vec![
        Op::CreateTopic("a", 1),
        Op::Append("a", 0, 2),
        Op::CreateTopic("b", 2),
        Op::Append("b", 1, 2),
        Op::Flush,
        Op::DeleteTopic("a"),
        Op::CreateTopic("a", 1),
        Op::Append("a", 0, 1),
        Op::Checkpoint,
        Op::RemoveFiles,
        Op::AddPartitions("b", 4),
        Op::Append("b", 3, 2),
        Op::Flush,
        Op::DeleteTopic("b"),
        Op::RemoveFiles,
        Op::Checkpoint,
        Op::Append("a", 0, 1),
    ]
}

fn offsets() -> Vec<Op> {
    vec![
        Op::CreateTopic("a", 1),
        Op::Append("a", 0, 10),
        Op::CreateGroup("g", "a"),
        Op::Commit("g", "a", 0, 2),
        Op::Settle("g", "a", 0, 2, 4),
        Op::Checkpoint,
        Op::Settle("g", "a", 0, 5, 5),
        Op::ResetOffsets("g", "a", 0, 1),
        Op::CreateGroup("h", "a"),
        Op::Commit("h", "a", 0, 9),
        Op::InitProducer,
        Op::DeleteGroup("g"),
        Op::Checkpoint,
        Op::Commit("h", "a", 0, 10),
    ]
}

fn clean_stop() -> Vec<Op> {
    let mut ops = vec![Op::CreateTopic("a", 1)];
    for _ in 0..3 {
        ops.extend([Op::Append("a", 0, 3), Op::CleanRestart]);
    }
    ops.push(Op::Append("a", 0, 1));
    ops
}

fn kills() -> Vec<Op> {
    let mut ops = vec![Op::CreateTopic("a", 1)];
    for _ in 0..4 {
        ops.extend([
            Op::Append("a", 0, 3),
            Op::Flush,
            Op::Append("a", 0, 2),
            Op::KillRestart,
        ]);
    }
    ops.push(Op::Checkpoint);
    ops
}

fn failures() -> Vec<Op> {
    let mut ops = vec![
        Op::CreateTopic("a", 1),
        Op::CreateGroup("g", "a"),
        Op::Append("a", 0, 4),
        Op::Flush,
    ];
    ops.extend(
        [
            Delivery::HandOut(0, 3),
            Delivery::Retry(0),
            Delivery::Bury(1),
            Delivery::Note(3),
            Delivery::HandOut(2, 3),
            Delivery::RetryAgain(0),
            Delivery::Produce(2),
            Delivery::MakeDue(1),
            Delivery::AppendDelayed(2),
            Delivery::SettleRetry(1),
            Delivery::Retry(3),
        ]
        .map(Op::Deliver),
    );
    ops.push(Op::KillRestart);
    ops.push(Op::Deliver(Delivery::Retry(4)));
    ops
}

fn failures_and_checkpoints() -> Vec<Op> {
    vec![
        Op::CreateTopic("a", 1),
        Op::CreateGroup("g", "a"),
        Op::Append("a", 0, 3),
        Op::Deliver(Delivery::Retry(0)),
        Op::Deliver(Delivery::Note(2)),
        Op::Deliver(Delivery::HandOut(1, 2)),
        Op::Checkpoint,
        Op::Deliver(Delivery::Bury(1)),
        Op::Deliver(Delivery::AppendDelayed(2)),
        Op::Flush,
        Op::Deliver(Delivery::HandOut(2, 4)),
        Op::CleanRestart,
        Op::Deliver(Delivery::RetryAgain(0)),
        Op::Deliver(Delivery::Retry(2)),
        Op::DeleteRecords("a", 0, 4),
        Op::Deliver(Delivery::MakeDue(2)),
        Op::Checkpoint,
        Op::DeleteGroup("g"),
    ]
}

/// Message ids that scenarios use.
pub(super) const ALL_IDS: &[&str] = &["m1", "m2", "m3", "m4", "m5", "m6"];

fn message_ids() -> Vec<Op> {
    vec![
        Op::CreateTopic("a", 2),
        Op::Named("a", 0, &["m1", "m2"]),
        Op::Named("a", 1, &["m2", "m3"]),
        Op::Checkpoint,
        Op::Named("a", 1, &["m1", "m4", "m3"]),
        Op::Flush,
        Op::Named("a", 0, &["m4"]),
        Op::KillRestart,
        Op::Named("a", 0, &["m4", "m5"]),
        Op::Checkpoint,
        Op::CleanRestart,
        Op::Named("a", 1, &["m5", "m1", "m6"]),
        Op::DeleteTopic("a"),
        Op::CreateTopic("a", 1),
        Op::Named("a", 0, &["m1"]),
    ]
}

fn replays() -> Vec<Op> {
    let mut ops = vec![
        Op::CreateTopic("a", 1),
        Op::Append("a", 0, 6),
        Op::CreateGroup("g", "a"),
    ];
    let deliveries = [
        Delivery::Bury(0),
        Delivery::Bury(1),
        Delivery::Bury(2),
        Delivery::StartReplay,
        Delivery::Bury(3),
        Delivery::ReplayOne(1),
        Delivery::Discard(3),
        Delivery::Discard(2),
        Delivery::ReplayOne(1),
    ];
    ops.extend(deliveries.map(Op::Deliver));
    ops.push(Op::Checkpoint);
    let deliveries = [
        Delivery::Bury(4),
        Delivery::StartReplay,
        Delivery::ReplayOne(1),
        Delivery::SettleRetry(0),
        Delivery::ReplayOne(2),
    ];
    ops.extend(deliveries.map(Op::Deliver));
    ops
}
