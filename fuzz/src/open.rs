//! A store with changed files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use criba::vfs::{SimDisk, Vfs};
use criba::{Db, FilterPolicy, Value, verify_with};

use crate::fields::Fields;
use crate::store::{fixture, options};
use crate::{DIR, assert_names_a_file, log, manifest, mend, mounted, table};

/// Parses bytes as a list of changes to the files of a small store.
///
/// The first byte says whether checksums are corrected afterwards. Each change is a file number, an operation
/// number, and its arguments; see [`change`].
///
/// # Panics
/// If an error names no file; if a verification changes something, or finds nothing and opening fails; if an
/// opened store does not open again. Without corrected checksums, also if a read value was never written, or
/// a lookup and a scan differ.
pub fn open(bytes: &[u8]) -> bool {
    let mut fields = Fields(bytes);
    let mended = fields.u8().is_some_and(|flag| flag % 2 == 1);
    let mut disk = fixture().disk.clone();
    while change(&mut disk, &mut fields).is_some() {}
    if mended {
        mend_all(&mut disk);
    }
    opens(disk, !mended)
}

/// Makes one change; `None` after the last.
fn change(disk: &mut SimDisk, fields: &mut Fields<'_>) -> Option<()> {
    let files = &fixture().files;
    let pick = |number: u8| &files[usize::from(number) % files.len()];
    let path = pick(fields.u8()?);
    let action = fields.u8()? % 8;
    let mut bytes = disk.read(path).unwrap_or_default().to_vec();
    // Negative places count from the end.
    let length = bytes.len() as i64;
    let mut place = || {
        let place = i64::from(fields.i16()?);
        Some(if place < 0 { length + place } else { place }.clamp(0, length) as usize)
    };
    match action {
        // Other bits in one byte.
        0 => {
            let (at, bits) = (place()?, fields.u8()?);
            *bytes.get_mut(at)? ^= bits.max(1);
        }
        // Cut short.
        1 => bytes.truncate(place()?),
        // Gone.
        2 => {
            disk.remove(path);
            return Some(());
        }
        // Another file's bytes.
        3 => bytes = disk.read(pick(fields.u8()?)).unwrap_or_default().to_vec(),
        // A field of eight bytes.
        4 => {
            let (at, value) = (place()?, fields.u64()?);
            bytes.get_mut(at..at + 8)?.copy_from_slice(&value.to_le_bytes());
        }
        // Bytes put between.
        5 => {
            let (at, more) = (place()?, fields.prefixed()?);
            bytes.splice(at..at, more.iter().copied());
        }
        // Bytes taken out.
        6 => {
            let (at, count) = (place()?, usize::from(fields.u8()?));
            bytes.drain(at..(at + count).min(bytes.len()));
        }
        // Under another name, too.
        _ => {
            let (kind, number) = (fields.u8()?, u64::from(fields.u8()?));
            let name = match kind % 6 {
                0 => table::name(number),
                1 => log::name(number),
                2 => manifest::name(number),
                3 => format!("{:06}-{:04}.flt", number % 32, number / 32 + 1),
                4 => "CURRENT.tmp".to_owned(),
                _ => "CURRENT".to_owned(),
            };
            disk.write(Path::new(DIR).join(name), bytes);
            return Some(());
        }
    }
    disk.write(path, bytes);
    Some(())
}

fn files_of(disk: &SimDisk) -> Vec<(PathBuf, Vec<u8>)> {
    disk.files().map(|(path, bytes)| (path.to_owned(), bytes.to_vec())).collect()
}

fn mend_all(disk: &mut SimDisk) {
    for (path, mut bytes) in files_of(disk) {
        let name = path.file_name().and_then(|name| name.to_str()).expect("a plain name");
        let log = name.strip_suffix(".log").and_then(|number| number.parse().ok());
        if let Some(number) = log {
            mend::wal(&mut bytes, number, &fixture().hash_key);
        } else if name.starts_with("MANIFEST-") {
            mend::manifest(&mut bytes);
        } else if path.extension().is_some_and(|extension| extension == "sst") {
            mend::table(&mut bytes);
        } else if name == "CURRENT" {
            mend::current(&mut bytes);
        } else {
            continue;
        }
        disk.write(path, bytes);
    }
}

