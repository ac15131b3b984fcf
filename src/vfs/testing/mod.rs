//! File layers for tests: one that fails chosen operations, and a disk in memory that can lose its power.

mod fault;
mod sim;

pub use fault::{Fault, FaultRule, FaultVfs, Injected};
pub use sim::{Keep, Moment, SimDisk, SimVfs, Unit, Unsynced};
