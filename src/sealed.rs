//! Memory that is written once and then read-only, enforced by the operating system: a stray write
//! faults instead of turning a filter's bit into a lost key. It is anonymous memory, not a mapped
//! file, so a file that is cut short or rots later cannot take the process down.

use std::io;
use std::ops::Deref;

use memmap2::{Mmap, MmapMut};

/// Bytes that nothing can change any more. Page-aligned.
#[derive(Debug)]
pub(crate) struct SealedBytes(Option<Mmap>);

impl SealedBytes {
    /// Lets `fill` write `length` zeroed bytes, then seals them.
    pub(crate) fn filled(
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<Self> {
        if length == 0 {
            return Ok(Self(None)); // a mapping cannot be empty
        }
        let mut memory = MmapMut::map_anon(length)?;
        fill(&mut memory)?;
        Ok(Self(Some(memory.make_read_only()?)))
    }
}

impl Deref for SealedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
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
