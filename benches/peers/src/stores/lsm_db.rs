//! lsm-db, the most similar to criba: runs with filters of 1 % in memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lsm_db::{Lsm, LsmConfig};

use super::{Built, Reader, Store, seen, settle_by_looking};
use crate::Result;
use crate::settings::{Config, Told};

pub struct LsmDb {
    db: Lsm,
    dir: PathBuf,
    config: LsmConfig,
    compactions: bool,
}

/// As many runs as are left alone.
const TRIGGER: usize = 4;

impl Store for LsmDb {
    type Reader<'s> = &'s Lsm;

    const L0: bool = true;
    const SYNCED: bool = cfg!(feature = "lsm-db-log");

    fn version() -> String {
        let log = if Self::SYNCED { "with its log" } else { "without a log" };
        format!("{} ({log})", env!("VERSION_LSM_DB"))
    }

    fn open(dir: &Path, config: &Config, told: &mut Told) -> Result<Self> {
        let runs = if config.compactions() { TRIGGER } else { usize::MAX };
        let config_of_lsm = LsmConfig::new()
            .memtable_capacity(told.set("memtable_capacity", config.memtable_bytes()))
            .block_cache_capacity(told.set("block_cache_capacity", config.cache_bytes()))
            .compaction_trigger(told.set("compaction_trigger", runs));
        told.note("filter", "1 %, as always");
        told.note("log", if Self::SYNCED { "each write synced" } else { "none" });
        Ok(Self {
            db: Lsm::open_with(dir, config_of_lsm.clone())?,
            dir: dir.to_owned(),
            config: config_of_lsm,
            compactions: config.compactions(),
        })
    }

    fn reader(&self) -> Result<&Lsm> {
        Ok(&self.db)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.db.put(key, value)?)
    }

    fn put_synced(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.db.put(key, value)?)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(self.db.flush()?)
    }

    /// lsm-db does not report its runs; this counts their files.
    fn settle(&self) -> Result<Duration> {
        settle_by_looking(|| {
            let files = Files::of(&self.dir)?;
            let busy = files.unfinished || self.compactions && files.runs >= TRIGGER as u64;
            Ok((!busy).then_some((files.runs, files.filter_bytes)))
        })
    }

    /// lsm-db compacts only by itself, into one run: this opens it with a trigger of two and adds a run.
    fn compact(&mut self) -> Result<()> {
        if Files::of(&self.dir)?.runs < 2 {
            return Ok(());
        }
        let eager = self.config.clone().compaction_trigger(2);
        self.reopen(eager)?;
        // A flush is what makes it look. The key is deleted and lies beyond all others.
        self.db.delete([0xFF; 8])?;
        self.db.flush()?;
        settle_by_looking(|| {
            let files = Files::of(&self.dir)?;
            Ok((!files.unfinished && files.runs == 1).then_some(()))
        })?;
        self.reopen(self.config.clone())
    }

    fn built(&self) -> Result<Built> {
        let Files { runs, filter_bytes, .. } = Files::of(&self.dir)?;
        Ok(Built { runs: Some(runs), l0_tables: Some(runs), filter_bytes: Some(filter_bytes) })
    }
}

impl LsmDb {
    /// Opens the store again. It has no lock, so the old one is closed before.
    fn reopen(&mut self, config: LsmConfig) -> Result<()> {
        let elsewhere = std::env::temp_dir().join(format!("lsm-db-nothing-{}", std::process::id()));
        self.db = Lsm::open(&elsewhere)?;
        self.db = Lsm::open_with(&self.dir, config)?;
        Ok(fs::remove_dir_all(elsewhere)?)
    }
}

/// What lies in its directory.
struct Files {
    runs: u64,
    filter_bytes: u64,
    unfinished: bool,
}

impl Files {
    fn of(dir: &Path) -> Result<Self> {
        let mut files = Self { runs: 0, filter_bytes: 0, unfinished: false };
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            match entry.path().extension().and_then(|end| end.to_str()) {
                Some("sst") => files.runs += 1,
                // Merged runs are removed while this looks.
                Some("bloom") => files.filter_bytes += entry.metadata().map_or(0, |it| it.len()),
                Some("tmp") => files.unfinished = true,
                _ => {}
            }
        }
        Ok(files)
    }
}

impl Reader for &Lsm {
    #[inline]
    fn get(&self, key: &[u8]) -> Result<Option<usize>> {
        Ok(Lsm::get(self, key)?.map(|value| seen(&value)))
    }

    /// A range is collected before its first pair is returned, so a range must have an end, which is not
    /// known.
    fn scan(&self, from: &[u8], limit: usize) -> Result<(usize, usize)> {
        let (mut count, mut bytes) = (0, 0);
        for (key, value) in Lsm::scan(self, from.to_vec()..)?.take(limit) {
            count += 1;
            bytes += seen(&key) + seen(&value);
        }
        Ok((count, bytes))
    }

    fn prefix(&self, prefix: &[u8]) -> Result<usize> {
        let mut end = prefix.to_vec();
        while end.last() == Some(&0xFF) {
            end.pop();
        }
        let last = end.last_mut().ok_or("a prefix without an end")?;
        *last += 1;
        Ok(Lsm::scan(self, prefix.to_vec()..end)?.count())
    }
}
