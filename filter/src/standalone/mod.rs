//! The filters of keys. Each consists of `part::Part`s, arrays with their geometry. A filter with inserts consists
//! of `bits::Bits`, Bloom parts that count their ones. All have one format (`format`). Only `file` does I/O.

mod bits;
mod bloom;
mod file;
mod format;
mod fullness;
mod hashing;
mod methods;
mod part;
mod scalable;
mod sharded;
mod sizing;
mod static_filter;

pub use bloom::Bloom;
pub use file::Mapped;
pub use fullness::Fullness;
pub use hashing::Hashing;
pub use scalable::ScalableBloom;
pub use sharded::ShardedBloom;
pub use static_filter::{FilterSize, StaticFilter};
