//! The raw lines of measurements beside other stores (`benches/peers/results`), and the tables of the documents that
//! are made of them. A test compares the documents with these tables, without building another store.

mod compare;
mod digits;
mod lines;
pub mod page;
mod rows;
mod sentences;
mod sizes;
mod table;
mod wins;

pub use lines::{Line, read};
pub use sentences::sentences;
pub use sizes::plot;
pub use table::markdown;
