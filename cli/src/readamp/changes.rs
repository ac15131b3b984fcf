//! What is written before the compaction.

use std::collections::{HashMap, HashSet};

use criba::Batch;
use rand::seq::SliceRandom;

use super::bench::Bench;
use super::input::{Input, Stream, random};
use super::settings::Settings;
use super::work::Work;
use crate::failure::Result;

/// The value of an overwritten key.
const OVERWRITTEN: &[u8] = b"overwritten";

/// A tenth of the keys to overwrite, and a twentieth to delete.
pub(super) struct Changes<'a> {
    pub(super) overwritten: Vec<&'a [u8]>,
    pub(super) deleted: HashSet<&'a [u8]>,
}

impl<'a> Changes<'a> {
    pub(super) fn new(input: &'a Input, seed: u64) -> Self {
        let mut keys: Vec<_> = input.present.iter().map(|(key, _)| &key[..]).collect();
        keys.shuffle(&mut random(seed, Stream::Changes));
        let n = keys.len();
        let deleted = keys.split_off(n - n / 20).into_iter().collect();
        keys.truncate(n / 10);
        Self { overwritten: keys, deleted }
    }

    /// No change.
    pub(super) fn none() -> Self {
        Self { overwritten: vec![], deleted: HashSet::new() }
    }

    /// The lookups after the changes: absent keys with the deleted ones among them, and present keys.
    pub(super) fn work(&self, input: &'a Input, settings: &Settings) -> Result<[Work<'a>; 2]> {
        let absent = input.absent.iter().map(|key| &key[..]).chain(self.deleted.iter().copied());
        let mut absent: Vec<_> = absent.map(|key| (key, None)).collect();
        absent.sort_unstable(); // a set has no order that two runs share
        let mut present: HashMap<_, _> =
            input.present.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        present.retain(|key, _| !self.deleted.contains(key));
        present.extend(self.overwritten.iter().map(|key| (*key, OVERWRITTEN)));
        let mut present: Vec<_> =
            present.into_iter().map(|(key, value)| (key, Some(value))).collect();
        present.sort_unstable();
        Ok([
            Work::new(&absent, settings, Stream::Absent)?,
            Work::new(&present, settings, Stream::Present)?,
        ])
    }

    /// Writes the changes into one table.
    pub(super) fn write(&self, bench: &Bench) -> Result<()> {
        let db = bench.open(|options| options.memtable_bytes(1 << 30))?;
        let mut keys = self.overwritten.iter().chain(&self.deleted).copied().collect::<Vec<_>>();
        keys.sort_unstable();
        bench.begin("changes", keys.len());
        for keys in keys.chunks(64) {
            let mut batch = Batch::new();
            for &key in keys {
                if self.deleted.contains(key) {
                    batch.delete(key);
                } else {
                    batch.put(key, OVERWRITTEN);
                }
            }
            db.write(batch)?;
        }
        db.flush()?;
        Ok(db.close()?)
    }
}
