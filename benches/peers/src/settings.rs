//! The settings of stores: as equal as possible, and recorded in words.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Of two ways to set a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Setting {
    /// As all others: no compression, blocks of 4 KiB, 10 filter bits per key on every level, the same
    /// memory.
    Alike,
    /// As the store's documentation recommends for lookups, with the same memory.
    Best,
}

/// The state of a store when it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Loaded with compactions, until none is due.
    Settled,
    /// The same, then compacted as a whole.
    OneRun,
    /// Only tables of 8 MiB on L0.
    L0,
    /// Settled, with small memtables, tables and levels: four levels or more.
    Deep,
    /// Settled, with prefixes in filters, where the store has them.
    Prefixes,
}

/// The length of a prefix, in [`Shape::Prefixes`].
pub const PREFIX_BYTES: usize = 10;

/// How a store is opened.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    pub setting: Setting,
    pub shape: Shape,
    /// Whether there is a block cache. Without one, each access to a block is a counted read.
    pub cache: bool,
    /// The number of keys, for stores that map their file.
    pub n: u64,
}

impl Config {
    pub fn new(setting: Setting, shape: Shape, n: u64) -> Self {
        Self { setting, shape, cache: true, n }
    }

    pub fn best(&self) -> bool {
        self.setting == Setting::Best
    }

    pub fn memtable_bytes(&self) -> usize {
        // In a deep store a part of the data, whatever there is of it: its levels of a tenth, a hundredth
        // and a thousandth are to have several tables each, which cover all keys.
        if self.shape == Shape::Deep { (self.n / 32) as usize } else { 64 << 20 }
    }

    pub fn table_bytes(&self) -> u64 {
        self.memtable_bytes() as u64
    }

    pub fn level_base_bytes(&self) -> u64 {
        if self.shape == Shape::Deep { self.n / 32 } else { 256 << 20 }
    }

    pub fn cache_bytes(&self) -> usize {
        if self.cache { 64 << 20 } else { 0 }
    }

    pub fn compactions(&self) -> bool {
        self.shape != Shape::L0
    }

    pub fn prefix(&self) -> Option<usize> {
        (self.shape == Shape::Prefixes).then_some(PREFIX_BYTES)
    }
}

pub const BLOCK_BYTES: usize = 4096;
pub const BITS_PER_KEY: u32 = 10;

/// Records settings: each value passes through here on its way to the store.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Told(pub Vec<(String, String)>);

impl Told {
    pub fn set<T: std::fmt::Debug>(&mut self, name: &str, value: T) -> T {
        self.0.push((name.to_owned(), format!("{value:?}")));
        value
    }

    /// For what is no value.
    pub fn note(&mut self, name: &str, words: &str) {
        self.0.push((name.to_owned(), words.to_owned()));
    }
}

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, (name, value)) in self.0.iter().enumerate() {
            write!(f, "{}{name} {value}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}
