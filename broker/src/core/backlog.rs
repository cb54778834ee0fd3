//! What waits for a round, in order, and whether anybody waits for it.

use std::collections::VecDeque;

use super::pending::Pending;

/// What waits.
///
/// Invariant: `lazy` of the entries are lazy.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    queue: VecDeque<Pending>,
    lazy: usize,
}

/// So many lazy commands go without waiting for others.
const LAZY_MAX: usize = 4096;

impl Backlog {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether nobody waits for any of it, and it is little.
    pub(super) fn may_wait(&self) -> bool {
        self.lazy == self.queue.len() && self.lazy < LAZY_MAX
    }

    pub(super) fn front(&self) -> Option<&Pending> {
        self.queue.front()
    }

    pub(super) fn pop_front(&mut self) -> Option<Pending> {
        let next = self.queue.pop_front()?;
        self.lazy -= usize::from(next.is_lazy());
        Some(next)
    }

    pub(super) fn push_back(&mut self, pending: Pending) {
        self.lazy += usize::from(pending.is_lazy());
        self.queue.push_back(pending);
    }

    pub(super) fn push_front(&mut self, pending: Pending) {
        self.lazy += usize::from(pending.is_lazy());
        self.queue.push_front(pending);
    }

    /// Takes out the appends, in order, behind those of `held`.
    pub(super) fn take_appends(&mut self, held: &mut VecDeque<Pending>) {
        let is_append = |pending: &Pending| matches!(pending, Pending::Append(..));
        if !self.queue.iter().any(is_append) {
            return;
        }
        let all = std::mem::take(&mut self.queue);
        let (appends, others): (VecDeque<_>, VecDeque<_>) = all.into_iter().partition(is_append);
        held.extend(appends);
        self.queue = others;
    }

    /// Puts back what was taken out, in front of what came since.
    pub(super) fn put_in_front(&mut self, held: &mut VecDeque<Pending>) {
        while let Some(last) = held.pop_back() {
            self.push_front(last);
        }
    }
}
