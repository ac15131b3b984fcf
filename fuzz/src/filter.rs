//! Filters: the block of a table, and each public standalone filter.

use std::path::Path;

use criba::parsers::{FilterHeader, TableFilter};
use criba_filter::{Bloom, Error, Result, ScalableBloom, ShardedBloom, StaticFilter};

use crate::fields::u64_at;
use crate::{mend, store};

/// The number of hashes and keys to probe.
const QUESTIONS: u64 = 16;

/// Parses bytes as a filter block with a verified checksum, and as a standalone filter.
///
/// # Panics
/// If a filter of fewer columns denies what the whole one passes; if a standalone filter has other bytes
/// after a round trip, or denies an inserted key.
pub fn filter(bytes: &[u8]) -> bool {
    let mut mended = bytes.to_vec();
    mend::standalone(&mut mended);
    let accepted = [as_block(bytes), stands_alone(bytes), stands_alone(&mended)];
    accepted.contains(&true)
}

/// For a table with the number of keys in the filter.
fn as_block(bytes: &[u8]) -> bool {
    const KEYS: usize = 32;
    let keys = u64_at(bytes, KEYS).unwrap_or_default();
    let hash_key = store::fixture().hash_key;
    let header = FilterHeader::decode(bytes, keys, hash_key);
    let filter = match TableFilter::decode(bytes, keys, hash_key) {
        Ok(filter) => filter,
        Err(reason) => {
            assert_eq!(header.err(), Some(reason), "the header tells the same by itself");
            return false;
        }
    };
    let header = header.expect("the filter has a header");
    assert_eq!(filter.header(), header);
    assert_eq!(filter.whole_bytes(), Some(bytes.len()));
    // Neighbours are scattered by the golden ratio of 2^64.
    let hashes = (0..QUESTIONS).map(|number| number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let passed: Vec<u64> = hashes.filter(|&hash| filter.may_contain_hash(hash)).collect();
    // A ribbon has up to 64 columns: the first, the last and some between say it for all.
    let mut before = 0;
    for (columns, taken, rate) in header.portions() {
        assert!(before <= taken && taken <= bytes.len(), "{columns:?} columns take {taken} bytes");
        assert!((0.0..=1.0).contains(&rate), "{columns:?} columns");
        before = taken;
        if let Some(columns) = columns
            && (columns == 1 || columns % 5 == 0)
        {
            let narrow = filter.narrowed(columns).expect("memory for less than the input");
            assert!(passed.iter().all(|&hash| narrow.may_contain_hash(hash)), "{columns} columns");
        }
    }
    true
}

fn stands_alone(bytes: &[u8]) -> bool {
    let keys = || (0..QUESTIONS).map(u64::to_le_bytes);
    let bloom = accepted(Bloom::from_bytes(bytes)).map(|mut filter| {
        assert_eq!(filter.to_bytes(), bytes);
        assert!((0.0..=1.0).contains(&filter.current_rate()));
        assert!(filter.empty_like().expect("memory").union(&filter).is_ok());
        filter.extend(keys());
        assert!(keys().all(|key| filter.contains(key)));
    });
    let fixed = accepted(StaticFilter::from_bytes(bytes)).map(|filter| {
        assert_eq!(filter.to_bytes(), bytes);
        let _ = keys().filter(|key| filter.contains(key)).count();
    });
    let scalable = accepted(ScalableBloom::from_bytes(bytes)).map(|mut filter| {
        assert_eq!(filter.to_bytes(), bytes);
        assert!((0.0..=1.0).contains(&filter.current_rate()));
        filter.extend(keys());
        assert!(keys().all(|key| filter.contains(key)));
    });
    let sharded = accepted(ShardedBloom::from_bytes(bytes)).map(|filter| {
        assert_eq!(filter.to_bytes(), bytes);
        assert!((0.0..=1.0).contains(&filter.current_rate()));
        keys().for_each(|key| {
            filter.insert(key);
        });
        assert!(keys().all(|key| filter.contains(key)));
    });
    let accepted = [bloom, fixed, scalable, sharded].into_iter().flatten().count();
    assert!(accepted <= 1, "bytes that are filters of two forms");
    accepted == 1
}

fn accepted<T>(filter: Result<T>) -> Option<T> {
    match filter {
        Err(Error::Corrupt { path, .. } | Error::Unsupported { path, .. }) => {
            assert_eq!(path, Path::new("the bytes of a filter"));
            None
        }
        other => Some(other.expect("bytes are damaged or of another version, if they are refused")),
    }
}
