//! Memory that is written once and then read-only, enforced by the operating system: a stray write
//! faults instead of turning a filter's bit into a lost key. It is anonymous memory, not a mapped
//! file, so a file that is cut short or rots later cannot take the process down.

use std::io;
use std::ops::Deref;

use memmap2::{Mmap, MmapMut};

use crate::sync::{Arc, AtomicU64, Ordering};
use crate::vfs::Vfs;

/// Who holds a seal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Seal {
    /// The operating system, which stops the process's other threads for a moment at each.
    #[default]
    System,
    /// The compiler alone: for tests that open thousands of stores on a simulated disk.
    Compiler,
}

impl Seal {
    pub(crate) fn for_files_of(vfs: &dyn Vfs) -> Self {
        if vfs.is_simulated() { Self::Compiler } else { Self::System }
    }
}

/// Bytes that nothing can change any more.
#[derive(Debug)]
pub(crate) struct SealedBytes {
    memory: Memory,
    meter: Option<Arc<Meter>>,
}

#[derive(Debug)]
enum Memory {
    Mapped(Mmap),
    Plain(Vec<u8>),
}

/// How much memory some sealed bytes take together, in whole pages; and who holds their seals.
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

/// The memory that a mapping of so many bytes takes: whole pages.
pub(crate) fn mapped_bytes(length: usize) -> u64 {
    length.next_multiple_of(rustix::param::page_size()) as u64
}

impl SealedBytes {
    /// Lets `fill` write `length` zeroed bytes, then seals them.
    pub(crate) fn filled(
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<Self> {
        Self::filled_under(Seal::System, length, fill)
    }

    /// The same, under a seal of this kind.
    pub(crate) fn filled_under(
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
        Ok(Self { memory, meter: None })
    }

    /// The same, under the meter's kind of seal, and counted by the meter from the moment in which the
    /// memory is asked for until it is given back.
    pub(crate) fn metered(
        length: usize,
        meter: &Arc<Meter>,
        fill: impl FnOnce(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<Self> {
        let counted = mapped_bytes(length);
        meter.bytes.fetch_add(counted, Ordering::AcqRel);
        let filled = Self::filled_under(meter.seal, length, fill);
        match filled {
            Ok(mut sealed) => {
                sealed.meter = Some(Arc::clone(meter));
                Ok(sealed)
            }
            Err(error) => {
                meter.bytes.fetch_sub(counted, Ordering::AcqRel);
                Err(error)
            }
        }
    }

    /// The meter that counts these bytes, for others to be counted by.
    pub(crate) fn meter(&self) -> Option<&Arc<Meter>> {
        self.meter.as_ref()
    }
}

impl Drop for SealedBytes {
    fn drop(&mut self) {
        let counted = mapped_bytes(self.len());
        self.memory = Memory::Plain(Vec::new());
        if let Some(meter) = &self.meter {
            meter.bytes.fetch_sub(counted, Ordering::AcqRel);
        }
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
    fn what_was_filled_in_is_read_back() -> io::Result<()> {
        let sealed = SealedBytes::filled(5000, |buffer| {
            buffer[4999] = 7;
            Ok(())
        })?;
        assert_eq!((sealed.len(), sealed[0], sealed[4999]), (5000, 0, 7));
        assert_eq!(sealed.as_ptr() as usize % 64, 0);
        assert!(SealedBytes::filled(0, |_| Ok(()))?.is_empty());
        let plain = SealedBytes::filled_under(Seal::Compiler, 3, |buffer| {
            buffer[2] = 7;
            Ok(())
        })?;
        assert_eq!(*plain, [0, 0, 7]);
        for seal in [Seal::System, Seal::Compiler] {
            assert!(SealedBytes::filled_under(seal, 1 << 48, |_| Ok(())).is_err());
        }
        assert!(SealedBytes::filled(9, |_| Err(io::ErrorKind::Other.into())).is_err());
        Ok(())
    }

    #[test]
    fn a_meter_counts_whole_pages_for_as_long_as_they_are_held() -> io::Result<()> {
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

    /// The seal is the kernel's: /proc says that the page is readable and not writable.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_kernel_holds_the_seal() -> io::Result<()> {
        let sealed = SealedBytes::filled(4096, |_| Ok(()))?;
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
