//! What readers see without the core: topics by name, their partitions' logs and visible ends.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use tokio::sync::watch;
use varvelog_store::partition::PartitionReader;
use varvelog_store::{Epoch, Offset, PartitionId, TopicId, WallMs};

use crate::core::settings::TopicSettings;
use crate::names::{GroupName, TopicName};
use crate::traffic::Traffic;

/// A consistent picture of all topics, replaced as a whole by the core.
#[derive(Debug, Default)]
pub struct Catalog {
    /// By name.
    pub by_name: BTreeMap<TopicName, Arc<TopicView>>,
    /// By identity.
    pub by_id: BTreeMap<TopicId, Arc<TopicView>>,
}

/// A topic as readers see it.
#[derive(Debug)]
pub struct TopicView {
    /// Its identity.
    pub id: TopicId,
    /// Its name.
    pub name: TopicName,
    /// Its settings.
    pub settings: TopicSettings,
    /// When it was made.
    pub created: WallMs,
    /// Set for a retry or dead-letter topic: its group.
    pub derived: Option<GroupName>,
    /// By number.
    pub partitions: Vec<PartitionView>,
    /// What came and went since the start.
    pub traffic: Arc<Traffic>,
}

/// A partition as readers see it.
#[derive(Debug, Clone)]
pub struct PartitionView {
    /// Its identity.
    pub id: PartitionId,
    /// Its log.
    pub reader: PartitionReader,
    /// One past the last visible record; the sender goes when the partition is deleted.
    pub end: watch::Receiver<Offset>,
    /// As in `AppendResult`.
    pub epoch: Epoch,
    /// First offset of each epoch, rising.
    pub epochs: Arc<[(Epoch, Offset)]>,
}

/// The handle that edges read through. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct View {
    catalog: Arc<ArcSwap<Catalog>>,
    /// Topics that were deleted last, oldest first; for the texts of refusals alone. Held for
    /// moments, never across an await.
    gone: Arc<Mutex<VecDeque<(TopicId, TopicName)>>>,
}

/// Deleted topics whose names are remembered.
const GONE_MAX: usize = 1000;

impl View {
    /// The topics as they are now.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.load_full()
    }

    /// A topic by name.
    pub fn topic(&self, name: &str) -> Option<Arc<TopicView>> {
        let name = TopicName::parse(name).ok()?;
        self.catalog.load().by_name.get(&name).cloned()
    }

    /// The name of a topic that is there, or was deleted since the broker started and is not
    /// among too many others.
    pub fn name_of(&self, id: TopicId) -> Option<TopicName> {
        if let Some(topic) = self.catalog.load().by_id.get(&id) {
            return Some(topic.name.clone());
        }
        let gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        let found = gone.iter().rev().find(|(topic, _)| *topic == id)?;
        Some(found.1.clone())
    }

    /// Puts a new picture in place of the old one; the core alone does.
    pub fn publish(&self, catalog: Catalog) {
        let catalog = Arc::new(catalog);
        let old = self.catalog.swap(Arc::clone(&catalog));
        let mut gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        let deleted = old
            .by_id
            .values()
            .filter(|old| !catalog.by_id.contains_key(&old.id));
        gone.extend(deleted.map(|old| (old.id, old.name.clone())));
        let excess = gone.len().saturating_sub(GONE_MAX);
        gone.drain(..excess);
    }
}