fn opens(disk: SimDisk, unforged: bool) -> bool {
    let vfs = mounted(disk.clone());
    let sound = match verify_with(DIR, &vfs, |_, _| {}) {
        Ok(found) => {
            for finding in found.findings.iter().chain(&found.notes) {
                assert!(finding.path.starts_with(DIR), "{finding}");
            }
            found.is_sound()
        }
        Err(error) => {
            assert_names_a_file(&error);
            false
        }
    };
    // What verifying changes would be on its own disk; the opening has another.
    let names = |vfs: &dyn Vfs| {
        let dir = vfs.open_dir(DIR.as_ref()).expect("a directory in memory");
        let mut names = dir.list().expect("a directory in memory");
        names.sort();
        names
    };
    let (seen, fresh) = (names(vfs.as_ref()), mounted(disk));
    assert_eq!(seen, names(fresh.as_ref()), "verifying changed the directory");

    let db = match open_on(&fresh) {
        Ok(db) => db,
        Err(error) => {
            assert!(!sound, "verified, and refused: {error}");
            assert_names_a_file(&error);
            return false;
        }
    };
    for lost in [&db.recovery().lost_tail, &db.recovery().lost_edit].into_iter().flatten() {
        assert!(lost.path.starts_with(DIR), "{lost:?}");
    }
    read(&db, unforged);
    let written = db.put("after", "it was opened").and_then(|()| db.flush());
    for done in [
        written.clone(),
        db.compact(),
        db.rebuild_filters(&FilterPolicy::ribbon()).map(|_| ()),
        db.close(),
    ] {
        done.unwrap_or_else(|error| assert_names_a_file(&error));
    }
    let db = open_on(&fresh).expect("what an open store wrote is read by the next");
    match db.get("after") {
        Ok(value) if unforged && written.is_ok() => {
            assert_eq!(value.as_deref(), Some(&b"it was opened"[..]));
        }
        Ok(_) => {}
        Err(error) => assert_names_a_file(&error),
    }
    true
}

fn open_on(vfs: &Arc<dyn Vfs>) -> criba::Result<Db> {
    options().filter(FilterPolicy::default()).vfs(Arc::clone(vfs)).open(Path::new(DIR))
}

/// Looks up every key, and scans in both directions.
fn read(db: &Db, unforged: bool) {
    let written = &fixture().written;
    let was_written = |key: &[u8], value: &Value| {
        let values = written.get(key);
        assert!(
            !unforged || values.is_some_and(|values| values.contains(&value[..])),
            "{} was never written to {}",
            value.escape_ascii(),
            key.escape_ascii()
        );
    };
    let looked_up: Vec<_> = written
        .keys()
        .filter_map(|key| match db.get(key) {
            Ok(value) => {
                if let Some(value) = &value {
                    was_written(key, value);
                }
                Some((key, value))
            }
            Err(error) => {
                assert_names_a_file(&error);
                None
            }
        })
        .collect();
    let forward: criba::Result<Vec<_>> = db.iter().collect();
    let backward: criba::Result<Vec<_>> = db.iter().rev().collect();
    for error in [&forward, &backward].into_iter().filter_map(|read| read.as_ref().err()) {
        assert_names_a_file(error);
    }
    let Ok(scanned) = forward else { return };
    for (key, value) in &scanned {
        was_written(key, value);
    }
    if unforged {
        let mut backward = backward.expect("what is read forward is read backward");
        backward.reverse();
        assert_eq!(scanned, backward);
        for (key, value) in looked_up {
            let found = scanned.iter().find(|(scanned, _)| scanned == key);
            assert_eq!(value.as_ref(), found.map(|(_, value)| value));
        }
    }
}
