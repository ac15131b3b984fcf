//! The methods that several filters have in common.

/// Adds the methods of all types that implement [`Saved`](super::format::Saved).
macro_rules! saved {
    ($filter:ident) => {
        impl $filter {
            /// The hash function and hash key.
            pub fn hashing(&self) -> Hashing {
                self.head.hashing
            }

            /// Encodes the filter and its hash key. With this key, absent keys that pass can be crafted. The
            /// bytes are the same on every machine.
            pub fn to_bytes(&self) -> Vec<u8> {
                super::format::Saved::encode(self)
            }

            /// Decodes a filter. Never panics, and allocates no more than the length of the bytes.
            ///
            /// # Errors
            /// If the bytes do not come from [`to_bytes`](Self::to_bytes): a checksum and all fields are
            /// checked.
            pub fn from_bytes(bytes: &[u8]) -> $crate::Result<Self> {
                super::file::from_bytes(bytes)
            }

            /// Writes the filter to a file atomically: syncs a temporary file, renames it to `path`, and
            /// syncs the directory. Processes that have mapped an old file at `path` keep the old one.
            ///
            /// # Errors
            /// If the file cannot be written, or a directory or device is at `path`. An old file at `path` is
            /// unchanged until the rename.
            pub fn save(&self, path: impl AsRef<std::path::Path>) -> $crate::Result<()> {
                super::file::save(path.as_ref(), &self.to_bytes())
            }

            /// Reads a filter from a file into memory.
            ///
            /// # Errors
            /// If the file cannot be read; else as [`from_bytes`](Self::from_bytes).
            pub fn load(path: impl AsRef<std::path::Path>) -> $crate::Result<Self> {
                super::file::load(path.as_ref())
            }
        }
    };
}

/// Adds the method that maps a file.
macro_rules! mapped {
    ($filter:ident) => {
        impl $filter {
            /// Maps a saved filter read-only: all processes that map it share one copy, in the page cache.
            /// Reads the whole file once, to verify it.
            ///
            /// # Safety
            /// No process may change or truncate the file as long as the filter lives.
            /// * **Truncation**: access to a page behind the new end raises `SIGBUS`, which kills the
            ///   process. A disk error does so too.
            /// * **Writes**: a change of memory behind a shared reference is undefined behaviour. The filter
            ///   is not verified again: a cleared bit makes it reject a key.
            ///
            /// [`save`](Self::save) is safe: a mapped old file continues to exist. Programs that write in
            /// place (`cp`, an editor, `rsync --inplace`) are not.
            ///
            /// # Errors
            /// If the file cannot be opened or mapped; else as [`from_bytes`](Self::from_bytes).
            #[expect(
                unsafe_code,
                reason = "other processes can change a mapped file: the caller excludes it"
            )]
            pub unsafe fn map(
                path: impl AsRef<std::path::Path>,
            ) -> $crate::Result<super::file::Mapped<Self>> {
                // SAFETY: the caller ensures that no process changes or truncates the file.
                unsafe { super::file::map(path.as_ref()) }
            }
        }
    };
}

/// Adds the methods of types with inserts.
macro_rules! with_inserts {
    ($filter:ident) => {
        impl $filter {
            /// Sets the hash of an empty filter.
            ///
            /// # Errors
            /// If the filter has keys: it would reject them under another hash.
            pub fn with_hashing(mut self, hashing: Hashing) -> $crate::Result<Self> {
                self.head = self.head.with_hashing(hashing, self.bits_set())?;
                Ok(self)
            }

            /// The false-positive rate that it is designed for.
            pub fn design_rate(&self) -> f64 {
                self.head.rate
            }
        }
    };
}

pub(super) use {mapped, saved, with_inserts};
