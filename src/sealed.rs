//! Memory that is written once and then read-only, enforced by the operating system: a stray write
//! faults instead of turning a filter's bit into a lost key. It is anonymous memory, not a mapped
//! file, so a file that is cut short or rots later cannot take the process down.

use std::io;
use std::ops::Deref;

use memmap2::{Mmap, MmapMut};

use crate::sync::{Arc, AtomicU64, Ordering};

/// Bytes that nothing can change any more. Page-aligned.
#[derive(Debug)]
pub(crate) struct SealedBytes {
    memory: Option<Mmap>,
    meter: Option<Arc<Meter>>,
}

/// How much memory some sealed bytes take together, in whole pages.
#[derive(Debug, Default)]
pub(crate) struct Meter(AtomicU64);

impl Meter {
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Acquire)
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
        if length == 0 {
            return Ok(Self { memory: None, meter: None }); // a mapping cannot be empty
        }
        let mut memory = MmapMut::map_anon(length)?;
        fill(&mut memory)?;
        Ok(Self { memory: Some(memory.make_read_only()?), meter: None })
    }

    /// The same, counted by a meter from the moment in which the memory is asked for until it is
    /// given back.
    pub(crate) fn metered(
        length: usize,
        meter: &Arc<Meter>,
        fill: impl FnOnce(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<Self> {
        let counted = mapped_bytes(length);
        meter.0.fetch_add(counted, Ordering::AcqRel);
        let filled = Self::filled(length, fill);
        match filled {
            Ok(mut sealed) => {
                sealed.meter = Some(Arc::clone(meter));
                Ok(sealed)
            }
            Err(error) => {
                meter.0.fetch_sub(counted, Ordering::AcqRel);
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
        drop(self.memory.take());
        if let Some(meter) = &self.meter {
            meter.0.fetch_sub(counted, Ordering::AcqRel);
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
        self.memory.as_deref().unwrap_or_default()
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
