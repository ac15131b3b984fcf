//! Opening: from a directory to an open store, or to one that is only read.

pub(crate) mod open;
pub(crate) mod open_tables;
pub(crate) mod read_only_state;
