//! The epoch of a writer: begun when it opens, ended by the next writer.
//!
//! A local record has the epoch that this directory's writer began, and the one before. It is written before the
//! manifest that begins the epoch. So a directory belongs to the newest epoch in the bucket if that is one of the two.

use criba::vfs::FileKind;

use serde::{Deserialize, Serialize};

use crate::bucket::Bucket;
use crate::error::Result;
use crate::local::LocalDir;
use crate::manifests;
use crate::published::{Epoch, Published};
use crate::record;

const FIRST_LINE: &str = "criba-object writer 1\n";
pub(crate) const WRITER: &str = "WRITER";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Writer {
    pub(crate) epoch: Epoch,
    /// The epoch that was the newest in the bucket before.
    before: Option<Epoch>,
}

impl Writer {
    pub(crate) fn read(local: &LocalDir) -> Result<Option<Self>> {
        let Some(bytes) = local.read(WRITER, FileKind::Manifest)? else { return Ok(None) };
        let path = local.path.join(WRITER);
        record::decode(FIRST_LINE, &bytes, &path.display().to_string()).map(Some)
    }

    fn write(self, local: &LocalDir) -> Result<()> {
        let bytes = record::encode(FIRST_LINE, &self);
        local.write(WRITER, FileKind::Manifest, |file| file.append(&bytes))
    }

    /// Whether the directory of this record belongs to the newest epoch of a bucket.
    pub(crate) fn is_of(&self, newest: Option<Epoch>) -> bool {
        newest == Some(self.epoch) || newest == self.before
    }
}

/// Begins the next epoch behind `newest`, with the same version of the store. `None` if another writer was quicker.
pub(crate) fn begin(
    bucket: &Bucket,
    local: &LocalDir,
    newest: Option<Published>,
    grace: u64,
) -> Result<Option<Published>> {
    let before = newest.as_ref().map(|newest| newest.epoch);
    let number = before.map_or(0, |before| before.number) + 1;
    let epoch = Epoch { number, nonce: getrandom::u64()? };
    let next = match newest {
        Some(newest) => Published { number: newest.number + 1, epoch, grace, ..newest },
        None => Published { number: 1, epoch, changes: 0, grace, files: vec![], objects: vec![] },
    };
    Writer { epoch, before }.write(local)?;
    let (of_task, manifest) = (bucket.clone(), next.clone());
    let other = bucket.runtime.wait(async move { manifests::create(&of_task, &manifest).await })?;
    Ok(other.is_none().then_some(next))
}
