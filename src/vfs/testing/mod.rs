//! File layers for tests: injected faults, and a simulated disk that can lose power.

mod fault;
mod sim;

pub use fault::{Fault, FaultRule, FaultVfs, Injected};
pub use sim::{Keep, Moment, SimDisk, SimVfs, Unit, Unsynced};
