//! Rows with columns in the keys, here pages of hosts: one filter a table answers for hosts, for directories and for
//! single pages. HBase's ROW and ROWCOL are the first and the last of these.
//!
//! `cargo run --release --example row_columns`

use criba::{Db, Options, PrefixExtractor, Stats};

const HOSTS: u32 = 10_000;

fn host(number: u32) -> String {
    format!("org.example.www{number:05}/")
}

fn page(number: u32, user: u32, page: u32) -> String {
    host(number) + &format!("users/{user}/page{page}.html")
}

fn tell(what: &str, db: &Db, before: &Stats) {
    let met = db.stats() - *before;
    let reads = met.scan_reads.calls + met.total().disk_reads;
    println!(
        "{what:<38} {reads:>7} disk reads; denied: {:>6} tables for prefixes, {:>6} for keys",
        met.prefix.skipped,
        met.total().true_negatives
    );
}

fn main() -> criba::Result<()> {
    let dir = std::env::temp_dir().join(format!("criba-row-columns-{}", std::process::id()));
    let db = Options::new()
        .prefix(PrefixExtractor::every(b'/'))
        .cache_bytes(0)
        .memtable_bytes(1 << 20)
        .table_bytes(1 << 20)
        .level_base_bytes(256 << 10)
        .open(&dir)?;
    // Two of three hosts, in no order, so that the tables overlap.
    for number in 0..HOSTS {
        let number = (number * 7919) % HOSTS;
        if number % 3 != 2 {
            for user in [0, 2, 4] {
                for of_user in 0..5 {
                    db.put(page(number, user, of_user), format!("the text of {of_user}"))?;
                }
            }
        }
    }
    db.wait_until_settled()?;
    let advice = db.advise();
    println!(
        "{} tables with {} keys and {} prefixes, {:.2} bits for each",
        advice.tables, advice.keys, advice.prefixes, advice.bits_per_key
    );

    for (what, first, directory, items) in [
        ("1,000 hosts that are there", 0, "", 15),
        ("1,000 hosts that are not", 2, "", 0),
        ("1,000 directories that are there", 0, "users/2/", 5),
        ("1,000 directories that hosts lack", 0, "users/3/", 0),
    ] {
        let before = db.stats();
        for number in (first..3000).step_by(3) {
            assert_eq!(db.prefix(host(number) + directory).count(), items);
        }
        tell(what, &db, &before);
    }
    for (what, of_user) in [("1,000 pages that are there", 3), ("1,000 pages that are not", 7)] {
        let before = db.stats();
        for number in (0..3000).step_by(3) {
            assert_eq!(db.contains(page(number, 2, of_user))?, of_user < 5);
        }
        tell(what, &db, &before);
    }
    db.close()?;
    let _ = std::fs::remove_dir_all(dir);
    Ok(())
}
