//! `criba inspect`: one SSTable, without its store.

use std::io::Write;
use std::path::PathBuf;

use criba::{EntryKind, FilterInfo, FilterKind, TableFile};

use crate::failure::Result;
use crate::text::{escaped, percent, thousands};
use crate::{Answer, text};

/// Print an SSTable's properties, filter header and index
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The table's file, NNNNNN.sst
    file: PathBuf,
    /// Print its entries too, which reads and verifies every data block
    #[arg(long)]
    entries: bool,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Answer> {
    let table = TableFile::open(&args.file)?;
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
            }
        }
    }
    Ok(Answer::Yes)
}

fn print_properties(table: &TableFile, out: &mut dyn Write) -> Result<()> {
    let properties = table.properties();
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
        (
            "sequence numbers",
            format!("{} to {}", thousands(properties.min_seq), thousands(properties.max_seq)),
        ),
        ("smallest key", escaped(&properties.smallest)),
        ("largest key", escaped(&properties.largest)),
    ] {
        writeln!(out, "  {name:<17} {value}")?;
    }
    Ok(())
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
            for (name, value) in [
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
            ] {
                writeln!(out, "  {name:<17} {value}")?;
            }
        }
        other => writeln!(out, "  {other}")?,
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
