//! An estimate of what compression would save in tables, from some of their data blocks.

use super::block::BlockBuilder;
use super::compression::Compression;
use super::format::TRAILER_BYTES;
use super::reader::Table;
use crate::error::Result;

/// So many samples are read, spread over all data blocks.
const SAMPLES: usize = 64;
/// A sample ends with the block that reaches this.
const SAMPLE_BYTES: usize = 64 << 10;

/// The bytes of data blocks, as they would be stored and decompressed.
#[derive(Debug, Default)]
struct Sum {
    stored: usize,
    contents: usize,
}

impl Sum {
    fn add(&mut self, block: &mut BlockBuilder) {
        let contents = block.finish();
        self.contents += contents.len();
        self.stored += Compression::Lz4.compress(&contents).unwrap_or(contents).len();
    }
}

/// See [`Db::estimate_compression`](crate::Db::estimate_compression).
pub(crate) fn estimate_compression(tables: &[&Table], block_bytes: usize) -> Result<Option<f64>> {
    let blocks: usize = tables.iter().map(|table| table.index().len()).sum();
    let samples = SAMPLES.min(blocks);
    let mut sum = Sum::default();
    for sample in 0..samples {
        let mut number = sample * blocks / samples;
        for table in tables {
            if number < table.index().len() {
                add_sample(table, number, block_bytes, &mut sum)?;
                break;
            }
            number -= table.index().len();
        }
    }
    Ok((sum.contents > 0).then(|| sum.stored as f64 / sum.contents as f64))
}

fn add_sample(table: &Table, first: usize, block_bytes: usize, sum: &mut Sum) -> Result<()> {
    let mut new = BlockBuilder::default();
    let mut read = 0;
    for number in first..table.index().len() {
        let length = table.handle(number)?.length + TRAILER_BYTES as u64;
        let block = table.decoded_block(number)?;
        table.env().ledger.check_reads.count(length);
        for entry in (0..block.len()).filter_map(|number| block.entry(number)) {
            if !new.is_empty() && new.size() + entry.key.len() + entry.value.len() > block_bytes {
                sum.add(&mut new);
            }
            new.add(entry);
        }
        read += block.bytes();
        if read >= SAMPLE_BYTES {
            break;
        }
    }
    sum.add(&mut new);
    Ok(())
}
