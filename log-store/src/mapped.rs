//! A preallocated file, or plain memory, as a slice of atomic words.

/// Words shared with a file.
#[derive(Debug)]
pub struct Mapped {}
