//! A published version of a store: what a manifest object has.
//!
//! It is the checkpoint of a store. Its small files are in the manifest object, its tables and filter files are
//! objects of their own.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::record;

const FIRST_LINE: &str = "criba-object manifest 1\n";
/// No manifest is longer: of a hundred thousand tables it has some 20 MiB. Decoded, a hostile one takes up to 18 times as
/// much memory.
pub(crate) const MAX_MANIFEST_BYTES: u64 = 32 << 20;

/// No store has so many manifests or epochs.
const MAX_NUMBER: u64 = 1 << 62;

/// The checkpoint that is being published.
pub(crate) const PUBLICATION: &str = "publication";

/// The directories of the objects.
pub(crate) const MANIFESTS: &str = "manifests";
const TABLES: &str = "tables";
const FILTERS: &str = "filters";
const LOGS: &str = "logs";
/// The directories of tables, filter files and logs.
pub(crate) const DIRECTORIES: [&str; 3] = [TABLES, FILTERS, LOGS];

/// An epoch of a store: all that one writer publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Epoch {
    pub(crate) number: u64,
    /// Tells two writers apart that began the same epoch.
    pub(crate) nonce: u64,
}

/// A version of a store in a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Published {
    /// The number of the manifest object.
    pub(crate) number: u64,
    pub(crate) epoch: Epoch,
    /// At least so many changes of the store are in it.
    pub(crate) changes: u64,
    /// No later change is in it.
    pub(crate) up_to: u64,
    /// How long readers can use a version after a later one, in milliseconds.
    pub(crate) grace: u64,
    /// `CURRENT`, the manifest and the log, by name.
    pub(crate) files: Vec<(String, Vec<u8>)>,
    pub(crate) objects: Vec<Object>,
}

/// A file of the store that is an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Object {
    /// The name of the file in the store.
    pub(crate) file: String,
    /// The name of the object.
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// The part from this offset on is kept by each machine. 0 for filter files.
    pub(crate) kept_from: u64,
}

impl Published {
    /// Whether a store is in it. The first writer begins its epoch before it has one.
    pub(crate) fn has_store(&self) -> bool {
        !self.files.is_empty()
    }

    pub(crate) fn object_of(&self, file: &str) -> Option<&Object> {
        self.objects.iter().find(|object| object.file == file)
    }

    pub(crate) fn object_name(&self) -> String {
        format!("{MANIFESTS}/{}", manifest_name(self.number))
    }

    pub(crate) fn encode(&self) -> Bytes {
        record::encode(FIRST_LINE, self).into()
    }

    /// Decodes a manifest. `of` is the name of the object or the file.
    pub(crate) fn decode(bytes: &[u8], of: &str) -> Result<Self> {
        let manifest: Self = record::decode(FIRST_LINE, bytes, of)?;
        let offset = FIRST_LINE.len();
        let expected = "names and sizes of a store's files";
        manifest.check().map_err(|found| record::damaged(of, offset, expected, &found))?;
        Ok(manifest)
    }

    /// Refuses what no writer publishes: a file of another name could be anything in the local directory.
    fn check(&self) -> std::result::Result<(), String> {
        if self.number.max(self.epoch.number) > MAX_NUMBER {
            return Err("a number that no store reaches".to_owned());
        }
        for (name, _) in &self.files {
            let is_one = name == "CURRENT"
                || name.strip_prefix("MANIFEST-").is_some_and(is_number)
                || name.strip_suffix(".log").is_some_and(is_number);
            if !is_one {
                return Err(format!("the file {name:?}"));
            }
        }
        for Object { file, name, bytes, kept_from } in &self.objects {
            let is_table = is_table(file);
            let is_inside =
                name.strip_prefix(directory_of(file)).and_then(|rest| rest.strip_prefix('/'));
            let is_inside = is_inside.is_some_and(|rest| {
                rest.starts_with(|first: char| first.is_ascii_digit())
                    && rest.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'))
            });
            if !(is_table || is_filter(file) || is_log(file)) || !is_inside {
                return Err(format!("the file {file:?} in the object {name:?}"));
            }
            if kept_from > bytes || *bytes > MAX_NUMBER || !is_table && *kept_from > 0 {
                return Err(format!("{file} of {bytes} bytes with a tail at {kept_from}"));
            }
        }
        Ok(())
    }
}

fn is_number(text: &str) -> bool {
    (6..=20).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())
}

/// Whether this is the name of an SSTable.
pub(crate) fn is_table(file: &str) -> bool {
    file.strip_suffix(".sst").is_some_and(is_number)
}

