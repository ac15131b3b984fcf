//! Filters: the block that a table has, and each of the public filters that stand alone.

use std::path::Path;

use super::{mend, store};
use crate::codec::Fields;
use crate::error::{Error, Result};
use crate::filter::{
    Bloom, Filter, Portion, ScalableBloom, ShardedBloom, StaticFilter, StoredFilter, mix,
};
use crate::sealed::SealedBytes;

/// How many hashes, and how many keys, a filter is asked.
const QUESTIONS: u64 = 16;

/// Takes bytes for the contents of a filter block, whose checksum its reader has seen to, and for a
/// filter that stands alone.
///
/// # Panics
/// If a filter of fewer columns denies what the whole one passes; if a filter that stands alone is
/// not the same bytes again, or denies a key that it was given.
pub fn filter(bytes: &[u8]) -> bool {
    let mut mended = bytes.to_vec();
    mend::alone(&mut mended);
    let accepted = [as_block(bytes), stands_alone(bytes), stands_alone(&mended)];
    accepted.contains(&true)
}

/// For a table with as many keys as the filter says.
fn as_block(bytes: &[u8]) -> bool {
    const KEYS: usize = 32;
    let keys = bytes.get(KEYS..).and_then(|rest| Fields::new(rest).u64()).unwrap_or_default();
    let (length, secret) = (bytes.len(), &store::fixture().secret);
    let stored = StoredFilter::decode(bytes, length, keys, secret);
    let memory = SealedBytes::filled(length, |memory| {
        memory.copy_from_slice(bytes);
        Ok(())
    });
    let memory = memory.expect("memory for the input");
    let filter = match Filter::decode(memory, length, keys, secret) {
        Ok(filter) => filter,
        Err(reason) => {
            assert_eq!(stored.err(), Some(reason), "the header tells the same by itself");
            return false;
        }
    };
    assert_eq!(stored.as_ref(), Ok(filter.stored()));
    assert_eq!((filter.portion(), filter.bytes()), (Portion::Whole, length));
    let passed: Vec<u64> =
        (0..QUESTIONS).map(mix).filter(|&hash| filter.may_contain_hash(hash)).collect();
    // A ribbon has up to 64 columns: the first, the last and some between say it for all.
    let mut before = 0;
    for portion in filter.stored().portions() {
        let taken = filter.stored().bytes_of(portion);
        assert!(before <= taken && taken <= length, "{portion:?} takes {taken} bytes");
        assert!((0.0..=1.0).contains(&filter.stored().rate_of(portion)), "{portion:?}");
        before = taken;
        if let Portion::Columns(columns) = portion
            && (columns == 1 || columns % 5 == 0)
        {
            let narrow = filter.narrowed(columns).expect("memory for less than the input");
            assert!(passed.iter().all(|&hash| narrow.may_contain_hash(hash)), "{portion:?}");
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
