//! What is written before the compaction.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use criba::{Batch, Clock};
use rand::seq::SliceRandom;

use super::bench::Bench;
use super::input::{Input, Stream, random};
use super::settings::Settings;
use super::work::Work;
use crate::failure::Result;

/// The value of an overwritten key.
const OVERWRITTEN: &[u8] = b"overwritten";

/// A tenth of the keys to overwrite, and a twentieth that go: half of them are deleted, the others expire.
pub(super) struct Changes<'a> {
    pub(super) overwritten: Vec<&'a [u8]>,
    pub(super) gone: HashSet<&'a [u8]>,
    /// Those of `gone` that expire.
    pub(super) expired: HashSet<&'a [u8]>,
}

/// The clock while the changes are written: a time long ago, so that what expires a second later has expired for
/// every clock.
#[derive(Debug)]
struct Earlier;

impl Clock for Earlier {
    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1)
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
}

impl<'a> Changes<'a> {
    pub(super) fn new(input: &'a Input, seed: u64) -> Self {
        let mut keys: Vec<_> = input.present.iter().map(|(key, _)| &key[..]).collect();
        keys.shuffle(&mut random(seed, Stream::Changes));
        let n = keys.len();
        let gone = keys.split_off(n - n / 20);
        let expired = gone[..gone.len() / 2].iter().copied().collect();
        keys.truncate(n / 10);
        Self { overwritten: keys, gone: gone.into_iter().collect(), expired }
    }

    /// No change.
    pub(super) fn none() -> Self {
        Self { overwritten: vec![], gone: HashSet::new(), expired: HashSet::new() }
    }

    /// The lookups after the changes: absent keys with those that are gone among them, and present keys.
    pub(super) fn work(&self, input: &'a Input, settings: &Settings) -> Result<[Work<'a>; 2]> {
        let absent = input.absent.iter().map(|key| &key[..]).chain(self.gone.iter().copied());
        let mut absent: Vec<_> = absent.map(|key| (key, None)).collect();
        absent.sort_unstable(); // a set has no order that two runs share
        let mut present: HashMap<_, _> =
            input.present.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        present.retain(|key, _| !self.gone.contains(key));
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
        let db = bench.open(|options| options.memtable_bytes(1 << 30).clock(Arc::new(Earlier)))?;
        let expiry = db.now() + Duration::from_secs(1);
        let mut keys = self.overwritten.iter().chain(&self.gone).copied().collect::<Vec<_>>();
        keys.sort_unstable();
        bench.begin("changes", keys.len());
        for keys in keys.chunks(64) {
            let mut batch = Batch::new();
            for &key in keys {
                if self.expired.contains(key) {
                    batch.put_expiring(key, OVERWRITTEN, expiry);
                } else if self.gone.contains(key) {
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
