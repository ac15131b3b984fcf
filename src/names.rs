//! The names of a store's files. Files whose name does not parse are never changed.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use std::ffi::OsStr;

use crate::vfs::FileKind;

/// The greatest file number and sequence number. No store reaches it, and a counter below it does not
/// overflow.
pub(crate) const MAX_NUMBER: u64 = 1 << 62;

/// The greatest number accepted in a manifest, so that the larger numbers of the open store are accepted,
/// too.
pub(crate) const MAX_FOUND_NUMBER: u64 = MAX_NUMBER / 2;

/// What a sound header or footer says that its file is, also in a version that this criba does not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) store: u64,
    pub(crate) number: u64,
}

/// A file of the store. One counter numbers all files, but a filter file has the number of its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum FileName {
    /// `NNNNNN.sst`: an SSTable.
    Table(u64),
    /// `NNNNNN-GGGG.flt`: a filter file, by table and generation. Generation 0 is the filter block.
    Filter { table: u64, generation: u64 },
    /// `NNNNNN.log`: a log.
    Log(u64),
    /// `MANIFEST-NNNNNN`.
    Manifest(u64),
    /// `CURRENT`: names the manifest in force.
    Current,
    /// `CURRENT.tmp`: the next `CURRENT`, before it is renamed.
    CurrentTemp,
    /// `LOCK`: locked while the store is open; always empty.
    Lock,
}

impl FileName {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let parsed = match name {
            "CURRENT" => Self::Current,
            "CURRENT.tmp" => Self::CurrentTemp,
            "LOCK" => Self::Lock,
            _ => match name.strip_prefix("MANIFEST-") {
                Some(number) => Self::Manifest(number.parse().ok()?),
                None => match name.split_once('.')? {
                    (number, "sst") => Self::Table(number.parse().ok()?),
                    (number, "log") => Self::Log(number.parse().ok()?),
                    (numbers, "flt") => {
                        let (table, generation) = numbers.split_once('-')?;
                        let generation = generation.parse().ok()?;
                        if !(1..=MAX_NUMBER).contains(&generation) {
                            return None;
                        }
                        Self::Filter { table: table.parse().ok()?, generation }
                    }
                    _ => return None,
                },
            },
        };
        // Only the spelling of `Display`: "1.sst" and "+00001.sst" are foreign files.
        let ours = parsed.number() <= Some(MAX_NUMBER) && parsed.to_string() == name;
        ours.then_some(parsed)
    }

    /// Whether a name that does not parse looks like that of a file of a store, in another spelling.
    pub(crate) fn is_like_one(name: &OsStr) -> bool {
        let name = name.to_string_lossy().to_uppercase();
        let numbered = || name.starts_with(|first: char| first.is_ascii_digit() || first == '+');
        ["CURRENT", "MANIFEST", "LOCK"].iter().any(|start| name.starts_with(start))
            || numbered() && [".SST", ".LOG", ".FLT"].iter().any(|end| name.contains(end))
    }

    pub(crate) fn kind(self) -> FileKind {
        match self {
            Self::Table(_) => FileKind::Table,
            Self::Filter { .. } => FileKind::Filter,
            Self::Log(_) => FileKind::Wal,
            Self::Manifest(_) => FileKind::Manifest,
            Self::Current | Self::CurrentTemp => FileKind::Current,
            Self::Lock => FileKind::Lock,
        }
    }

    pub(crate) fn number(self) -> Option<u64> {
        match self {
            Self::Table(n) | Self::Log(n) | Self::Manifest(n) | Self::Filter { table: n, .. } => {
                Some(n)
            }
            Self::Current | Self::CurrentTemp | Self::Lock => None,
        }
    }
}

impl std::fmt::Display for FileName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Table(n) => write!(f, "{n:06}.sst"),
            Self::Filter { table, generation } => write!(f, "{table:06}-{generation:04}.flt"),
            Self::Log(n) => write!(f, "{n:06}.log"),
            Self::Manifest(n) => write!(f, "MANIFEST-{n:06}"),
            Self::Current => f.write_str("CURRENT"),
            Self::CurrentTemp => f.write_str("CURRENT.tmp"),
            Self::Lock => f.write_str("LOCK"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_parses_back() {
        for name in [
            FileName::Table(7),
            FileName::Filter { table: 7, generation: 1 },
            FileName::Filter { table: 1_234_567, generation: 12_345 },
            FileName::Log(1_234_567),
            FileName::Manifest(MAX_NUMBER),
            FileName::Current,
            FileName::CurrentTemp,
            FileName::Lock,
        ] {
            assert_eq!(FileName::parse(&name.to_string()), Some(name));
        }
    }

    #[test]
    fn other_spellings_do_not_parse() {
        for name in [
            "7.sst",
            "+000007.sst",
            "000007.SST",
            "000007.sst.bak",
            "000007.flt",
            "000007-1.flt",
            "000007-0000.flt",
            "000007--001.flt",
            "000007-0001.sst",
            "000007-9223372036854775807.flt",
            "MANIFEST-",
            "MANIFEST-18446744073709551615",
            "current",
            "",
        ] {
            assert_eq!(FileName::parse(name), None, "{name}");
            assert_eq!(FileName::is_like_one(OsStr::new(name)), !name.is_empty(), "{name}");
        }
        for name in ["lost+found", ".gitkeep", ".DS_Store", "notes.txt", "server.log", "log.1"] {
            assert_eq!(FileName::parse(name), None, "{name}");
            assert!(!FileName::is_like_one(OsStr::new(name)), "{name}");
        }
    }
}
