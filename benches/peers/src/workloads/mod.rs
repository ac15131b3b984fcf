//! The workloads, in a file for each group.

mod cold;
mod load;
mod lookups;
mod mixed;
mod reads;
mod scans;
mod synced;

use std::path::PathBuf;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::keys::Keys;
use crate::loaded::{self, Place};
use crate::measure::Budget;
use crate::random::Random;
use crate::results::{Findings, Job};
use crate::settings::{Config, Shape};
use crate::stores::{Store, shape_of};

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Load in random order, until flushed, until settled.
    W1,
    /// Absent keys, settled; one thread, two threads.
    W2,
    /// Absent keys, compacted to one run.
    W2c,
    /// Absent keys, L0 full.
    W2u,
    /// Absent keys in batches of 16.
    W2m,
    /// Disk reads per absent key, without a cache: four levels or more.
    W2r,
    /// The same on one run.
    W2rc,
    /// The same with L0 full.
    W2ru,
    /// Present keys, all as likely.
    W3,
    /// Present keys, zipfian.
    W4,
    /// Half absent, half present.
    W5,
    /// Page cache cold.
    W6,
    /// Synced writes; one thread, eight threads.
    W7,
    /// Scans.
    W8,
    /// Overwrite half, settle, compact.
    W9,
    /// A steady writer beside readers.
    W10,
}

impl Workload {
    /// The loaded store that it reads; `None` if it makes its own.
    pub fn shape(self) -> Option<Shape> {
        match self {
            Self::W1 | Self::W7 => None,
            Self::W2c | Self::W2rc => Some(Shape::OneRun),
            Self::W2u | Self::W2ru => Some(Shape::L0),
            Self::W2r => Some(Shape::Deep),
            Self::W8 => Some(Shape::Prefixes),
            _ => Some(Shape::Settled),
        }
    }

    /// Why a store is left out, if it is.
    fn leaves_out<S: Store>(self, n: u64) -> Option<&'static str> {
        match self {
            // That would be so many tables that some stores stop taking writes.
            Self::W2u | Self::W2ru if n > 2_000_000 => Some("of a million keys only"),
            Self::W2u | Self::W2ru if !S::L0 => Some("compactions cannot be turned off"),
            Self::W2r | Self::W2rc | Self::W2ru if !S::CACHE_OFF => Some("no cache to turn off"),
            Self::W7 if !S::SYNCED => Some("no synced writes"),
            _ => None,
        }
    }
}

impl std::fmt::Display for Workload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.to_possible_value().expect("none is hidden").get_name())
    }
}

/// What a workload works on.
pub struct Bench<'a> {
    pub job: &'a Job,
    pub keys: &'a Keys,
    pub place: Place<'a>,
    pub random: Random,
    pub findings: Findings,
}

impl<'a> Bench<'a> {
    pub fn new(job: &'a Job, keys: &'a Keys, place: Place<'a>) -> Self {
        // The same numbers for every store, others in each repetition.
        let random = Random::new(job.seed ^ u64::from(job.repetition) << 32);
        Self { job, keys, place, random, findings: Findings::default() }
    }

    pub fn budget(&self) -> Budget {
        Budget { operations: self.job.lookups, seconds: self.job.seconds }
    }

    fn figure(&mut self, name: &str, value: f64) {
        self.findings.figure(name, value);
    }

    fn config(&self, shape: Shape) -> Config {
        Config::new(self.job.setting, shape, self.job.n)
    }

    /// The loaded store of the workload's shape.
    fn loaded<S: Store>(&self) -> Result<(PathBuf, Config)> {
        let shape = self.job.workload.shape().ok_or("it makes its own store")?;
        let shape = shape_of::<S>(shape);
        if !self.place.is_loaded(shape) {
            return Err("no store was loaded".into());
        }
        Ok((self.place.of(shape), self.config(shape)))
    }

    /// Opens a store and waits until it has no work: opening may cause some.
    fn open<S: Store>(&mut self, dir: &std::path::Path, config: &Config) -> Result<S> {
        self.findings.settings.0.clear();
        let store = S::open(dir, config, &mut self.findings.settings)?;
        if config.compactions() {
            store.settle()?;
        }
        Ok(store)
    }

    /// Opens the loaded store with its files in the page cache.
    fn open_warm<S: Store>(&mut self) -> Result<S> {
        let (dir, config) = self.loaded::<S>()?;
        loaded::warm(&dir)?;
        self.open(&dir, &config)
    }

    /// Records the state of the store.
    fn describe<S: Store>(&mut self, store: &S) -> Result<()> {
        let built = store.built()?;
        self.findings.runs = built.runs;
        self.findings.l0_tables = built.l0_tables;
        self.findings.filter_bytes = built.filter_bytes;
        Ok(())
    }

    /// Measures.
    pub fn run<S: Store>(&mut self) -> Result<()> {
        let workload = self.job.workload;
        if let Some(why) = workload.leaves_out::<S>(self.job.n) {
            self.findings.left_out = Some(why.to_owned());
            return Ok(());
        }
        match workload {
            Workload::W1 => load::load::<S>(self),
            Workload::W2 => lookups::absent::<S>(self, true),
            Workload::W2c | Workload::W2u => lookups::absent::<S>(self, false),
            Workload::W2m => lookups::batches::<S>(self),
            Workload::W2r | Workload::W2rc | Workload::W2ru => reads::absent::<S>(self),
            Workload::W3 => lookups::present::<S>(self),
            Workload::W4 => lookups::zipfian::<S>(self),
            Workload::W5 => lookups::half::<S>(self),
            Workload::W6 => cold::cold::<S>(self),
            Workload::W7 => synced::synced::<S>(self),
            Workload::W8 => scans::scans::<S>(self),
            Workload::W9 => load::overwrite::<S>(self),
            Workload::W10 => mixed::mixed::<S>(self),
        }
    }

    /// Loads what the workload reads.
    pub fn prepare<S: Store>(&mut self) -> Result<()> {
        match self.job.workload.shape() {
            Some(shape) if self.job.workload.leaves_out::<S>(self.job.n).is_none() => {
                self.place.prepare::<S>(shape, self.keys)
            }
            _ => Ok(()),
        }
    }
}
