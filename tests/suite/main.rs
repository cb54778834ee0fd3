//! Tests of Varvelog as a whole, in one binary.

mod tidy;
