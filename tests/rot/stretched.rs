//! Tables in which one block is as long as its file has room for: a hole, which no disk space backs. A length that
//! only a file claims costs no memory, and one beyond the limit of the format no time.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use criba::{Options, TableFile, Uncertain, repair, verify};

use crate::common;
use crate::fixture::{FIXTURE, Kind, key, name, number};
use crate::forge::{
    FILTER_LENGTH_AT, FOOTER_INDEX_AT, FOOTER_RANDOM_AT, INDEX_AT, SIZE_AT, Table, checksum, put,
    u64_at,
};
use crate::sweep::{all, in_parallel};

/// The limit of the memory that is taken at once, in bytes.
const MEMORY: u64 = 64 << 20;

/// A table with a hole in one of its blocks, before the trailer.
struct Stretched {
    table: Table,
    hole: usize,
    length: u64,
}

impl Stretched {
    fn new(sound: &Table, block: &Range<usize>, length: u64) -> Self {
        let (mut table, hole) = (sound.clone(), block.end - 5);
        let moved = |offset: u64| if offset >= hole as u64 { offset + length } else { offset };
        let footer = table.footer;
        for handle in [0, FOOTER_INDEX_AT, 32] {
            let (offset, bytes) = (footer + handle, footer + handle + 8);
            let is_stretched = u64_at(&table.bytes, offset) == block.start as u64;
            let more = if is_stretched { length } else { 0 };
            let [begin, size] = [offset, bytes].map(|at| u64_at(&table.bytes, at));
            put(&mut table.bytes, offset, &moved(begin).to_le_bytes());
            put(&mut table.bytes, bytes, &(size + more).to_le_bytes());
        }
        let data_end = table.index.end - 5 - 12;
        let end = moved(u64_at(&table.bytes, data_end));
        put(&mut table.bytes, data_end, &end.to_le_bytes());
        // The stretched block has a wrong checksum.
        let salt = u64_at(&table.bytes, footer + FOOTER_RANDOM_AT);
        for part in table.filter.iter().chain([&table.index, &table.properties]) {
            let at = moved(part.start as u64) as usize;
            let sum = checksum(salt, at, &table.bytes[part.start..part.end - 4]);
            put(&mut table.bytes, part.end - 4, &sum);
        }
        let at = moved(footer as u64) as usize;
        let sum = checksum(number(&table.name), at, &table.bytes[footer..footer + 116]);
        put(&mut table.bytes, footer + 116, &sum);
        Self { table, hole, length }
    }

    /// Writes the store with this table.
    fn write(&self, dir: &Path) {
        for (path, bytes) in FIXTURE.disk.files() {
            std::fs::write(dir.join(name(path)), bytes).unwrap();
        }
        let Self { table, hole, length } = self;
        let file = File::create(dir.join(&table.name)).unwrap();
        file.write_all_at(&table.bytes[..*hole], 0).unwrap();
        file.write_all_at(&table.bytes[*hole..], *hole as u64 + length).unwrap();
        let manifest = table.manifest_of(&table.bytes, |record| {
            let size = table.bytes.len() as u64 + length;
            put(record, SIZE_AT, &size.to_le_bytes());
            let footer = &table.bytes[table.footer..];
            put(record, INDEX_AT, &footer[FOOTER_INDEX_AT..FOOTER_INDEX_AT + 8]);
            if u64_at(record, FILTER_LENGTH_AT) > 0 && table.filter.is_some() {
                put(record, FILTER_LENGTH_AT, &footer[8..16]);
            }
        });
        std::fs::write(dir.join(FIXTURE.only(Kind::Manifest)), manifest).unwrap();
    }
}

/// Reads, verifies, repairs and inspects the store. Nothing needs to succeed.
fn read(dir: &Path, table: &str) {
    let options = Options::new().background_threads(0).auto_compaction(false).cache_bytes(0);
    if let Ok(db) = options.open(dir) {
        for number in 0..4 {
            let _ = db.get(key(number));
        }
        let _ = db.iter().take_while(Result::is_ok).count();
    }
    assert!(!verify(dir).unwrap().is_sound());
    if let Ok(table) = TableFile::open(dir.join(table)) {
        let _ = table.verdict(key(1));
        let _ = table.entries().take_while(Result::is_ok).count();
    }
    let repaired = dir.with_extension("repaired");
    repair(dir, &repaired, Uncertain::SetAside).unwrap();
    assert!(verify(&repaired).unwrap().is_sound());
    std::fs::remove_dir_all(repaired).unwrap();
}

#[test]
fn the_length_of_a_block_costs_no_memory_that_its_file_does_not_prove() {
    let sound = Table::all().into_iter().find(|table| table.filter.is_some()).unwrap();
    // Within the limit all of the block is read; the long form has the longest.
    let within = if all() { 1 << 30 } else { 96 << 20 };
    let blocks = [
        ("data", sound.data.last().unwrap()),
        ("filter", sound.filter.as_ref().unwrap()),
        ("index", &sound.index),
        ("properties", &sound.properties),
    ];
    in_parallel(2 * blocks.len(), |number, begun| {
        let ((what, block), length) =
            (blocks[number / 2], if number % 2 == 0 { within } else { 1 << 40 });
        begun(&format!("{what} of {length} bytes"));
        let dir = common::tempdir();
        Stretched::new(&sound, block, length).write(dir.path());
        let read = || read(dir.path(), &sound.name);
        let most = allocation_counter::measure(read).bytes_max;
        println!("{what} of {length} bytes: {most} bytes of memory");
        assert!(most < MEMORY, "{what} of {length} bytes: {most} bytes of memory");
    });
}
