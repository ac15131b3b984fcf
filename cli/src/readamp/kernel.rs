//! The kernel's count of this process's read system calls, from `/proc/self/io`.

use std::fs::File;
use std::os::unix::fs::FileExt;

const PATH: &str = "/proc/self/io";

/// Counts the read system calls of the process.
///
/// Reading the count is a counted call, too. So the meter reads twice at the start, and subtracts the
/// difference.
#[derive(Debug)]
pub struct ReadMeter {
    file: File,
    cost: u64,
    start: u64,
}

impl ReadMeter {
    /// Starts counting.
    ///
    /// # Errors
    /// Why the kernel has no count here.
    pub fn start() -> Result<Self, String> {
        let file = File::open(PATH).map_err(|e| format!("{PATH}: cannot open: {e}"))?;
        let first = read_calls(&file)?;
        let start = read_calls(&file)?;
        match start.checked_sub(first) {
            Some(cost) if cost > 0 => Ok(Self { file, cost, start }),
            _ => {
                Err(format!("{PATH}: expected a count of read calls, found one that stands still"))
            }
        }
    }

    /// The read system calls since the start, without the meter's own.
    ///
    /// # Errors
    /// Why the kernel has no count here.
    pub fn stop(self) -> Result<u64, String> {
        let end = read_calls(&self.file)?;
        end.checked_sub(self.start + self.cost)
            .ok_or_else(|| format!("{PATH}: expected a count that grows, found one that fell"))
    }
}

/// The process's read system calls so far, without this one.
fn read_calls(file: &File) -> Result<u64, String> {
    let mut buffer = [0; 1024];
    let length = file.read_at(&mut buffer, 0).map_err(|e| format!("{PATH}: cannot read: {e}"))?;
    let text = String::from_utf8_lossy(&buffer[..length]);
    let count = text.lines().find_map(|line| line.strip_prefix("syscr: ")?.trim().parse().ok());
    count.ok_or_else(|| format!("{PATH}: expected a line syscr, found none"))
}
