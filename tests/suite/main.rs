//! Tests of Varvelog as a whole, in one binary.

mod crashes;
mod flights;
mod kills;
mod program;
mod tidy;
