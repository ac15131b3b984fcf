//! The option for compression, and what compression saves.

use criba::{Compression, Options, ReadOnlyDb, TableInfo};

use crate::policy::FilterArgs;
use crate::text::{bytes_of, percent, ratio, thousands};

/// The sizes of data blocks that `tune` compares, in bytes.
const BLOCK_BYTES: [usize; 3] = [4096, 8192, 16_384];

/// The share of its data blocks that a store would keep with LZ4, for some sizes of blocks.
/// `None` if a sample cannot be read: the advice about filters needs no data block.
pub(crate) fn estimates(db: &ReadOnlyDb) -> [(usize, Option<f64>); 3] {
    BLOCK_BYTES.map(|bytes| (bytes, db.estimate_compression(bytes).ok().flatten()))
}

pub(crate) fn estimates_as_text(estimates: &[(usize, Option<f64>); 3]) -> String {
    let [(_, Some(small)), (_, Some(middle)), (_, Some(large))] = *estimates else {
        return "unknown: a data block cannot be read, see criba verify".to_owned();
    };
    let [small, middle, large] = [small, middle, large].map(|share| percent(Some(share)));
    format!("keeps {small} of the data; in blocks of 8 KiB {middle}, of 16 KiB {large}")
}

/// The options for what later tables get; the store keeps them.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct SettingArgs {
    #[command(flatten)]
    pub(crate) filters: FilterArgs,
    #[command(flatten)]
    compression: CompressionArgs,
    /// The greatest size of later data blocks, in bytes; the store does not keep it [default: 4096]
    #[arg(long, value_name = "BYTES", value_parser = bytes_of)]
    block_bytes: Option<u64>,
}

impl SettingArgs {
    /// The options of an opening, but for the filters.
    pub(crate) fn applied_to(&self, options: Options) -> Options {
        let options = match self.compression.compression {
            Some(how) => options.compression(how.into()),
            None => options,
        };
        match self.block_bytes {
            Some(bytes) => options.block_bytes(bytes as usize),
            None => options,
        }
    }

    /// What `compact` does not do with one run that it leaves as it is.
    pub(crate) fn has_block_settings(&self) -> bool {
        self.compression.compression.is_some() || self.block_bytes.is_some()
    }
}

#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct CompressionArgs {
    /// The compression of later data blocks, which the store keeps [default: the store's; new: none]
    #[arg(long, value_name = "HOW", value_enum)]
    compression: Option<How>,
}

impl CompressionArgs {
    /// That of a new store.
    pub(crate) fn of_new(self) -> Compression {
        self.compression.map_or(Compression::None, Compression::from)
    }
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum How {
    None,
    Lz4,
}

impl From<How> for Compression {
    fn from(how: How) -> Self {
        match how {
            How::None => Self::None,
            How::Lz4 => Self::Lz4,
        }
    }
}

pub(crate) fn name(compression: Compression) -> &'static str {
    match compression {
        Compression::None => "none",
        Compression::Lz4 => "lz4",
        _ => "unknown to this version",
    }
}

/// The bytes of data blocks in the files, and decompressed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DataBytes {
    pub(crate) stored: u64,
    pub(crate) contents: u64,
    /// The contents of the tables that have compressed blocks.
    compressed: u64,
}

impl DataBytes {
    pub(crate) fn of(tables: &[TableInfo]) -> Self {
        let mut sum = Self::default();
        for table in tables {
            sum.add(Self::of_table(table.data_bytes, table.contents_bytes));
        }
        sum
    }

    pub(crate) fn of_table(stored: u64, contents: u64) -> Self {
        Self { stored, contents, compressed: if stored < contents { contents } else { 0 } }
    }

    fn add(&mut self, other: Self) {
        self.stored += other.stored;
        self.contents += other.contents;
        self.compressed += other.compressed;
    }

    pub(crate) fn is_compressed(self) -> bool {
        self.compressed > 0
    }

    /// Stored bytes per byte of the contents.
    pub(crate) fn ratio(self) -> Option<f64> {
        ratio(self.stored as f64, self.contents)
    }

    /// The share of the contents that is in tables with compressed blocks.
    pub(crate) fn share(self) -> Option<f64> {
        ratio(self.compressed as f64, self.contents)
    }

    /// Such as "1,234 bytes, 56.7 % of 2,176".
    pub(crate) fn as_text(self) -> String {
        let bytes = thousands(self.stored);
        if self.is_compressed() {
            format!(
                "{bytes}, {} of {} decompressed",
                percent(self.ratio()),
                thousands(self.contents)
            )
        } else {
            bytes
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_that_of_tables_with_compressed_blocks() {
        let mut sum = DataBytes::of_table(600, 1000);
        assert_eq!((sum.ratio(), sum.share()), (Some(0.6), Some(1.0)));
        assert_eq!(sum.as_text(), "600, 60.0 % of 1,000 decompressed");
        sum.add(DataBytes::of_table(3000, 3000));
        assert_eq!((sum.ratio(), sum.share()), (Some(0.9), Some(0.25)));
        let plain = DataBytes::of_table(3000, 3000);
        assert_eq!((plain.as_text(), plain.share()), ("3,000".into(), Some(0.0)));
        assert_eq!(DataBytes::default().ratio(), None);
    }
}
