//! The store as it is shipped, under schedules that shuttle chooses: every lock, atomic and thread of
//! it, and every operation on its disk in memory, is a place where another thread may go on. A thread
//! that waits for ever is found as a deadlock.
//!
//! Each test prints how many schedules and steps it ran, and with what seed. The same seed gives the same
//! schedules. A failure prints its schedule; in a file of its own, named by `CRIBA_SCHEDULES_REPLAY`, it
//! is run again. `CRIBA_SCHEDULES` is how many schedules each test runs, `CRIBA_SCHEDULES_SEED` which.
//!
//! What is not seen here: shuttle takes all atomic operations for sequentially consistent; the swap
//! of the view and the caches are libraries of their own, and an operation of theirs is one step.

mod batches;
mod bursts;
mod determinism;
mod endings;
mod explore;
mod filters;
mod reads;
mod settling;
mod snapshots;
mod store;
