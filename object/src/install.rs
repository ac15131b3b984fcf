//! Makes a local directory show a published version.

use std::collections::HashSet;
use std::collections::VecDeque;
use std::ffi::OsStr;

use bytes::Bytes;
use criba::TableLayout;
use criba::vfs::FileKind;

use crate::bucket::{Bucket, PART_BYTES};
use crate::error::Result;
use crate::local::{LocalDir, io_error};
use crate::published::{Object, Published, filter_numbers, is_filter, is_log, is_table};
use crate::requests::Purpose;
use crate::stub::{self, Stub, stub_name, table_of};

/// How many tails and filter files are fetched at once.
const AT_ONCE: usize = 16;
const CURRENT: &str = "CURRENT";

/// Puts the files of `version` into `store`, `CURRENT` last, and then removes what it does not name. `shown`: the
/// version that the directory has.
///
/// Cost: one request for each tail and each filter file that is not there, sixteen at once.
pub(crate) fn install(
    bucket: &Bucket,
    store: &LocalDir,
    version: &Published,
    shown: Option<&Published>,
) -> Result<()> {
    store.remove_temporary()?;
    let names: HashSet<String> = store.names()?.into_iter().collect();
    let mut missing = Vec::new();
    for object in &version.objects {
        let is_shown = shown.and_then(|shown| shown.object_of(&object.file)) == Some(object);
        if !(is_shown && names.contains(&file_of(object)) || has_stub(store, object)) {
            missing.push(object);
        }
    }
    fetch(bucket, store, &missing)?;
    for (name, bytes) in version.files.iter().filter(|(name, _)| name != CURRENT) {
        write_if_other(store, name, bytes)?;
    }
    for (name, bytes) in version.files.iter().filter(|(name, _)| name == CURRENT) {
        write_if_other(store, name, bytes)?;
    }
    let named: HashSet<String> = version.objects.iter().map(file_of).collect();
    for name in &names {
        let is_named = named.contains(name) || version.files.iter().any(|(file, _)| file == name);
        if !is_named && let Some(kind) = kind_of(name) {
            store.remove(name, kind)?;
        }
    }
    Ok(())
}

/// The local file of an object.
fn file_of(object: &Object) -> String {
    if is_table(&object.file) { stub_name(&object.file) } else { object.file.clone() }
}

/// Whether the stub of this object is there already.
fn has_stub(store: &LocalDir, object: &Object) -> bool {
    if !is_table(&object.file) {
        return false;
    }
    let file = store.dir.open(OsStr::new(&file_of(object)), FileKind::Table);
    file.and_then(Stub::open).is_ok_and(|stub| {
        (stub.object.as_str(), stub.bytes, stub.tail_offset)
            == (object.name.as_str(), object.bytes, object.kept_from)
    })
}

/// Fetches tails and filter files, and writes their files.
fn fetch(bucket: &Bucket, store: &LocalDir, missing: &[&Object]) -> Result<()> {
    let mut under_way = VecDeque::new();
    let mut left = missing.iter();
    loop {
        while under_way.len() < AT_ONCE
            && let Some(&object) = left.next()
        {
            let (of_task, wanted) = (bucket.clone(), object.clone());
            let pending =
                bucket.runtime.begin(async move { kept_part(&of_task, &wanted).await })?;
            under_way.push_back((object, pending));
        }
        let Some((object, pending)) = under_way.pop_front() else { return Ok(()) };
        let bytes = pending.wait()??;
        if is_table(&object.file) {
            store.write(&file_of(object), FileKind::Table, |file| {
                stub::write(file, object, |offset, length| {
                    let start = (offset - object.kept_from) as usize;
                    Ok(bytes.slice(start..start + length as usize))
                })
            })?;
        } else {
            let kind = kind_of(&object.file).unwrap_or(FileKind::Filter);
            store.write(&object.file, kind, |file| file.append(&bytes))?;
        }
    }
}

/// The part of an object that each machine keeps; read once more if it is damaged: bytes may change on their way. What
/// is damaged again is for the store to report.
async fn kept_part(bucket: &Bucket, object: &Object) -> Result<Bytes> {
    let bytes = read_kept_part(bucket, object).await?;
    if is_sound(object, &bytes) { Ok(bytes) } else { read_kept_part(bucket, object).await }
}

fn is_sound(object: &Object, bytes: &[u8]) -> bool {
    match filter_numbers(&object.file) {
        Some((table, generation)) => TableLayout::is_filter_file(bytes, table, generation),
        None => !is_table(&object.file) || TableLayout::is_tail(bytes, object.bytes),
    }
}

async fn read_kept_part(bucket: &Bucket, object: &Object) -> Result<Bytes> {
    let purpose = if is_table(&object.file) { Purpose::Tails } else { Purpose::Filters };
    let mut offset = object.kept_from;
    let mut bytes = Vec::new();
    loop {
        let end = object.bytes.min(offset + PART_BYTES);
        let part = bucket.read(purpose, &object.name, offset..end).await?;
        if end == object.bytes && bytes.is_empty() {
            return Ok(part);
        }
        bytes.extend_from_slice(&part);
        offset = end;
        if offset == object.bytes {
            return Ok(bytes.into());
        }
    }
}

fn write_if_other(store: &LocalDir, name: &str, bytes: &[u8]) -> Result<()> {
    let kind = kind_of(name).unwrap_or(FileKind::Current);
    let path = store.path.join(name);
    let file = store.dir.open(OsStr::new(name), kind);
    let length = file.and_then(|file| file.length()).ok();
    if length == Some(bytes.len() as u64)
        && store.read(name, kind)?.is_some_and(|found| found == bytes)
    {
        return Ok(());
    }
    store.write(name, kind, |file| file.append(bytes))?;
    store.dir.sync().map_err(io_error("sync", &path))?;
    Ok(())
}

/// The kind of a file that a version may have; `None` for other names, which stay.
pub(crate) fn kind_of(name: &str) -> Option<FileKind> {
    Some(match name {
        CURRENT => FileKind::Current,
        _ if name.strip_prefix("MANIFEST-").is_some_and(all_digits) => FileKind::Manifest,
        _ if is_log(name) => FileKind::Wal,
        _ if is_filter(name) => FileKind::Filter,
        _ if is_table(table_of(name).unwrap_or(name)) => FileKind::Table,
        _ => return None,
    })
}

fn all_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}
