//! Runs the store under schedules that shuttle chooses: each lock, atomic operation, thread and operation
//! of the simulated disk is a point where shuttle may switch threads. It reports a thread that waits for
//! ever as a deadlock.
//!
//! Each test prints its number of schedules and steps, and its seed. The same seed gives the same
//! schedules. A failed test prints its schedule; `CRIBA_SCHEDULES_REPLAY` names a file with one to repeat.
//! `CRIBA_SCHEDULES` is the number of schedules of a test, `CRIBA_SCHEDULES_SEED` the seed.
//!
//! Not covered: shuttle runs all atomic operations as sequentially consistent. The swap of the view and the
//! caches come from other crates, and each of their operations is one step.

#[path = "../../../common/linearizable.rs"]
mod linearizable;

mod batches;
mod bursts;
mod checkpoints;
mod determinism;
mod endings;
mod expiry;
mod explore;
mod filters;
mod ingests;
mod insertions;
mod ledger;
mod read_only;
mod reads;
mod settling;
mod sharded;
mod snapshots;
mod store;
mod transactions;
