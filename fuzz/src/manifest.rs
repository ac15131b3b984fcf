//! Manifests, the edits in them, and `CURRENT`.

use std::path::Path;

use criba::parsers::{Edit, Recorded, read_current};

use crate::{DIR, assert_names_a_file, disk_with, mend};

/// The manifest number of the input.
pub(crate) const NUMBER: u64 = 2;

/// The file name of a manifest.
pub(crate) fn name(number: u64) -> String {
    format!("MANIFEST-{number:06}")
}

/// Parses bytes as a manifest, as an edit, and as `CURRENT`.
///
/// # Panics
/// If accepted input differs after a round trip; if an error names no file.
pub fn manifest(bytes: &[u8]) -> bool {
    let mut log = bytes.to_vec();
    mend::manifest(&mut log);
    let mut current = bytes.to_vec();
    mend::current(&mut current);
    let accepted = [
        as_manifest(bytes),
        as_manifest(&log),
        as_edit(bytes),
        as_current(bytes),
        as_current(&current),
    ];
    accepted.contains(&true)
}

fn as_manifest(bytes: &[u8]) -> bool {
    let dir = Path::new(DIR);
    let vfs = disk_with(&name(NUMBER), bytes);
    match Recorded::read(&vfs, dir, NUMBER) {
        Ok((recorded, _)) => {
            let next = NUMBER + 1;
            recorded.write(&vfs, dir, next).expect("a new file");
            let again = Recorded::read(&vfs, dir, next).expect("what was just written");
            assert!(again == (recorded, None));
            true
        }
        Err(error) => {
            assert_names_a_file(&error);
            false
        }
    }
}

fn as_edit(bytes: &[u8]) -> bool {
    let Some(edit) = Edit::decode(bytes) else { return false };
    assert_eq!(Edit::decode(&edit.encode()), Some(edit));
    true
}

fn as_current(bytes: &[u8]) -> bool {
    let vfs = disk_with("CURRENT", bytes);
    match read_current(&vfs, DIR.as_ref()) {
        Ok(number) => {
            assert!(number.is_some(), "the file is there");
            true
        }
        Err(error) => {
            assert_names_a_file(&error);
            false
        }
    }
}
