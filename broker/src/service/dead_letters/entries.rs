//! Looking at the entries of a queue, in portions that leave the core time for others.

use varvelog_store::TopicId;

use crate::core::dead_letters::Queue;
use crate::core::handle::CoreView;
use crate::service::context::Context;
use crate::service::status::CallFailure;

/// Entries that are looked at in one question, unless one partition has more.
const LOOKED_AT_MAX: usize = 100_000;

/// Goes through the partitions of a queue, of which each portion is one question to the core, and
/// gives what `look` made of all of them.
pub(super) async fn fold<T: Send + 'static>(
    context: &Context,
    topic: TopicId,
    mut made: T,
    look: impl Fn(&Queue, u32, &mut T) + Clone + Send + 'static,
) -> Result<T, CallFailure> {
    let sizes = move |view: &CoreView<'_>| {
        let queue = view.state.dead_letters.get(topic);
        queue.map_or_else(Vec::new, |queue| queue.sizes().collect())
    };
    let sizes: Vec<(u32, usize)> = context.core().query(sizes).await?;
    for portion in portions(&sizes) {
        let look = look.clone();
        let ask = move |view: &CoreView<'_>| {
            if let Some(queue) = view.state.dead_letters.get(topic) {
                for partition in portion {
                    look(queue, partition, &mut made);
                }
            }
            made
        };
        made = context.core().query(ask).await?;
    }
    Ok(made)
}

fn portions(sizes: &[(u32, usize)]) -> Vec<Vec<u32>> {
    let mut portions: Vec<Vec<u32>> = Vec::new();
    let mut room = 0;
    for (partition, size) in sizes {
        match portions.last_mut() {
            Some(portion) if *size <= room => portion.push(*partition),
            Some(_) | None => {
                portions.push(vec![*partition]);
                room = LOOKED_AT_MAX;
            }
        }
        room = room.saturating_sub(*size);
    }
    portions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_partitions_are_looked_at_together_and_large_ones_alone() {
        let sizes = [(0, 60_000), (3, 40_000), (4, 1), (5, 900_000), (6, 1)];
        let expected: [&[u32]; 4] = [&[0, 3], &[4], &[5], &[6]];
        assert_eq!(portions(&sizes), expected);
        assert!(portions(&[]).is_empty());
    }
}
