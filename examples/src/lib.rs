//! What the example programs do, so that tests run the same.

pub mod pipeline;
