//! What the kernel knows about this process.

use std::fs;

use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::Result;

fn field(file: &str, name: &str) -> Result<u64> {
    let text = fs::read_to_string(file)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let value = line.and_then(|rest| rest.trim_start_matches(':').split_whitespace().next());
    Ok(value.ok_or_else(|| format!("no {name} in {file}"))?.parse()?)
}

/// Read calls so far; counting takes one or more itself.
pub fn reads() -> Result<u64> {
    field("/proc/self/io", "syscr")
}

/// The calls of `reads` itself, counted by the next one.
pub fn reads_of_reading() -> Result<u64> {
    let before = reads()?;
    Ok(reads()? - before)
}

/// Bytes passed to write calls so far.
pub fn written_bytes() -> Result<u64> {
    field("/proc/self/io", "wchar")
}

/// The most memory so far, in bytes.
pub fn peak_bytes() -> Result<u64> {
    Ok(field("/proc/self/status", "VmHWM")? << 10)
}

/// The memory now, in bytes.
pub fn resident_bytes() -> Result<u64> {
    Ok(field("/proc/self/status", "VmRSS")? << 10)
}

/// Resets the peak of memory, so that keys made before do not count.
pub fn forget_peak() -> Result<()> {
    Ok(fs::write("/proc/self/clear_refs", "5")?)
}

/// Processor seconds so far, of all threads.
pub fn cpu_seconds() -> f64 {
    seconds(clock_gettime(ClockId::ProcessCPUTime))
}

/// Processor seconds so far, of this thread.
pub fn thread_cpu_seconds() -> f64 {
    seconds(clock_gettime(ClockId::ThreadCPUTime))
}

fn seconds(time: Timespec) -> f64 {
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_counted() {
        let own = reads_of_reading().unwrap();
        let before = reads().unwrap();
        let mut file = fs::File::open("/proc/self/status").unwrap();
        for _ in 0..100 {
            std::io::Read::read(&mut file, &mut [0; 16]).unwrap();
        }
        let counted = reads().unwrap() - before - own;
        assert!(counted >= 100, "{counted}"); // other tests read, too
    }

    #[test]
    fn there_is_memory_and_time() {
        assert!(peak_bytes().unwrap() >= resident_bytes().unwrap() / 2);
        assert!(cpu_seconds() >= 0.0);
    }
}
