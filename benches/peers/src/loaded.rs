//! Loaded stores: made once, and read by every workload of their shape.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};

use crate::Result;
use crate::job::Job;
use crate::keys::{Keys, VALUE_BYTES};
use crate::settings::{Config, Shape, Told};
use crate::stores::{Store, shape_of};

/// What the tables of [`Shape::L0`] hold each.
const L0_TABLE_BYTES: u64 = 8 << 20;

/// The directories of stores, and their names.
#[derive(Debug)]
pub struct Place<'a> {
    pub dir: &'a Path,
    pub job: &'a Job,
}

impl Place<'_> {
    /// The directory of a loaded store.
    pub fn of(&self, shape: Shape) -> PathBuf {
        let Job { store, setting, n, keys, seed, .. } = self.job;
        let name = format!("{store}-{setting:?}-{keys:?}-{n}-{seed}-{shape:?}").to_lowercase();
        self.dir.join(name)
    }

    /// A directory for this workload alone, empty.
    pub fn scratch(&self) -> Result<PathBuf> {
        let dir = self.dir.join(format!("scratch-{}", std::process::id()));
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        Ok(dir)
    }

    /// A file beside a completely loaded store, with its version.
    fn mark(&self, shape: Shape) -> PathBuf {
        self.of(shape).with_extension("loaded")
    }

    pub fn is_loaded(&self, shape: Shape) -> bool {
        fs::read_to_string(self.mark(shape)).is_ok_and(|version| version == self.job.version)
    }

    /// Makes a directory the loaded store of this shape.
    pub fn adopt(&self, dir: &Path, shape: Shape) -> Result<()> {
        let to = self.of(shape);
        if to.exists() {
            fs::remove_dir_all(&to)?;
        }
        sync_files(dir)?;
        fs::rename(dir, &to)?;
        Ok(fs::write(self.mark(shape), &self.job.version)?)
    }

    /// Loads a store of this shape, unless there is one.
    pub fn prepare<S: Store>(&self, shape: Shape, keys: &Keys) -> Result<()> {
        let shape = shape_of::<S>(shape);
        if self.is_loaded(shape) {
            return Ok(());
        }
        let scratch = self.scratch()?;
        let config = Config::new(self.job.setting, shape, self.job.n);
        if shape == Shape::OneRun {
            self.prepare::<S>(Shape::Settled, keys)?;
            copy(&self.of(Shape::Settled), &scratch)?;
            let mut store = S::open(&scratch, &config, &mut Told::default())?;
            store.compact()?;
            store.settle()?;
            store.close()?;
        } else {
            load::<S>(&scratch, &config, keys)?.0.close()?;
        }
        self.adopt(&scratch, shape)
    }
}

/// How long loading took.
pub struct Loading {
    pub until_flushed: Duration,
    pub until_settled: Duration,
}

/// Loads all present keys, in random order.
pub fn load<S: Store>(dir: &Path, config: &Config, keys: &Keys) -> Result<(S, Loading)> {
    let mut store = S::open(dir, config, &mut Told::default())?;
    // Tables of the same contents in every store, whatever each takes a full memtable to be.
    let flush_every = match config.shape {
        Shape::L0 => L0_TABLE_BYTES / (keys.live_bytes() / keys.n).max(VALUE_BYTES as u64),
        _ => keys.n,
    };
    let start = Instant::now();
    let mut first = 0;
    while first < keys.n {
        let end = (first + flush_every).min(keys.n);
        store.load(&mut keys.pairs(first..end, 0))?;
        store.flush()?;
        first = end;
    }
    let until_flushed = start.elapsed();
    let mut idle = Duration::ZERO;
    if config.compactions() {
        idle = store.settle()?;
    }
    let until_settled = start.elapsed().saturating_sub(idle).max(until_flushed);
    Ok((store, Loading { until_flushed, until_settled }))
}

/// The files under a directory.
fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            all.append(&mut files(&entry.path())?);
        } else {
            all.push(entry.path());
        }
    }
    Ok(all)
}

/// The blocks of a store on disk: files may have holes.
pub fn disk_bytes(dir: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut sum = 0;
    for file in files(dir)? {
        // A file may be removed while this looks.
        sum += fs::metadata(file).map_or(0, |it| it.blocks() * 512);
    }
    Ok(sum)
}

/// Syncs all files: dirty pages cannot be dropped, and would be written later.
pub fn sync_files(dir: &Path) -> Result<()> {
    for file in files(dir)? {
        File::open(file)?.sync_all()?;
    }
    Ok(())
}

/// Brings every file into the page cache.
pub fn warm(dir: &Path) -> Result<()> {
    for file in files(dir)? {
        std::io::copy(&mut File::open(file)?, &mut std::io::sink())?;
    }
    Ok(())
}

/// Drops every file from the page cache. Needs no privileges. No process may have them mapped.
pub fn chill(dir: &Path) -> Result<()> {
    sync_files(dir)?;
    for file in files(dir)? {
        fadvise(File::open(file)?, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

/// Copies a directory with the holes in its files.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    let done = std::process::Command::new("cp")
        .args(["-r", "--sparse=always"])
        .args([from, to])
        .status()?;
    if done.success() { Ok(()) } else { Err(format!("copying {} failed", from.display()).into()) }
}
