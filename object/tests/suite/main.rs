//! criba-object over an object store in memory, which loses answers, dies and counts.

mod backlog;
mod bucket;
mod costs;
mod crashes;
mod directories;
mod epochs;
mod faults;
mod hostile;
mod late_claims;
mod local_failures;
mod publications;
mod reads;
mod removal;
mod runtimes;