/// Whether a directory is a checkpoint that is to be published, or that was begun.
pub(crate) fn is_publication(name: &str) -> bool {
    let temporary = name.strip_prefix('.').and_then(|name| name.strip_prefix(PUBLICATION));
    name == PUBLICATION || temporary.is_some_and(|rest| rest.starts_with(".checkpoint-tmp."))
}

/// Whether this is the name of a log.
pub(crate) fn is_log(file: &str) -> bool {
    file.strip_suffix(".log").is_some_and(is_number)
}

fn directory_of(file: &str) -> &'static str {
    match file {
        _ if is_table(file) => TABLES,
        _ if is_log(file) => LOGS,
        _ => FILTERS,
    }
}

/// Whether this is the name of a filter file.
pub(crate) fn is_filter(file: &str) -> bool {
    filter_numbers(file).is_some()
}

/// The table and the generation of a filter file, from its name.
pub(crate) fn filter_numbers(file: &str) -> Option<(u64, u64)> {
    let (table, generation) = file.strip_suffix(".flt")?.split_once('-')?;
    let is_one =
        is_number(table) && generation.len() >= 4 && generation.bytes().all(|b| b.is_ascii_digit());
    if is_one { table.parse().ok().zip(generation.parse().ok()) } else { None }
}

/// The name of the manifest with this number: names sort as the numbers do.
pub(crate) fn manifest_name(number: u64) -> String {
    format!("{number:020}")
}

/// The number of the manifest with this name.
pub(crate) fn manifest_number(name: &str) -> Option<u64> {
    let number = name.parse().ok().filter(|number| (1..=MAX_NUMBER).contains(number))?;
    (manifest_name(number) == name).then_some(number)
}

/// The name of the object of a table or a filter file: by the epoch in which it is first published, and the random
/// bytes of the table. So no name is ever given to other bytes.
pub(crate) fn object_name(file: &str, epoch: u64, random: [u8; 16]) -> String {
    let directory = directory_of(file);
    let (stem, end) = file.split_once('.').unwrap_or((file, ""));
    let random = u128::from_be_bytes(random);
    format!("{directory}/{stem}-{epoch:06}-{random:032x}.{end}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    fn published() -> Published {
        let file = "000012.sst".to_owned();
        let name = object_name(&file, 3, [7; 16]);
        Published {
            number: 9,
            epoch: Epoch { number: 3, nonce: 77 },
            changes: 1000,
            up_to: 1001,
            grace: 3_600_000,
            files: vec![("CURRENT".into(), b"x".to_vec()), ("000020.log".into(), vec![])],
            objects: vec![Object { file, name, bytes: 1000, kept_from: 900 }],
        }
    }

    #[test]
    fn a_manifest_is_read_back_and_no_wrong_byte_passes() {
        let manifest = published();
        let bytes = manifest.encode();
        assert_eq!(Published::decode(&bytes, "m").expect("it is sound"), manifest);
        for place in 0..bytes.len() {
            let mut wrong = bytes.to_vec();
            wrong[place] ^= 1;
            let error = Published::decode(&wrong, "m").expect_err("a wrong byte");
            assert!(matches!(error, Error::Damaged { .. }), "{error}");
            Published::decode(&bytes[..place], "m").expect_err("too short");
        }
    }

    #[test]
    fn hostile_names_are_refused() {
        let sound = published();
        for file in ["../x", "CURRENT.tmp", "a/000001.log", "MANIFEST-", "000001.sst", ""] {
            let mut wrong = sound.clone();
            wrong.files.push((file.into(), vec![]));
            Published::decode(&wrong.encode(), "m").expect_err(file);
        }
        for (file, name) in [
            ("000012.sst", "manifests/1"),
            ("000012.sst", "tables/../manifests/1"),
            ("000012.sst", "tables/"),
            ("000012.sst", "tables/.."),
            ("../12.sst", "tables/a"),
            ("000012.flt", "filters/a"),
        ] {
            let mut wrong = sound.clone();
            let (file, name) = (file.to_owned(), name.to_owned());
            wrong.objects.push(Object { file, name, bytes: 1, kept_from: 0 });
            Published::decode(&wrong.encode(), "m").expect_err("a hostile name");
        }
        let mut wrong = sound.clone();
        wrong.number = u64::MAX;
        Published::decode(&wrong.encode(), "m").expect_err("a number without a next one");
        let mut wrong = sound.clone();
        wrong.objects[0].kept_from = 1001;
        Published::decode(&wrong.encode(), "m").expect_err("a tail behind the end");
    }

    #[test]
    fn names_of_manifests_sort_as_their_numbers() {
        assert!(
            manifest_name(9) < manifest_name(10) && manifest_name(10) < manifest_name(u64::MAX)
        );
        assert_eq!(manifest_number(&manifest_name(12)), Some(12));
        assert_eq!(manifest_number("12"), None);
    }
}
