//! Fields of commands and snapshots: little-endian, lengths first, nothing read beyond what is
//! there and nothing allocated beyond what was read.

use varvelog_store::{Offset, PartitionId, TopicId, WallMs};

use super::message_ids::IdHash;
use crate::names::{GroupName, TopicName};

/// Why fields do not decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldError {
    /// They end early.
    Truncated,
    /// A value that no encoder writes.
    Value(&'static str),
}

/// For checks of what must hold: the text, unless it does.
pub(super) fn holds(condition: bool, text: &'static str) -> Result<(), &'static str> {
    if condition { Ok(()) } else { Err(text) }
}

/// Writes fields behind each other.
#[derive(Debug, Default)]
pub(super) struct FieldWriter {
    out: Vec<u8>,
}

impl FieldWriter {
    /// Goes on behind what is there already, with room for so many bytes more.
    pub(super) fn behind(mut out: Vec<u8>, bytes: usize) -> Self {
        out.reserve_exact(bytes);
        Self { out }
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.out
    }

    pub(super) fn u8(&mut self, value: u8) {
        self.out.push(value);
    }

    pub(super) fn bool(&mut self, value: bool) {
        self.u8(value.into());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn i16(&mut self, value: i16) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn i32(&mut self, value: i32) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn i64(&mut self, value: i64) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    /// A length or a number of elements.
    pub(super) fn count(&mut self, count: usize) {
        self.u32(u32::try_from(count).expect("no list in memory has 2^32 elements"));
    }

    pub(super) fn text(&mut self, text: &str) {
        self.count(text.len());
        self.out.extend_from_slice(text.as_bytes());
    }

    pub(super) fn wall(&mut self, time: WallMs) {
        self.i64(time.0);
    }

    pub(super) fn offset(&mut self, offset: Offset) {
        self.u64(offset.get());
    }

    pub(super) fn topic(&mut self, id: TopicId) {
        self.out.extend_from_slice(&id.0);
    }

    pub(super) fn id_hash(&mut self, hash: IdHash) {
        self.out.extend_from_slice(&hash.0);
    }

    pub(super) fn partition(&mut self, id: PartitionId) {
        self.topic(id.topic);
        self.u32(id.partition);
    }
}

/// Reads fields one behind the other.
#[derive(Debug)]
pub(super) struct FieldReader<'a> {
    rest: &'a [u8],
}

impl<'a> FieldReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Whether all was read.
    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    fn take(&mut self, bytes: usize) -> Result<&'a [u8], FieldError> {
        let (head, rest) = self
            .rest
            .split_at_checked(bytes)
            .ok_or(FieldError::Truncated)?;
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FieldError> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(FieldError::Truncated)?;
        self.rest = rest;
        Ok(*head)
    }

    pub(super) fn u8(&mut self) -> Result<u8, FieldError> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn bool(&mut self) -> Result<bool, FieldError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(FieldError::Value("a switch is neither 0 nor 1")),
        }
    }

    pub(super) fn u32(&mut self) -> Result<u32, FieldError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, FieldError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn i16(&mut self) -> Result<i16, FieldError> {
        self.array().map(i16::from_le_bytes)
    }

    pub(super) fn i32(&mut self) -> Result<i32, FieldError> {
        self.array().map(i32::from_le_bytes)
    }

    pub(super) fn i64(&mut self) -> Result<i64, FieldError> {
        self.array().map(i64::from_le_bytes)
    }

    /// A number of elements that take at least `element_bytes` each: never more than can follow.
    pub(super) fn count(&mut self, element_bytes: usize) -> Result<usize, FieldError> {
        let count = usize::try_from(self.u32()?).unwrap_or(usize::MAX);
        if count > self.rest.len() / element_bytes.max(1) {
            return Err(FieldError::Truncated);
        }
        Ok(count)
    }

    /// A list whose elements take at least `element_bytes` each.
    pub(super) fn list<T>(
        &mut self,
        element_bytes: usize,
        mut element: impl FnMut(&mut Self) -> Result<T, FieldError>,
    ) -> Result<Vec<T>, FieldError> {
        let count = self.count(element_bytes)?;
        (0..count).map(|_| element(self)).collect()
    }

    pub(super) fn text(&mut self) -> Result<&'a str, FieldError> {
        let bytes = self.count(1)?;
        std::str::from_utf8(self.take(bytes)?)
            .map_err(|_not_text| FieldError::Value("a text is not UTF-8"))
    }

    pub(super) fn wall(&mut self) -> Result<WallMs, FieldError> {
        self.i64().map(WallMs)
    }

    pub(super) fn offset(&mut self) -> Result<Offset, FieldError> {
        Offset::new(self.u64()?).ok_or(FieldError::Value("an offset is beyond the largest"))
    }

    pub(super) fn id_hash(&mut self) -> Result<IdHash, FieldError> {
        self.array().map(IdHash)
    }

    pub(super) fn topic(&mut self) -> Result<TopicId, FieldError> {
        self.array().map(TopicId)
    }

    pub(super) fn partition(&mut self) -> Result<PartitionId, FieldError> {
        Ok(PartitionId {
            topic: self.topic()?,
            partition: self.u32()?,
        })
    }

    pub(super) fn topic_name(&mut self) -> Result<TopicName, FieldError> {
        TopicName::parse(self.text()?)
            .map_err(|_refused| FieldError::Value("a topic name is not one"))
    }

    pub(super) fn group_name(&mut self) -> Result<GroupName, FieldError> {
        GroupName::parse(self.text()?)
            .map_err(|_refused| FieldError::Value("a group name is not one"))
    }
}
