//! File layers for tests and measurements: counted operations, injected faults, and a simulated disk that can lose
//! power.

mod counting;
mod fault;
mod sim;

pub use counting::{CountingVfs, FileCounts, Tally};
pub use fault::{Fault, FaultRule, FaultVfs, Injected};
pub use sim::{Keep, Moment, SimDisk, SimVfs, Unit, Unsynced};
