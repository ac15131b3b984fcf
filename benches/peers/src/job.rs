//! A job: what is measured, on which store.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::keys::KeyKind;
use crate::settings::{Setting, Shape};
use crate::stores::Name;

/// All that determines a measurement. Equal jobs are one measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    pub store: Name,
    pub setting: Setting,
    /// Of the store.
    pub version: String,
    pub workload: Workload,
    pub repetition: u32,
    pub n: u64,
    pub keys: KeyKind,
    pub seed: u64,
    pub lookups: u64,
    pub seconds: f64,
}

impl Job {
    /// The same text for equal jobs alone.
    pub fn id(&self) -> String {
        serde_json::to_string(self).expect("plain data")
    }
}

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
    /// Page cache cold: present keys in batches of 64.
    W6m,
    /// Synced writes; one thread, eight threads.
    W7,
    /// Scans.
    W8,
    /// Overwrite half, settle, compact.
    W9,
    /// A steady writer beside readers.
    W10,
    /// Transfers between accounts of 10,000: transactions of one, two, four and eight threads.
    W11,
    /// The same between ten of the accounts, so that transactions conflict.
    W11c,
    /// Ingest sorted pairs into an empty store, until settled.
    W12,
    /// Put the pairs of W12.
    W12p,
    /// Ingest above all keys of a loaded store.
    W12f,
    /// Put the pairs of W12f.
    W12fp,
    /// Ingest between the keys of a loaded store.
    W12o,
    /// Put the pairs of W12o.
    W12op,
    /// Ingest, reopen, look absent and present keys up, overwrite a million: to be run at several `--n`.
    W13,
}

impl Workload {
    /// The loaded store that it reads; `None` if it makes its own.
    pub fn shape(self) -> Option<Shape> {
        match self {
            Self::W1 | Self::W7 | Self::W11 | Self::W11c | Self::W12 | Self::W12p | Self::W13 => {
                None
            }
            Self::W2c | Self::W2rc => Some(Shape::OneRun),
            Self::W2u | Self::W2ru => Some(Shape::L0),
            Self::W2r => Some(Shape::Deep),
            Self::W8 => Some(Shape::Prefixes),
            _ => Some(Shape::Settled),
        }
    }
}

impl std::fmt::Display for Workload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.to_possible_value().expect("none is hidden").get_name())
    }
}
