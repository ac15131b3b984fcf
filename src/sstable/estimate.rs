//! An estimate of what compression would save in tables, from samples of their data blocks.

use super::block::{BlockBuilder, MAX_BLOCK_OF_ENTRIES};
use super::compression::{Compression, MAX_CONTENTS_BYTES};
use super::format::TRAILER_BYTES;
use super::reader::Table;
use crate::error::Result;

/// So many samples are read.
const SAMPLES: u64 = 64;
/// A sample ends with the block that reaches this.
const SAMPLE_BYTES: usize = 64 << 10;

/// See [`Db::estimate_compression`](crate::Db::estimate_compression). The samples lie at even distances in the bytes of
/// the files, not in the blocks: a few large values may have most of the bytes. A sample of compressed blocks stands for
/// more contents than one of plain blocks.
pub(crate) fn estimate_compression(tables: &[&Table], block_bytes: usize) -> Result<Option<f64>> {
    let data_bytes: u64 = tables.iter().map(|table| table.index().data_end()).sum();
    if data_bytes == 0 || block_bytes > MAX_CONTENTS_BYTES {
        return Ok((data_bytes > 0).then_some(1.0));
    }
    let blocks: u64 = tables.iter().map(|table| table.index().len() as u64).sum();
    let samples = SAMPLES.min(blocks);
    let (mut contents, mut stored) = (0.0, 0.0);
    for sample in 0..samples {
        let mut offset = data_bytes / samples * sample + data_bytes / (2 * samples);
        for table in tables {
            let end = table.index().data_end();
            if offset < end {
                let sample = sample_at(table, offset, block_bytes)?;
                contents += sample.expansion;
                stored += sample.expansion * sample.share;
                break;
            }
            offset -= end;
        }
    }
    Ok(Some(stored / contents))
}

struct Sample {
    /// Bytes of contents per byte in the file.
    expansion: f64,
    /// The share of the contents that new blocks would take.
    share: f64,
}

/// The blocks from an offset of the file on.
fn sample_at(table: &Table, offset: u64, block_bytes: usize) -> Result<Sample> {
    let (mut contents, mut stored) = (0, 0);
    let mut new = BlockBuilder::default();
    let mut end_block = |new: &mut BlockBuilder| {
        let block = new.finish();
        contents += block.len();
        stored += Compression::Lz4.compress(&block).unwrap_or(block).len();
    };
    let (mut read, mut decompressed) = (0, 0);
    for number in block_at(table, offset)..table.index().len() {
        let length = table.handle(number)?.length;
        if length > MAX_BLOCK_OF_ENTRIES as u64 {
            break; // one large value, which is not compressed
        }
        table.env().ledger.check_reads.count(length + TRAILER_BYTES as u64);
        let block = table.decoded_block(number)?;
        for entry in (0..block.len()).filter_map(|number| block.entry(number)) {
            if !new.is_empty() && new.size() + entry.key.len() + entry.value.len() > block_bytes {
                end_block(&mut new);
            }
            new.add(entry);
        }
        read += length;
        decompressed += block.bytes();
        if decompressed >= SAMPLE_BYTES.max(block_bytes) {
            break;
        }
    }
    if !new.is_empty() {
        end_block(&mut new);
    }
    if contents == 0 {
        return Ok(Sample { expansion: 1.0, share: 1.0 });
    }
    let expansion = decompressed as f64 / read as f64;
    Ok(Sample { expansion, share: stored as f64 / contents as f64 })
}

/// The number of the block at an offset of the file.
fn block_at(table: &Table, offset: u64) -> usize {
    let (mut low, mut high) = (0, table.index().len());
    while low + 1 < high {
        let middle = low.midpoint(high);
        if table.index().block(middle).is_some_and(|block| block.offset <= offset) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}
