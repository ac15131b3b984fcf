//! `criba inspect`: one SSTable, without its store.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use criba::{EntryKind, FilterInfo, FilterKind, TableFile};
use serde_json::{Map, Value};

use crate::compression::DataBytes;
use crate::expiry::{millis, shown};
use crate::failure::{Failure, Result};
use crate::layout::wrapped;
use crate::text::{escaped, percent, thousands};
use crate::{Answer, json, text};

/// Print an SSTable's properties, filter header and index
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The table's file, NNNNNN.sst
    file: PathBuf,
    /// Print its entries too, which reads and verifies every data block
    #[arg(long)]
    entries: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Answer> {
    check_name(&args.file)?;
    let table = TableFile::open(&args.file)?;
    if args.json {
        json::print(&as_json(&table, args.entries)?, out)?;
        return Ok(Answer::Yes);
    }
    print_properties(&table, out)?;
    print_filter(&table, out)?;
    print_index(&table, out)?;
    if args.entries {
        writeln!(out, "\nentries")?;
        writeln!(out, "  {:>12}  kind  key TAB value", "sequence")?;
        for entry in table.entries() {
            let entry = entry?;
            let (seq, key) = (thousands(entry.seq), escaped(&entry.key));
            match entry.kind {
                EntryKind::Put => {
                    writeln!(out, "  {seq:>12}  put   {key}\t{}", escaped(&entry.value))?;
                }
                EntryKind::Delete => writeln!(out, "  {seq:>12}  tomb  {key}")?,
                EntryKind::Expiring => {
                    let (value, until) = (escaped(&entry.value), shown(entry.expiry));
                    writeln!(out, "  {seq:>12}  until {until}  {key}\t{value}")?;
                }
            }
        }
    }
    Ok(Answer::Yes)
}

/// Refuses what is no table by its name, and says what to pass instead.
fn check_name(path: &Path) -> Result<()> {
    let found = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let why = "not found; criba stats --json DIR lists the tables of a store";
            return Err(Failure::file("open", path, io::Error::new(error.kind(), why)));
        }
        found => found.map_err(|error| Failure::file("open", path, error))?,
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let number = |name: &str| name.len() >= 6 && name.bytes().all(|byte| byte.is_ascii_digit());
    let found = match name.split(['.', '-']).collect::<Vec<_>>()[..] {
        _ if found.is_dir() => {
            "a directory: criba stats and criba verify take the directory of a store".to_owned()
        }
        [id, "sst"] if number(id) => return Ok(()),
        [id, _, "flt"] if number(id) => {
            let table = path.with_file_name(format!("{id}.sst"));
            format!("the filter of a table: criba inspect {} prints it", table.display())
        }
        _ => "a file with another name".to_owned(),
    };
    Err(Failure::unfit(path, "a table, named NNNNNN.sst", found))
}

fn as_json(table: &TableFile, entries: bool) -> Result<Map<String, Value>> {
    let properties = table.properties();
    let mut object = Map::new();
    for (name, number) in [
        ("id", properties.id),
        ("file_bytes", properties.file_bytes),
        ("data_bytes", properties.data_bytes),
        ("contents_bytes", properties.contents_bytes),
        ("entries", properties.entries),
        ("tombstones", properties.tombstones),
        ("keys", properties.keys),
        ("data_blocks", properties.data_blocks),
        ("key_bytes", properties.key_bytes),
        ("value_bytes", properties.value_bytes),
        ("min_sequence", properties.min_seq),
        ("max_sequence", properties.max_seq),
    ] {
        object.insert(name.into(), number.into());
    }
    object.insert("ingested".into(), properties.ingested.into());
    object.insert("store".into(), format!("{:016x}", properties.store).into());
    json::insert_bytes(&mut object, "smallest", &properties.smallest);
    json::insert_bytes(&mut object, "largest", &properties.largest);
    json::insert_expiries(&mut object, properties.expiries);
    object.insert("filter".into(), json::filter(&table.filter()));
    let blocks = table.index().into_iter().map(|block| {
        let mut entry = Map::new();
        entry.insert("offset".into(), block.offset.into());
        entry.insert("bytes".into(), block.bytes.into());
        json::insert_bytes(&mut entry, "separator", &block.separator);
        Value::Object(entry)
    });
    object.insert("index".into(), blocks.collect());
    if entries {
        let entries = table.entries().map(|entry| {
            let entry = entry?;
            let mut object = Map::new();
            json::insert_bytes(&mut object, "key", &entry.key);
            object.insert("sequence".into(), entry.seq.into());
            if entry.kind != EntryKind::Delete {
                json::insert_bytes(&mut object, "value", &entry.value);
            }
            if let Some(time) = entry.expiry {
                object.insert("expires".into(), millis(time).into());
            }
            Ok(Value::Object(object))
        });
        object.insert("all_entries".into(), entries.collect::<Result<_>>()?);
    }
    Ok(object)
}

