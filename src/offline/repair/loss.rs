//! Damaged places, and which changes they can have cost.

use std::fmt;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use super::super::verify::Finding;
use super::salvage::LostEntries;
use crate::error::Error;
use crate::key::Seq;
use crate::key_range::KeyBounds;

pub(super) const ANY_KEY: KeyBounds = (Bound::Unbounded, Bound::Unbounded);

/// A damaged place, and what it cost.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loss {
    /// The file, the offset, and what was found.
    pub finding: Finding,
    /// Lost changes can only be of these keys.
    pub keys: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    /// The greatest sequence number that they can have.
    pub(super) newest: Seq,
}

/// The finding, then the keys in quotes, escaped as in Rust strings.
impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.finding)?;
        let key = |key: &Vec<u8>| key.escape_ascii().to_string();
        match &self.keys {
            (Bound::Unbounded, Bound::Unbounded) => return f.write_str("changes of any key"),
            (Bound::Unbounded, _) => f.write_str("keys")?,
            (Bound::Included(first), _) => write!(f, "keys from \"{}\"", key(first))?,
            (Bound::Excluded(before), _) => write!(f, "keys after \"{}\"", key(before))?,
        }
        match &self.keys.1 {
            Bound::Unbounded => Ok(()),
            Bound::Included(last) => write!(f, " up to \"{}\"", key(last)),
            Bound::Excluded(end) => write!(f, " before \"{}\"", key(end)),
        }
    }
}

impl Loss {
    pub(super) fn of_error(dir: &Path, error: Error, keys: KeyBounds, newest: Seq) -> Self {
        Self { finding: Finding::of_error(dir, error), keys, newest }
    }

    pub(super) fn of_any_key(
        path: PathBuf,
        offset: Option<u64>,
        what: String,
        newest: Seq,
    ) -> Self {
        Self { finding: Finding { path, offset, what }, keys: ANY_KEY, newest }
    }
}

impl LostEntries {
    pub(super) fn into_loss(self, dir: &Path) -> Loss {
        let Self { error, keys, newest } = self;
        Loss::of_error(dir, error, keys, newest)
    }
}
