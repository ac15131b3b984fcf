//! Memory that the operating system makes read-only when it is filled: a stray write faults, and cannot clear
//! a bit of a filter. The memory is not mapped from a file: damage to a file cannot end the process.

use std::io;
use std::ops::Deref;

use memmap2::{Mmap, MmapMut};

use crate::store_dir::StoreDir;
use crate::sync::{Arc, AtomicU64, Ordering};

/// What prevents writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Seal {
    /// The operating system. Each seal stops the other threads of the process for a moment.
    #[default]
    System,
    /// Only the compiler, for thousands of simulated stores in tests.
    Compiler,
}

impl Seal {
    pub(crate) fn for_files_of(dir: &StoreDir) -> Self {
        if dir.is_simulated() { Self::Compiler } else { Self::System }
    }
}

#[derive(Debug)]
pub(crate) struct SealedBytes {
    memory: Memory,
    /// The last field, so that it is dropped after the memory.
    metered: Option<Metered>,
}

#[derive(Debug)]
enum Memory {
    Mapped(Mmap),
    Plain(Vec<u8>),
}

/// Counts the memory of sealed bytes, in whole pages, and sets how they are sealed.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    bytes: AtomicU64,
    seal: Seal,
}

impl Meter {
    pub(crate) fn new(seal: Seal) -> Self {
        Self { bytes: AtomicU64::default(), seal }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }
}

/// Memory that a meter counts until this is dropped.
#[derive(Debug)]
pub(crate) struct Metered {
    meter: Arc<Meter>,
    bytes: u64,
}

impl Metered {
    pub(crate) fn new(meter: &Arc<Meter>, bytes: u64) -> Self {
        meter.bytes.fetch_add(bytes, Ordering::AcqRel);
        Self { meter: Arc::clone(meter), bytes }
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        self.meter.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

pub(crate) fn mapped_bytes(length: usize) -> u64 {
    length.checked_next_multiple_of(rustix::param::page_size()).unwrap_or(usize::MAX) as u64
}

impl SealedBytes {
    /// Passes `length` zeroed bytes to `fill`, then seals them.
    pub(crate) fn filled(
        seal: Seal,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<Self> {
        // A mapping cannot be empty.
        let memory = if length == 0 || seal == Seal::Compiler {
            let mut memory = Vec::new();
            memory.try_reserve_exact(length)?;
            memory.resize(length, 0);
            fill(&mut memory)?;
            Memory::Plain(memory)
        } else {
            let mut memory = MmapMut::map_anon(length)?;
            fill(&mut memory)?;
            Memory::Mapped(memory.make_read_only()?)
        };
        Ok(Self { memory, metered: None })
    }

    /// As [`filled`](Self::filled), with the meter's seal. The bytes count from before the allocation until
    /// freed.
    pub(crate) fn metered(
        length: usize,
        meter: &Arc<Meter>,
        fill: impl FnOnce(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<Self> {
        let metered = Some(Metered::new(meter, mapped_bytes(length)));
        let Self { memory, .. } = Self::filled(meter.seal, length, fill)?;
        Ok(Self { memory, metered })
    }

    pub(crate) fn meter(&self) -> Option<&Arc<Meter>> {
        self.metered.as_ref().map(|metered| &metered.meter)
    }
}

impl AsRef<[u8]> for SealedBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Deref for SealedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.memory {
            Memory::Mapped(memory) => memory,
            Memory::Plain(memory) => memory,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filled_bytes_are_read_back() -> io::Result<()> {
        let sealed = SealedBytes::filled(Seal::System, 5000, |buffer| {
            buffer[4999] = 7;
            Ok(())
        })?;
        assert_eq!((sealed.len(), sealed[0], sealed[4999]), (5000, 0, 7));
        assert_eq!(sealed.as_ptr() as usize % 64, 0);
        assert!(SealedBytes::filled(Seal::System, 0, |_| Ok(()))?.is_empty());
        let plain = SealedBytes::filled(Seal::Compiler, 3, |buffer| {
            buffer[2] = 7;
            Ok(())
        })?;
        assert_eq!(*plain, [0, 0, 7]);
        for seal in [Seal::System, Seal::Compiler] {
            assert!(SealedBytes::filled(seal, 1 << 48, |_| Ok(())).is_err());
        }
        let failed = SealedBytes::filled(Seal::System, 9, |_| Err(io::ErrorKind::Other.into()));
        assert!(failed.is_err());
        Ok(())
    }

    #[test]
    fn a_meter_counts_whole_pages_until_they_are_freed() -> io::Result<()> {
        let (meter, page) = (Arc::default(), mapped_bytes(1));
        let one = SealedBytes::metered(1, &meter, |_| Ok(()))?;
        let two = SealedBytes::metered(page as usize + 1, &meter, |_| Ok(()))?;
        let empty = SealedBytes::metered(0, &meter, |_| Ok(()))?;
        assert_eq!(meter.bytes(), 3 * page);
        let failed = SealedBytes::metered(1, &meter, |_| Err(io::ErrorKind::Other.into()));
        assert!(failed.is_err());
        drop((one, empty));
        assert_eq!(meter.bytes(), 2 * page);
        drop(two);
        assert_eq!(meter.bytes(), 0);
        Ok(())
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_kernel_lists_the_pages_as_read_only() -> io::Result<()> {
        let sealed = SealedBytes::filled(Seal::System, 4096, |_| Ok(()))?;
        let address = sealed.as_ptr() as usize;
        let maps = std::fs::read_to_string("/proc/self/maps")?;
        let permissions = maps.lines().find_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let (from, to) = range.split_once('-')?;
            let from = usize::from_str_radix(from, 16).ok()?;
            let to = usize::from_str_radix(to, 16).ok()?;
            (from..to).contains(&address).then(|| rest[..4].to_owned())
        });
        assert_eq!(permissions.as_deref(), Some("r--p"));
        Ok(())
    }
}