fn print_properties(table: &TableFile, out: &mut dyn Write) -> Result<()> {
    let properties = table.properties();
    let data = DataBytes::of_table(properties.data_bytes, properties.contents_bytes);
    writeln!(out, "properties")?;
    for (name, value) in [
        ("table", thousands(properties.id)),
        ("store", format!("{:016x}", properties.store)),
        ("file bytes", thousands(properties.file_bytes)),
        ("entries", thousands(properties.entries)),
        ("tombstones", thousands(properties.tombstones)),
        ("distinct keys", thousands(properties.keys)),
        ("data blocks", thousands(properties.data_blocks)),
        ("key bytes", thousands(properties.key_bytes)),
        ("value bytes", thousands(properties.value_bytes)),
        ("sequence numbers", sequence_numbers(&properties)),
        ("smallest key", escaped(&properties.smallest)),
        ("largest key", escaped(&properties.largest)),
    ] {
        writeln!(out, "  {name:<17} {value}")?;
    }
    if data.is_compressed() {
        writeln!(out, "  {:<17} {}", "data bytes", data.as_text())?;
    }
    if let Some(expiries) = properties.expiries {
        let earliest = shown(Some(expiries.earliest));
        let (quarter, all) = (shown(expiries.quarter), shown(expiries.all));
        writeln!(out, "  {:<17} {earliest}", "earliest expiry")?;
        writeln!(out, "  {:<17} {quarter}", "a quarter expires")?;
        writeln!(out, "  {:<17} {all}", "all expire")?;
    }
    Ok(())
}

fn sequence_numbers(properties: &criba::TableProperties) -> String {
    let criba::TableProperties { min_seq, max_seq, ingested, .. } = properties;
    let ingested = if *ingested { " (ingested: of all, as in the manifest)" } else { "" };
    format!("{} to {}{ingested}", thousands(*min_seq), thousands(*max_seq))
}

fn print_filter(table: &TableFile, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "\nfilter")?;
    match table.filter() {
        FilterInfo::None => writeln!(out, "  none is wanted")?,
        FilterInfo::Active {
            kind,
            hash,
            generation,
            geometry,
            bytes,
            predicted_rate,
            bumped,
            prefixes,
            extractor,
            ..
        } => {
            let (id, keys) = (table.properties().id, table.properties().keys);
            let place = match generation {
                0 => "in the table".to_owned(),
                later => format!("{id:06}-{later:04}.flt"),
            };
            let (m, k) = match kind {
                FilterKind::Ribbon => ("rows (m)", "columns"),
                _ => ("bits (m)", "probes (k)"),
            };
            let m_per_key = text::ratio(geometry.m as f64, keys).unwrap_or(0.0);
            let per_key = text::ratio(bytes as f64 * 8.0, keys).unwrap_or(0.0);
            let bumped =
                bumped.map(|share| ("bumped", format!("{} of probes", percent(Some(share)))));
            let rows = [
                ("kind", format!("{kind}, over {hash}")),
                ("prefixes", text::prefixes(prefixes, extractor)),
                ("place", place),
                (m, format!("{}, {m_per_key:.2} a key", thousands(geometry.m))),
                (k, geometry.k.to_string()),
                (
                    "bytes",
                    format!(
                        "{}, header included: {per_key:.2} bits a key",
                        thousands(bytes as u64)
                    ),
                ),
                ("predicted FPR", percent(Some(predicted_rate))),
            ];
            for (name, value) in rows.into_iter().chain(bumped) {
                writeln!(out, "  {name:<17} {value}")?;
            }
        }
        other => writeln!(out, "{}", wrapped(&format!("  {other}"), 4))?,
    }
    Ok(())
}

fn print_index(table: &TableFile, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "\nindex")?;
    writeln!(out, "  {:>12}  {:>7}  up to key", "offset", "bytes")?;
    for block in table.index() {
        let (offset, bytes) = (thousands(block.offset), thousands(block.bytes));
        writeln!(out, "  {offset:>12}  {bytes:>7}  {}", escaped(&block.separator))?;
    }
    Ok(())
}
