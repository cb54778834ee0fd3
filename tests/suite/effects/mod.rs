//! Effects once: message ids and the processed table, through the real program.

mod kills;
mod pipeline;
mod postgres;
mod process;
mod table;
