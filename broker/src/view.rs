//! What readers see without the core: topics by name, their partitions' logs and visible ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use varvelog_store::partition::PartitionReader;
use varvelog_store::{Epoch, Offset, PartitionId, TopicId, WallMs};

use crate::core::settings::TopicSettings;
use crate::names::{GroupName, TopicName};

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
}

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

    /// Puts a new picture in place of the old one; the core alone does.
    pub fn publish(&self, catalog: Catalog) {
        self.catalog.store(Arc::new(catalog));
    }
}
