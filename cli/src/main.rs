//! Varvelog.
fn main() {}
