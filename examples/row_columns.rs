//! Rows with columns, in keys of `row SEP column`: one filter a table answers for rows and for
//! single columns, HBase's ROW and ROWCOL in one.
//!
//! `cargo run --release --example row_columns`

use criba::{Db, Options, PrefixExtractor, Stats};

const SEPARATOR: u8 = 0x1f; // what ASCII has for it: "unit separator"
const ROWS: u32 = 50_000;

fn key(row: u32, column: &str) -> Vec<u8> {
    [format!("user{row:08}").as_bytes(), &[SEPARATOR], column.as_bytes()].concat()
}

fn row(row: u32) -> Vec<u8> {
    key(row, "")
}

fn tell(what: &str, db: &Db, before: &Stats) {
    let met = db.stats() - *before;
    let reads = met.scan_reads.calls + met.total().disk_reads;
    println!(
        "{what:<34} {reads:>7} disk reads; denied: {:>6} tables for rows, {:>6} for columns",
        met.prefix.skipped,
        met.total().true_negatives
    );
}

fn main() -> criba::Result<()> {
    let dir = std::env::temp_dir().join(format!("criba-row-columns-{}", std::process::id()));
    let db = Options::new()
        .prefix(PrefixExtractor::until(SEPARATOR))
        .cache_bytes(0)
        .memtable_bytes(1 << 20)
        .table_bytes(1 << 20)
        .level_base_bytes(256 << 10)
        .open(&dir)?;
    // Two of three rows, in no order, so that the tables overlap.
    for number in 0..ROWS {
        let number = (number * 7919) % ROWS;
        if number % 3 != 2 {
            for column in ["address", "email", "name"] {
                db.put(key(number, column), format!("{column} of {number}"))?;
            }
        }
    }
    db.wait_until_settled()?;
    println!("{} tables on {} rows", db.tables().len(), ROWS / 3 * 2);

    let before = db.stats();
    for number in (0..3000).step_by(3) {
        assert_eq!(db.prefix(row(number))?.count(), 3);
    }
    tell("1,000 rows that are there", &db, &before);

    let before = db.stats();
    for number in (2..3002).step_by(3) {
        assert_eq!(db.prefix(row(number))?.count(), 0);
    }
    tell("1,000 rows that are not", &db, &before);

    let before = db.stats();
    for number in (0..3000).step_by(3) {
        assert!(db.contains(key(number, "email"))?);
    }
    tell("1,000 columns that are there", &db, &before);

    let before = db.stats();
    for number in (0..3000).step_by(3) {
        assert!(!db.contains(key(number, "fax"))?);
    }
    tell("1,000 columns that their rows lack", &db, &before);

    db.close()?;
    let _ = std::fs::remove_dir_all(dir);
    Ok(())
}
