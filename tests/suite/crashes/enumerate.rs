//! Every operation of every scenario, and what the disk may look like after a crash there.

use varvelog_store::sim_fs::SimDisk;

use super::model::{Model, Op};
use super::scenarios::{self, Scenario};
use super::world::World;

/// Where a run was when the disk stopped.
struct Stopped {
    disk: SimDisk,
    /// Everything acknowledged.
    model: Model,
    /// What was under way.
    under_way: Option<Op>,
}

/// How many states are looked at.
#[derive(Debug, Default)]
struct Count {
    states: u64,
    /// Of them, after a second crash inside recovery.
    inside_recovery: u64,
}

/// Runs a scenario until the disk stops at the `stop`-th mutating operation; none if it ends
/// before.
fn run(ops: &[Op], stop: u64) -> Option<Stopped> {
    let disk = SimDisk::new();
    disk.stop_at(stop);
    let mut model = Model::default();
    let Ok(mut world) = World::open(&disk) else {
        return Some(Stopped {
            disk,
            model,
            under_way: None,
        });
    };
    for op in ops {
        if world.perform(op, &model).is_err() {
            return Some(Stopped {
                disk,
                model,
                under_way: Some(op.clone()),
            });
        }
        model.apply(op);
    }
    None
}

impl Stopped {
    /// What must be seen: all that was acknowledged, with or without what was under way.
    fn expected(&self) -> (Model, Model) {
        let mut with = self.model.clone();
        if let Some(op) = &self.under_way {
            with.apply(op);
        }
        (self.model.clone(), with)
    }

    /// Starts on a disk, and demands what must be seen; then that more can be appended and is
    /// there after a further kill.
    fn check(&self, disk: &SimDisk, what: &str) {
        let world = World::open(disk)
            .unwrap_or_else(|error| panic!("{what}: the broker does not start: {error}"));
        let (without, with) = self.expected();
        let seen = world.see();
        let model = if seen == without.visible() {
            without
        } else if seen == with.visible() {
            with
        } else {
            let (without, with) = (without.visible(), with.visible());
            panic!("{what}: sees\n{seen:?}\nnot\n{without:?}\nnor\n{with:?}");
        };
        goes_on(world, model, disk, what);
    }
}

fn goes_on(mut world: World, mut model: Model, disk: &SimDisk, what: &str) {
    let Some(name) = model.topics.keys().next().cloned() else {
        return;
    };
    let op = match name.as_str() {
        "a" => Op::Append("a", 0, 2),
        _ => Op::Append("b", 0, 2),
    };
    assert!(world.perform(&op, &model).is_ok(), "{what}: cannot append");
    model.apply(&op);
    if !model.named.is_empty() {
        // What was acknowledged is appended no second time, and all else once.
        let again = Op::Named("a", 0, scenarios::ALL_IDS);
        assert!(
            world.perform(&again, &model).is_ok(),
            "{what}: cannot append"
        );
        model.apply(&again);
    }
    drop(world);
    let world = World::open(&disk.process_kill())
        .unwrap_or_else(|error| panic!("{what}: does not start a second time: {error}"));
    assert_eq!(world.see(), model.visible(), "{what}: after a second start");
}

/// States of one crash point, and of crash points inside the recovery from some of them.
fn enumerate((name, ops): &Scenario, states_max: usize, count: &mut Count) {
    for stop in 1.. {
        let Some(stopped) = run(ops, stop) else {
            assert!(stop > 1, "{name}: something is written");
            return;
        };
        let killed = stopped.disk.process_kill();
        stopped.check(&killed, &format!("{name}, killed at operation {stop}"));
        count.states += 1;
        for (number, state) in stopped.disk.crash_states(stop, states_max).enumerate() {
            let what = format!("{name}, power lost at operation {stop}, state {number}");
            if number % 16 == 3 {
                crash_inside_recovery(&stopped, &state, &what, count);
            }
            stopped.check(&state, &what);
            count.states += 1;
        }
    }
}

/// A second power loss at operations of the recovery from the first.
fn crash_inside_recovery(stopped: &Stopped, state: &SimDisk, what: &str, count: &mut Count) {
    for stop in [1, 2, 3, 5, 8, 13, 21] {
        let again = state.process_kill();
        again.stop_at(stop);
        if World::open(&again).is_ok() {
            return;
        }
        for (number, second) in again.crash_states(stop, 6).enumerate() {
            stopped.check(&second, &format!("{what}; again at {stop}, state {number}"));
            count.inside_recovery += 1;
        }
    }
}

/// States looked at in a usual run, at least.
const STATES_WANTED: u64 = 20_000;

#[test]
fn a_power_loss_at_any_moment_loses_nothing_acknowledged_and_invents_nothing() {
    let soak = std::env::var_os("VARVELOG_SOAK").is_some();
    let states_max = if soak { 1000 } else { 48 };
    let mut count = Count::default();
    for scenario in scenarios::all() {
        enumerate(&scenario, states_max, &mut count);
    }
    println!("{count:?}");
    assert!(
        count.states + count.inside_recovery >= STATES_WANTED,
        "{count:?}"
    );
}

#[test]
fn scenarios_end_as_their_model_says() {
    for (name, ops) in scenarios::all() {
        let disk = SimDisk::new();
        let mut model = Model::default();
        let mut world = World::open(&disk).unwrap();
        for op in &ops {
            world
                .perform(op, &model)
                .unwrap_or_else(|_died| panic!("{name}: {op:?}"));
            model.apply(op);
            assert_eq!(world.see(), model.visible(), "{name}: after {op:?}");
        }
    }
}
