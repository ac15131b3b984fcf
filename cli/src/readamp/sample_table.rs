//! One SSTable of made-up names, whose filter the report's reader can probe: the page has the end of its file,
//! from the filter block on, and a script that reads it as `format.md` says.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use criba::{FilterPolicy, Options, TableFile, Verdict};
use maud::{Markup, PreEscaped, html};

use super::input::Input;
use super::table_files;
use super::unsynced::unsynced;
use crate::failure::{Failure, Result};
use crate::text::counted;

const KEYS: u64 = 20_000;
/// As many as have some on which the filter errs.
const ABSENT: u64 = 10_000;

/// What the page shows of the table.
#[derive(Debug, Clone)]
pub(super) struct SampleTable {
    file: String,
    tail: Vec<u8>,
    hash_key: [u8; 16],
    /// What they are, and a key of each.
    examples: Vec<(&'static str, String)>,
}

/// Writes the table into an empty directory. Returns its keys, with absent ones, and its file.
///
/// # Errors
/// Those of the store.
pub fn write(dir: &Path, seed: u64) -> Result<(Input, PathBuf)> {
    let input = Input::made_up(KEYS, ABSENT, seed);
    let options = Options::new()
        .filter(FilterPolicy::default())
        .seed(seed)
        .memtable_bytes(64 << 20)
        .background_threads(0)
        .vfs(unsynced());
    let db = options.open(dir)?;
    for (key, value) in &input.present {
        db.put(key, value)?;
    }
    db.flush()?;
    db.close()?;
    let mut tables = table_files::list(dir)?.into_keys();
    match (tables.next(), tables.next()) {
        (Some(id), None) => Ok((input, table_files::path(dir, id))),
        _ => Err(Failure::unfit(dir, "one table", "others")),
    }
}

impl SampleTable {
    /// Makes the table in an empty directory.
    pub(super) fn new(dir: &Path, seed: u64) -> Result<Self> {
        let (input, path) = write(dir, seed)?;
        let table = TableFile::open(&path)?;
        let absent = |verdict| {
            let key = input.absent.iter().find(|key| table.verdict(key) == verdict);
            key.cloned().unwrap_or_default()
        };
        let (present, _) = &input.present[input.present.len() / 2];
        let examples = [
            ("a present key", present.clone()),
            ("an absent key", absent(Verdict::No)),
            ("an absent key that passes", absent(Verdict::Maybe)),
        ];
        Ok(Self {
            file: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            tail: table_files::tail(&path)?,
            hash_key: table_files::hash_key(dir)?,
            examples: examples
                .map(|(name, key)| (name, String::from_utf8_lossy(&key).into_owned()))
                .into(),
        })
    }

    /// The section of the page that [`SCRIPTS`] complete.
    pub(super) fn shown(&self) -> Markup {
        let hash_key = format!("{:032x}", u128::from_be_bytes(self.hash_key));
        let (_, key) = &self.examples[0];
        // XML has elements without an end closed.
        let input = PreEscaped(format!(
            "<input id=\"sample-key\" value=\"{key}\" autocomplete=\"off\" spellcheck=\"false\"/>"
        ));
        html! {
            section #sample-table {
                h2 { "One filter" }
                p {
                    "Below is the end of " code { (self.file) } ", byte for byte as the library wrote it: \
                     filter block, index, properties and footer of an SSTable. Its keys are "
                    (counted(KEYS, "made-up name")) " such as " code { (key) } ". A script of this page \
                     reads these bytes as format.md says, and looks up the typed key."
                }
                noscript { p { "The lookup needs JavaScript." } }
                p.controls {
                    label for="sample-key" { "Key" } " " (input)
                    @for (name, key) in &self.examples { " " button type="button" data-key=(key) { (name) } }
                }
                p #sample-fault.bad role="alert" {}
                div #sample-lookup hidden="hidden" {
                    p { strong #sample-answer role="status" {} }
                    dl {
                        dt { "Key range" } dd #sample-range {}
                        dt { "Hash" } dd { code #sample-hash {} }
                        dt { "Data block" } dd #sample-block {}
                    }
                    div.scroll {
                        table {
                            caption { "Probes" }
                            thead {
                                tr {
                                    th.number { "i" } th.number { "bit" } th.number { "at offset" }
                                    th { "byte" } th.number { "is" }
                                }
                            }
                            tbody #sample-probes {}
                        }
                    }
                }
                details {
                    summary { "The bytes: " (counted(self.tail.len() as u64, "byte")) " in base64" }
                    p {
                        "Change one, and the script refuses them. The store's hash key, from its manifest, is "
                        code { (hash_key) } "."
                    }
                    textarea #sample-bytes rows="12" spellcheck="false" aria-label="bytes in base64"
                        data-hash-key=(hash_key) { (BASE64_STANDARD.encode(&self.tail)) }
                }
            }
        }
    }
}

/// The scripts of the page: the reader of the table, and the page's controls.
pub(super) const SCRIPTS: [&str; 2] =
    [include_str!("sample_table.js"), include_str!("sample_table_page.js")];
