//! The epoch of a writer: begun when it opens, ended by the next writer.
//!
//! A local record has the epochs that this directory's writer tried to begin, and the one before. It is written before the
//! manifest that begins the epoch. So a directory belongs to the newest epoch in the bucket if that is one of them.

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
/// The most attempts whose answers were lost, one after the other, that are remembered.
const MOST_ATTEMPTS: usize = 100;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Writer {
    /// The epochs that this directory tried to begin, the last one last. The answer to each attempt but the last was
    /// lost, so any of them may be in the bucket.
    epochs: Vec<Epoch>,
    /// The epoch that was the newest in the bucket before.
    before: Option<Epoch>,
}

impl Writer {
    pub(crate) fn read(local: &LocalDir) -> Result<Option<Self>> {
        let Some(bytes) = local.read(WRITER, FileKind::Manifest)? else { return Ok(None) };
        let path = local.path.join(WRITER);
        record::decode(FIRST_LINE, &bytes, &path.display().to_string()).map(Some)
    }

    fn write(&self, local: &LocalDir) -> Result<()> {
        let bytes = record::encode(FIRST_LINE, self);
        local.write(WRITER, FileKind::Manifest, |file| file.append(&bytes))
    }

    /// Whether the directory of this record belongs to the newest epoch of a bucket.
    pub(crate) fn is_of(&self, newest: Option<Epoch>) -> bool {
        newest == self.before || newest.is_some_and(|newest| self.epochs.contains(&newest))
    }

    /// The number of the last epoch.
    pub(crate) fn number(&self) -> u64 {
        self.epochs.last().map_or(0, |epoch| epoch.number)
    }
}

/// Begins the next epoch behind `newest`, with the same version of the store. `None` if another writer was quicker.
pub(crate) fn begin(
    bucket: &Bucket,
    local: &LocalDir,
    newest: Option<Published>,
    grace: u64,
    has_local: bool,
) -> Result<Option<Published>> {
    // Readers and pins rely on the time that they were given.
    let grace = newest.as_ref().map_or(0, |newest| newest.grace).max(grace);
    let before = newest.as_ref().map(|newest| newest.epoch);
    let number = before.map_or(0, |before| before.number) + 1;
    let epoch = Epoch { number, nonce: getrandom::u64()? };
    let next = match newest {
        Some(newest) => {
            // The content of a version may end before `up_to`, and a new directory has no more than that.
            let up_to = if has_local { newest.up_to } else { newest.changes };
            Published { number: newest.number + 1, epoch, grace, up_to, ..newest }
        }
        None => Published {
            number: 1,
            epoch,
            changes: 0,
            up_to: 0,
            grace,
            files: vec![],
            objects: vec![],
        },
    };
    let earlier = Writer::read(local)?.filter(|writer| writer.before == before);
    let mut epochs = earlier.map_or(Vec::new(), |writer| writer.epochs);
    epochs.drain(..epochs.len().saturating_sub(MOST_ATTEMPTS));
    epochs.push(epoch);
    Writer { epochs, before }.write(local)?;
    let (of_task, manifest) = (bucket.clone(), next.clone());
    let is_begun = bucket.runtime.wait(async move {
        if manifests::create(&of_task, &manifest).await?.is_some() {
            return Ok(false);
        }
        // The writer of the epoch before may have gone on, and have removed the manifest of this number since.
        let is_newest = manifests::newest(&of_task, Some(manifest.number)).await?.is_none();
        if !is_newest {
            of_task.remove(&manifest.object_name()).await?;
        }
        Ok(is_newest)
    })?;
    Ok(is_begun.then_some(next))
}
