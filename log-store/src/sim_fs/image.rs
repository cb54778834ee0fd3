//! The bytes of a file; clones share pages until one is written.

use std::sync::Arc;

/// Bytes of a page.
pub(super) const PAGE_BYTES: usize = 4096;

type PageBytes = [u8; PAGE_BYTES];

/// Bytes of a file. What was never written is zeros and takes no room.
#[derive(Debug, Clone, Default)]
pub(super) struct Image {
    bytes: u64,
    pages: Vec<Option<Arc<PageBytes>>>,
}

/// A stretch of bytes within one page.
struct Piece {
    page: usize,
    begin: usize,
    end: usize,
}

impl Image {
    pub(super) fn len(&self) -> u64 {
        self.bytes
    }

    /// Reads up to the end of the image.
    pub(super) fn read(&self, into: &mut [u8], position: u64) -> usize {
        let there = self.bytes.saturating_sub(position);
        let bytes = into.len().min(usize::try_from(there).unwrap_or(usize::MAX));
        let mut rest = into.get_mut(..bytes).unwrap_or_default();
        for piece in pieces(position, bytes) {
            let (some, more) = rest.split_at_mut(piece.end - piece.begin);
            match self.pages.get(piece.page) {
                Some(Some(page)) => {
                    some.copy_from_slice(page.get(piece.begin..piece.end).unwrap_or_default());
                }
                Some(None) | None => some.fill(0),
            }
            rest = more;
        }
        bytes
    }

    /// Writes, and lengthens the image as needed.
    pub(super) fn write(&mut self, from: &[u8], position: u64) {
        let mut rest = from;
        for piece in pieces(position, from.len()) {
            let (some, more) = rest.split_at(piece.end - piece.begin);
            self.write_piece(&piece, some);
            rest = more;
        }
        self.bytes = self.bytes.max(position + from.len() as u64);
    }

    fn write_piece(&mut self, piece: &Piece, from: &[u8]) {
        if piece.page >= self.pages.len() {
            self.pages.resize(piece.page + 1, None);
        }
        let Some(page) = self.pages.get_mut(piece.page) else {
            return;
        };
        let zeros = from.iter().all(|byte| *byte == 0);
        if zeros && (from.len() == PAGE_BYTES || page.is_none()) {
            *page = None;
            return;
        }
        let page = Arc::make_mut(page.get_or_insert_with(|| Arc::new([0; PAGE_BYTES])));
        if let Some(into) = page.get_mut(piece.begin..piece.end) {
            into.copy_from_slice(from);
        }
    }

    /// Cuts the image, or lengthens it by zeros.
    pub(super) fn set_len(&mut self, bytes: u64) {
        if bytes < self.bytes {
            let whole = bytes.div_ceil(PAGE_BYTES as u64);
            self.pages
                .truncate(usize::try_from(whole).unwrap_or(usize::MAX));
            let within = usize::try_from(bytes % PAGE_BYTES as u64).unwrap_or_default();
            let reaches = within > 0 && self.pages.len() as u64 == whole;
            let last = self
                .pages
                .last_mut()
                .filter(|_| reaches)
                .and_then(Option::as_mut);
            let rest = last.and_then(|page| Arc::make_mut(page).get_mut(within..));
            rest.unwrap_or_default().fill(0);
        }
        self.bytes = bytes;
    }
}

fn pieces(position: u64, bytes: usize) -> impl Iterator<Item = Piece> {
    let mut at = usize::try_from(position).unwrap_or(usize::MAX);
    let end = at.saturating_add(bytes);
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let page = at / PAGE_BYTES;
        let next = ((page + 1) * PAGE_BYTES).min(end);
        let piece = Piece {
            page,
            begin: at - page * PAGE_BYTES,
            end: next - page * PAGE_BYTES,
        };
        at = next;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Op {
        Write(Vec<u8>, u64),
        SetLen(u64),
    }

    fn any_op() -> impl Strategy<Value = Op> {
        let bytes = prop_oneof![
            prop::collection::vec(any::<u8>(), 1..6000),
            (1_usize..9000).prop_map(|count| vec![0; count])
        ];
        prop_oneof![
            (bytes, 0_u64..9000).prop_map(|(bytes, at)| Op::Write(bytes, at)),
            (0_u64..15_000).prop_map(Op::SetLen)
        ]
    }

    proptest! {
        #[test]
        fn an_image_behaves_as_a_vector_of_bytes(ops in prop::collection::vec(any_op(), 1..12)) {
            let mut image = Image::default();
            let mut model: Vec<u8> = Vec::new();
            for op in ops {
                let before = image.clone();
                let model_before = model.clone();
                match op {
                    Op::Write(bytes, at) => {
                        let at = usize::try_from(at).unwrap();
                        image.write(&bytes, at as u64);
                        model.resize(model.len().max(at + bytes.len()), 0);
                        model[at..at + bytes.len()].copy_from_slice(&bytes);
                    }
                    Op::SetLen(bytes) => {
                        image.set_len(bytes);
                        model.resize(usize::try_from(bytes).unwrap(), 0);
                    }
                }
                for (image, model) in [(&image, &model), (&before, &model_before)] {
                    let mut back = vec![1; model.len() + 10];
                    prop_assert_eq!(image.read(&mut back, 0), model.len());
                    prop_assert_eq!(&back[..model.len()], &model[..]);
                }
            }
        }
    }
}
