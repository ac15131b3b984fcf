//! Tables: footer, index, properties and data blocks.

use criba::parsers::Table;

use crate::{DIR, assert_names_a_file, disk_with, mend, store};

/// The table number of the input.
pub(crate) const NUMBER: u64 = 4;

/// The file name of a table.
pub(crate) fn name(number: u64) -> String {
    format!("{number:06}.sst")
}

/// Parses bytes as a table, described by its own footer and properties.
///
/// # Panics
/// If an error names no file; if a table without errors differs backwards or after a round trip; if a lookup
/// in it misses an entry or finds another.
pub fn table(bytes: &[u8]) -> bool {
    let mut mended = bytes.to_vec();
    mend::table(&mut mended);
    let accepted = as_table(bytes);
    as_table(&mended) || accepted
}

fn as_table(bytes: &[u8]) -> bool {
    let vfs = disk_with(&name(NUMBER), bytes);
    let table = match Table::open(&vfs, DIR.as_ref(), NUMBER, store::fixture().hash_key) {
        Ok(table) => table,
        Err(error) => {
            assert_names_a_file(&error);
            return false;
        }
    };
    let mut sound = true;
    table.check(&mut |error| {
        assert_names_a_file(&error);
        sound = false;
    });
    let (forward, backward) = (table.entries(), table.entries_backward());
    for error in [&forward, &backward].into_iter().filter_map(|read| read.as_ref().err()) {
        assert_names_a_file(error);
    }
    let search = |key: &[u8], seq| table.search(key, seq).inspect_err(assert_names_a_file);
    for key in [&b""[..], b"row", b"row07/30", &[0xff; 9]] {
        let _ = search(key, u64::MAX);
    }
    if !sound {
        return true;
    }

    let entries = forward.expect("a check read all of it");
    let mut backward = backward.expect("a check read all of it");
    backward.reverse();
    assert_eq!(entries, backward);
    for (key, seq, kind, value) in &entries {
        if let Ok(found) = search(key, *seq) {
            assert_eq!(found, Some((*kind, value.clone())), "key {}", key.escape_ascii());
        }
    }
    let again = table.write(NUMBER + 1, &entries).expect("sound entries");
    assert_eq!(again.entries().expect("what was just written"), entries);
    true
}
