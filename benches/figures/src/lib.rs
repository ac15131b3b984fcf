//! The raw lines of measurements beside other stores (`results` of `benches/peers` and `benches/object`), and the tables of the
//! documents that are made of them. A test compares the documents with these tables, without building another store.

mod compare;
mod digits;
mod lines;
mod objects;
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
