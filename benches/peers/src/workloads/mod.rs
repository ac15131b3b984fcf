//! The workloads, in a file for each group.

mod cold;
mod ingest;
mod load;
mod lookups;
mod mixed;
mod reads;
mod scale;
mod scans;
mod synced;
mod transfers;

use std::path::PathBuf;

use crate::Result;
use crate::job::{Job, Workload};
use crate::keys::{KeyKind, Keys};
use crate::loaded::{self, Place};
use crate::measure::Budget;
use crate::random::Random;
use crate::results::Findings;
use crate::settings::{Config, Shape};
use crate::stores::{Store, shape_of};

pub use transfers::ACCOUNTS;

impl Workload {
    /// Why a store is left out, if it is.
    fn leaves_out<S: Store>(self, job: &Job) -> Option<&'static str> {
        match self {
            // That would be so many tables that some stores stop taking writes.
            Self::W2u | Self::W2ru if job.n > 2_000_000 => Some("of a million keys only"),
            Self::W2u | Self::W2ru if !S::L0 => Some("compactions cannot be turned off"),
            Self::W2r | Self::W2rc | Self::W2ru if !S::CACHE_OFF => Some("no cache to turn off"),
            Self::W1 | Self::W9 | Self::W10 | Self::W12p if !S::LOG => Some("no log"),
            Self::W7 if !S::SYNCED => Some("no synced writes"),
            Self::W11 | Self::W11c if !S::TRANSACTIONS => Some("no transactions here"),
            _ if (self.is_w12() || self == Self::W13) && !S::INGEST => Some("no ingest"),
            _ if self.is_w12() && job.keys != KeyKind::Names => Some("of names only"),
            _ => None,
        }
    }

    /// Whether it is of the group W12.
    fn is_w12(self) -> bool {
        use Workload::{W12, W12f, W12fp, W12o, W12op, W12p};
        matches!(self, W12 | W12p | W12f | W12fp | W12o | W12op)
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
        if let Some(why) = workload.leaves_out::<S>(self.job) {
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
            Workload::W6m => cold::batches::<S>(self),
            Workload::W7 => synced::synced::<S>(self),
            Workload::W8 => scans::scans::<S>(self),
            Workload::W9 => load::overwrite::<S>(self),
            Workload::W10 => mixed::mixed::<S>(self),
            Workload::W11 => transfers::transfers::<S>(self, ACCOUNTS),
            Workload::W11c => transfers::transfers::<S>(self, 10),
            Workload::W12
            | Workload::W12p
            | Workload::W12f
            | Workload::W12fp
            | Workload::W12o
            | Workload::W12op => ingest::ingest::<S>(self),
            Workload::W13 => scale::scale::<S>(self),
        }
    }

    /// Loads what the workload reads.
    pub fn prepare<S: Store>(&mut self) -> Result<()> {
        match self.job.workload.shape() {
            Some(shape) if self.job.workload.leaves_out::<S>(self.job).is_none() => {
                self.place.prepare::<S>(shape, self.keys)
            }
            _ => Ok(()),
        }
    }
}
