//! criba-object over an object store in memory, which loses answers, dies and counts.

mod bucket;
mod corners;
mod crashes;
mod epochs;
mod reads;
mod removal;
mod runtimes;
