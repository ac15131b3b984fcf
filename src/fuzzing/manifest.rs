//! Manifests, the edits in them, and `CURRENT`.

use std::path::Path;

use super::{DIR, assert_names_a_file, disk_with, mend};
use crate::names::FileName;
use crate::version::{Edit, Manifest, read_current};

/// The number of the manifest that the bytes are taken for.
pub(super) const NUMBER: u64 = 2;

/// Takes bytes for a manifest, for a single edit, and for `CURRENT`.
///
/// # Panics
/// If what is accepted, written again and read again is not the same; if an error names no file.
pub fn manifest(bytes: &[u8]) -> bool {
    let mut log = bytes.to_vec();
    mend::log(&mut log, NUMBER);
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
    let (dir, name) = (Path::new(DIR), FileName::Manifest(NUMBER));
    let vfs = disk_with(&name.to_string(), bytes);
    match Manifest::read(vfs.as_ref(), dir, NUMBER) {
        Ok((set, store, _)) => {
            let next = NUMBER + 1;
            Manifest::create(vfs.as_ref(), dir, next, store, set.clone()).expect("a new file");
            let (again, id, lost) =
                Manifest::read(vfs.as_ref(), dir, next).expect("what was just written");
            assert!(again == set && id == store && lost.is_none());
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
    let vfs = disk_with(&FileName::Current.to_string(), bytes);
    match read_current(vfs.as_ref(), DIR.as_ref()) {
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
