//! The segments of a partition by offset, as the writer publishes them.

use std::sync::Arc;

use crate::partition::manifest::SegmentManifest;
use crate::partition::segment::OpenSegment;
use crate::partition::stored::SegmentInfo;
use crate::partition::walk::Extent;
use crate::{Offset, WallMs};

impl SegmentManifest {
    pub(crate) fn extent(&self) -> Extent {
        Extent {
            end: self.end,
            bytes: self.bytes,
        }
    }

    pub(crate) fn info(&self) -> SegmentInfo {
        SegmentInfo {
            base: self.base,
            end: self.end,
            bytes: self.bytes,
            append_time_max: self.append_time_max,
            append_time_min: self.append_time_min,
            sealed: self.sealed,
        }
    }
}

/// A state of the chain. Cloning it copies no segment.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    sealed: Arc<Vec<SegmentManifest>>,
    sealed_bytes: u64,
    /// The segment that is written to, and its files if they are open.
    active: Option<(SegmentManifest, Option<Arc<OpenSegment>>)>,
    end: Offset,
}

impl Chain {
    pub(crate) fn empty(end: Offset) -> Self {
        Self {
            sealed: Arc::default(),
            sealed_bytes: 0,
            active: None,
            end,
        }
    }

    /// A chain of `segments`, whose last one goes on unless it is sealed.
    pub(crate) fn new(mut segments: Vec<SegmentManifest>, end: Offset) -> Self {
        let active = segments
            .pop_if(|last| !last.sealed)
            .map(|last| (last, None));
        let sealed_bytes = segments
            .iter()
            .map(|segment| u64::from(segment.bytes))
            .sum();
        Self {
            sealed: Arc::new(segments),
            sealed_bytes,
            active,
            end,
        }
    }

    /// One past the last flushed record.
    pub(crate) fn end(&self) -> Offset {
        self.end
    }

    /// Size of all segments.
    pub(crate) fn bytes(&self) -> u64 {
        self.sealed_bytes
            + self
                .active
                .as_ref()
                .map_or(0, |(active, _)| active.bytes.into())
    }

    pub(crate) fn segments(&self) -> impl DoubleEndedIterator<Item = &SegmentManifest> {
        self.sealed
            .iter()
            .chain(self.active.as_ref().map(|(active, _)| active))
    }

    /// The segments from the one that holds `offset`, or is the first behind it, on.
    pub(crate) fn segments_from(&self, offset: Offset) -> impl Iterator<Item = &SegmentManifest> {
        let first = self.sealed.partition_point(|segment| segment.end <= offset);
        let active = self.active.as_ref().map(|(active, _)| active);
        let sealed = self.sealed.get(first..).unwrap_or_default();
        sealed
            .iter()
            .chain(active.filter(move |active| active.end > offset))
    }

    /// The segments from the first that holds something at or after `time` on.
    pub(crate) fn segments_since(&self, time: WallMs) -> impl Iterator<Item = &SegmentManifest> {
        let first = self
            .sealed
            .partition_point(|segment| segment.append_time_max < time);
        let active = self.active.as_ref().map(|(active, _)| active);
        let sealed = self.sealed.get(first..).unwrap_or_default();
        sealed
            .iter()
            .chain(active.filter(move |active| active.append_time_max >= time))
    }

    /// The open files of the segment at `base`, if it is the active one.
    pub(crate) fn open_active(&self, base: Offset) -> Option<&Arc<OpenSegment>> {
        let (active, open) = self.active.as_ref()?;
        if active.base == base {
            open.as_ref()
        } else {
            None
        }
    }

    pub(crate) fn active(&self) -> Option<&SegmentManifest> {
        self.active.as_ref().map(|(active, _)| active)
    }

    /// Puts a segment that is being written in place, grown or new.
    pub(crate) fn set_active(&mut self, segment: SegmentManifest, open: Option<Arc<OpenSegment>>) {
        self.end = segment.end;
        self.active = Some((segment, open));
    }

    /// Lets the active segment's files go; it stays active.
    pub(crate) fn close_active(&mut self) {
        if let Some((_, open)) = &mut self.active {
            *open = None;
        }
    }

    /// Seals the active segment; false if there is none.
    pub(crate) fn seal(&mut self) -> bool {
        let Some((mut segment, _)) = self.active.take() else {
            return false;
        };
        segment.sealed = true;
        self.sealed_bytes += u64::from(segment.bytes);
        Arc::make_mut(&mut self.sealed).push(segment);
        true
    }

    /// Takes out the segments that end at or in front of `start`.
    pub(crate) fn retire(&mut self, start: Offset) -> Vec<SegmentManifest> {
        let gone = self.sealed.partition_point(|segment| segment.end <= start);
        let mut retired = Vec::new();
        if gone > 0 {
            retired.extend(Arc::make_mut(&mut self.sealed).drain(..gone));
        }
        if let Some((active, _)) = self.active.take_if(|(active, _)| active.end <= start) {
            self.sealed_bytes += u64::from(active.bytes);
            retired.push(active);
        }
        self.sealed_bytes -= retired
            .iter()
            .map(|segment| u64::from(segment.bytes))
            .sum::<u64>();
        retired
    }

    /// Moves the end over records that are dropped unwritten, when no segment is left.
    pub(crate) fn skip_to(&mut self, end: Offset) {
        debug_assert!(self.segments().next().is_none(), "a chain has no gap");
        self.end = self.end.max(end);
    }
}
