//! What every filter of one's own can do: to bytes and back, into a file and back.

use super::format::{Flaw, Form, Head};
use super::part::{Array, Part};

/// A filter as the file format sees it: a head and parts.
pub(super) trait Saved: Sized {
    const FORM: Form;

    fn encode(&self) -> Vec<u8>;

    /// Puts together what was read, or says why these parts are no filter of this form.
    fn assemble(head: Head, parts: Vec<Part>) -> Result<Self, Flaw>;

    /// The memory for the bytes of an array that were read.
    fn array(bytes: &[u8]) -> crate::Result<Array> {
        let mut array = Array::zeroed(bytes.len())?;
        array.to_mut().copy_from_slice(bytes);
        Ok(array)
    }
}

/// The calls that write and read bytes and files, the same for each type.
macro_rules! saved {
    ($filter:ident) => {
        impl $filter {
            /// The filter as bytes, its hash key among them: whoever reads them can craft keys that
            /// pass. They are the same on every machine.
            pub fn to_bytes(&self) -> Vec<u8> {
                Saved::encode(self)
            }

            /// The filter that these bytes are.
            ///
            /// # Errors
            /// If the bytes are not all as [`to_bytes`](Self::to_bytes) made them: a checksum covers
            /// them, and every field is checked. No bytes make this panic, or take more memory than
            /// they do themselves.
            pub fn from_bytes(bytes: &[u8]) -> $crate::Result<Self> {
                super::file::from_bytes(bytes)
            }

            /// Writes the filter to a file, in one step: to a temporary file beside it, which is
            /// synced, and renamed to `path`, the directory synced as well. After a crash there is
            /// the old file or the new one. Processes that have mapped the old one keep that.
            ///
            /// # Errors
            /// If the file cannot be written; what was at `path` is as it was.
            pub fn save(&self, path: impl AsRef<std::path::Path>) -> $crate::Result<()> {
                super::file::save(path.as_ref(), &self.to_bytes())
            }

            /// Reads the filter from a file, whole, into memory.
            ///
            /// # Errors
            /// If the file cannot be read, or as [`from_bytes`](Self::from_bytes).
            pub fn load(path: impl AsRef<std::path::Path>) -> $crate::Result<Self> {
                super::file::load(path.as_ref())
            }
        }
    };
}

/// The call that maps a file, for filters of one part.
macro_rules! mapped {
    ($filter:ident) => {
        impl $filter {
            /// Maps a saved filter, read-only, instead of reading it into memory: all processes that
            /// map the file share one copy of it, the page cache's. The whole file is read once, to
            /// verify it, here; later the kernel may drop pages and read them again.
            ///
            /// # Safety
            /// As long as the filter lives, no process may change the file or cut it short.
            /// * **Truncation**: touching a page beyond the new end of the file raises `SIGBUS`, which
            ///   kills the process; so does an error of the disk below. No check here prevents that.
            /// * **Writers**: memory that changes below a shared reference is undefined behaviour,
            ///   and what was verified when it was mapped is not verified again: a bit cleared later
            ///   denies a key.
            ///
            /// [`save`](Self::save) does neither: it puts a new file in place of the old, which lives
            /// on until nobody maps it. Truncating or copying over the file in place (`cp`, an editor,
            /// `rsync --inplace`) does.
            ///
            /// # Errors
            /// If the file cannot be opened or mapped, or as [`from_bytes`](Self::from_bytes).
            #[expect(
                unsafe_code,
                reason = "a mapped file can be changed by others: the caller answers"
            )]
            pub unsafe fn map(
                path: impl AsRef<std::path::Path>,
            ) -> $crate::Result<super::file::Mapped<Self>> {
                // SAFETY: the caller promises that nobody changes or truncates the file.
                unsafe { super::file::map(path.as_ref()) }
            }
        }
    };
}

pub(super) use {mapped, saved};
