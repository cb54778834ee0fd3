//! Message ids against a model that remembers all of them.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::message_ids::{end, named, set_window, values};
use super::sample::*;
use crate::core::applied::{Effect, Outcome};
use crate::core::command::AppendPart;
use crate::core::request::Appended;

#[derive(Debug, Clone)]
enum Step {
    /// Partitions and ids; 0 stands for none.
    Append(Vec<(u32, Vec<u8>)>),
    Pass(u64),
    /// Switched off and on again with so many ms, or left off.
    Window(u64),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let ids = prop::collection::vec(0..12_u8, 1..6);
    let parts = prop::collection::vec((0..2_u32, ids), 1..4);
    prop_oneof![
        8 => parts.prop_map(Step::Append),
        3 => (0..700_u64).prop_map(Step::Pass),
        1 => prop::sample::select(vec![0, 500, 1_000, 2_000]).prop_map(Step::Window),
        1 => Just(Step::Restart),
    ]
}

/// What must be so.
#[derive(Debug, Default)]
struct Model {
    window_ms: u64,
    /// When and where each id was appended last.
    known: HashMap<String, (i64, (u32, u64))>,
    logs: [Vec<String>; 2],
}

impl Model {
    fn first(&self, id: &str, now: i64) -> Option<(u32, u64)> {
        let window_ms = i64::try_from(self.window_ms).unwrap();
        let known = self.known.get(id).filter(|_| !id.is_empty());
        known.filter(|it| now - it.0 < window_ms).map(|it| it.1)
    }

    /// Appends a record, or says where the first one lies.
    fn append(&mut self, to: u32, id: &str, now: i64) -> Result<u64, (u32, u64)> {
        if let Some(first) = self.first(id, now) {
            return Err(first);
        }
        let log = &mut self.logs[to as usize];
        let offset = log.len() as u64;
        log.push(id.to_owned());
        if self.window_ms > 0 {
            self.known.insert(id.to_owned(), (now, (to, offset)));
        }
        Ok(offset)
    }

    /// Every record of a request is told where it lies.
    fn check(&mut self, sent: &[(u32, Vec<String>)], appended: &Appended, now: i64) {
        for (index, (to, ids)) in sent.iter().enumerate() {
            let mut next = appended.parts[index].base_offset.get();
            for (number, id) in (0_u32..).zip(ids) {
                let mut repeats = appended.repeats.iter();
                let told = repeats.find(|it| (it.part as usize, it.number) == (index, number));
                let told = told.map(|it| (it.partition, it.offset.get()));
                match self.append(*to, id, now) {
                    Ok(offset) => {
                        assert_eq!((told, next), (None, offset), "offsets are dense");
                        next += 1;
                    }
                    Err(first) => assert_eq!(told, Some(first)),
                }
            }
        }
    }
}

fn part_of(to: u32, ids: &[u8]) -> AppendPart {
    let mut seen = HashSet::new();
    let ids = ids.iter().filter(|id| **id == 0 || seen.insert(**id));
    let text = |id: &u8| match id {
        0 => String::new(),
        id => format!("m{id}"),
    };
    let texts: Vec<String> = ids.map(text).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    named(at(1, to), &texts)
}

fn send(bench: &mut Bench, model: &mut Model, parts: &[(u32, Vec<u8>)]) {
    let parts: Vec<AppendPart> = parts.iter().map(|(to, ids)| part_of(*to, ids)).collect();
    let sent = parts.iter();
    let sent = sent.map(|it| (it.partition.partition, values(&it.body)));
    let sent: Vec<(u32, Vec<String>)> = sent.collect();
    let applied = bench.run(append(parts));
    let is_append = |it: &&Effect| matches!(it, Effect::Append { .. });
    let appends = applied.effects.iter().filter(is_append).count();
    let Ok(Outcome::Appended(appended)) = applied.outcome else {
        panic!("it was refused")
    };
    model.check(&sent, &appended, bench.wall().0);
    assert_eq!(appended.duplicate, appends == 0);
    for (number, log) in (0..).zip(&model.logs) {
        assert_eq!(end(bench, at(1, number)), log.len() as u64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn an_id_is_appended_once_in_a_window_and_every_record_is_told_where_it_lies(
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let mut bench = Bench::with_topics();
        let mut model = Model { window_ms: 1_000, ..Model::default() };
        set_window(&mut bench, 1, 1_000);
        for step in steps {
            match step {
                Step::Append(parts) => send(&mut bench, &mut model, &parts),
                Step::Pass(ms) => bench.pass(ms),
                Step::Restart => bench.restart(),
                Step::Window(ms) => {
                    set_window(&mut bench, 1, 0);
                    set_window(&mut bench, 1, ms);
                    model.window_ms = ms;
                    model.known.clear();
                }
            }
        }
        bench.restart();
    }
}
