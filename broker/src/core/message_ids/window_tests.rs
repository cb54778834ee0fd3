use proptest::prelude::*;

use super::*;

const WINDOW_MS: u64 = 50;

/// Ids so near each other that they share tables, and some of them their place in it.
fn hash(id: u8) -> IdHash {
    let mut hash = [0; 16];
    hash[0] = id / 2;
    hash[1] = id % 2;
    IdHash(hash)
}

fn first(offset: u64) -> FirstAppend {
    FirstAppend {
        partition: u32::try_from(offset % 7).unwrap(),
        offset: Offset::new(offset).unwrap(),
    }
}

fn live(now: i64) -> Live {
    Live::within(WINDOW_MS, WallMs(now))
}

#[derive(Debug, Clone)]
enum Step {
    Push(u8),
    Pass(i64),
    Forget(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..40_u8).prop_map(Step::Push),
        2 => (0..30_i64).prop_map(Step::Pass),
        2 => (0..6_usize).prop_map(Step::Forget),
    ]
}

proptest! {
    #[test]
    fn it_knows_the_newest_of_each_id_within_the_window_and_nothing_else(
        steps in prop::collection::vec(step(), 0..400),
        number in prop::sample::select(vec![0, u32::MAX - 20]),
    ) {
        let mut window = Window::new();
        window.first = number;
        let mut model: Vec<(u8, i64, FirstAppend)> = Vec::new();
        let (mut now, mut offset) = (1_000, 0);
        for step in steps {
            match step {
                Step::Push(id) if window.get(hash(id), live(now)).is_none() => {
                    window.push(Slot::new(hash(id), WallMs(now), first(offset)));
                    model.push((id, now, first(offset)));
                    offset += 1;
                }
                Step::Push(_) => {}
                Step::Pass(ms) => now += ms,
                Step::Forget(at_most) => {
                    let before = window.len();
                    let forgotten = window.forget(live(now), at_most);
                    prop_assert_eq!(window.len(), before - forgotten);
                    let past = model.iter().take_while(|it| it.1 + 50 <= now).count();
                    prop_assert_eq!(forgotten, past.min(at_most));
                    model.drain(..forgotten);
                }
            }
            prop_assert_eq!(window.verify(), Ok(()));
            let counts = |it: &&(u8, i64, FirstAppend)| it.1 + 50 > now;
            prop_assert_eq!(window.count(live(now)), model.iter().filter(counts).count());
            let oldest = model.first().is_some_and(|it| !counts(&it));
            prop_assert_eq!(window.has_past(live(now)), oldest);
            let newest = model.last().is_none_or(|it| !counts(&it));
            prop_assert_eq!(window.is_past(live(now)), newest);
            for id in 0..40 {
                let known = model.iter().rev().find(|it| it.0 == id).filter(counts);
                prop_assert_eq!(window.get(hash(id), live(now)), known.map(|it| it.2));
            }
        }
    }
}

#[test]
fn chunks_are_given_back_as_their_ids_go() {
    let mut window = Window::new();
    let many = 3 * CHUNK_IDS as u64;
    for number in 0..many {
        let id = IdHash::of(&number.to_string());
        window.push(Slot::new(
            id,
            WallMs(1_000 + number.cast_signed()),
            first(number),
        ));
    }
    let later = Live::within(CHUNK_IDS as u64 + 1, WallMs(1_000 + many.cast_signed()));
    assert_eq!(window.forget(later, usize::MAX), 2 * CHUNK_IDS);
    assert_eq!((window.chunks.len(), window.len()), (1, CHUNK_IDS));
    assert_eq!(
        window.index.iter().map(HashTable::len).sum::<usize>(),
        CHUNK_IDS
    );
    for number in 0..many {
        let id = IdHash::of(&number.to_string());
        let known = (number >= 2 * CHUNK_IDS as u64).then(|| first(number));
        assert_eq!(window.get(id, later), known);
    }
}

#[test]
fn what_a_snapshot_shares_does_not_change_under_it() {
    let mut window = Window::new();
    window.push(Slot::new(hash(1), WallMs(1), first(1)));
    let (chunks, given_up) = window.shared();
    window.push(Slot::new(hash(2), WallMs(2), first(2)));
    window.forget(Live::within(1, WallMs(9)), 1);
    let kept: Vec<IdHash> = chunks
        .iter()
        .flat_map(|it| it.iter())
        .map(|it| it.hash)
        .collect();
    assert_eq!((kept, given_up), (vec![hash(1)], 0));
}

#[test]
fn an_id_without_a_window_is_never_known() {
    let mut window = Window::new();
    window.push(Slot::new(hash(1), WallMs(5), first(1)));
    assert_eq!(window.get(hash(1), Live::within(0, WallMs(5))), None);
    assert!(window.get(hash(1), Live::within(1, WallMs(5))).is_some());
    assert_eq!(window.get(hash(1), Live::within(1, WallMs(6))), None);
}
