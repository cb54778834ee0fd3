//! Tests of Varvelog as a whole, in one binary.

mod flights;
mod kills;
mod program;
mod tidy;
