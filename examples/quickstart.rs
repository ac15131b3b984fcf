//! Put, get, scan, delete; and the disk reads that filters avoid.
//!
//! `cargo run --release --example quickstart`

use criba::Db;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let parent = tempfile::tempdir()?;
    let dir = parent.path().join("store");

    let db = Db::open(&dir)?;
    for number in 0..1000 {
        db.put(format!("user{number:03}"), format!("{number}@example.org"))?;
    }
    db.delete("user007")?;
    db.sync()?; // a power failure loses nothing from here on

    println!("user042 is {:?}", db.get("user042")?);
    println!("user007 is {:?}", db.get("user007")?);
    for item in db.prefix("user00")? {
        let (key, value) = item?;
        println!("{key:?} = {value:?}");
    }

    // The newest entries are in memory. After a flush they are in a file, with a filter in memory.
    db.flush()?;
    let before = db.stats();
    for number in 0..1000 {
        assert!(db.get(format!("user{number:03}x"))?.is_none());
    }
    let total = (db.stats() - before).total();
    println!(
        "1000 absent keys: {} disk reads, {} avoided",
        total.disk_reads,
        total.reads_avoided()
    );

    db.close()?;
    let db = Db::open(&dir)?;
    println!("after reopening: {} users", db.prefix("user")?.count());
    Ok(())
}
