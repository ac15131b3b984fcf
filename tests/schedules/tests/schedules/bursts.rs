//! Schedules in bursts: a thread mostly goes on, so others get far within one of its steps.

use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};

/// Each schedule draws the chance that a thread goes on: from 1/2 to 1 - 1/2 to this power. Else any other
/// thread follows.
const LONGEST: u64 = 9;

/// Random schedules in bursts. The number of a schedule determines all its choices.
#[derive(Debug)]
pub(crate) struct BurstScheduler {
    next: u64,
    left: usize,
    state: u64,
    /// A thread goes on unless this many random bits are all zero.
    length: u64,
}

impl BurstScheduler {
    pub(crate) fn new(seed: u64, schedules: usize) -> Self {
        Self { next: seed, left: schedules, state: 0, length: 0 }
    }

    /// SplitMix64.
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

impl Scheduler for BurstScheduler {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.left = self.left.checked_sub(1)?;
        let seed = self.next;
        self.next += 1;
        self.state = seed;
        self.length = 1 + self.random() % LONGEST;
        Some(Schedule::new(seed))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        let stays = self.random() >> (64 - self.length) != 0;
        let current = current.filter(|&id| runnable.iter().any(|task| task.id() == id));
        match current.filter(|_| stays && !is_yielding) {
            Some(current) => Some(current),
            None => {
                let place = self.random() % runnable.len() as u64;
                Some(runnable[place as usize].id())
            }
        }
    }

    fn next_u64(&mut self) -> u64 {
        self.random()
    }
}
