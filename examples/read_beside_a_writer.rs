//! One process writes to a store, another reads it: `cargo run --example read_beside_a_writer`.
//!
//! The program starts itself again as the writer.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use criba::{Options, ReadOnlyDb};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    match std::env::args_os().nth(1) {
        Some(dir) => write(dir.as_ref()),
        None => read(),
    }
}

/// Writes numbered events for a second.
fn write(dir: &Path) -> Result<()> {
    let db = Options::new().memtable_bytes(1 << 20).open(dir)?;
    println!("open");
    let end = Instant::now() + Duration::from_secs(1);
    for number in (0..).take_while(|_| Instant::now() < end) {
        db.put(format!("event {number:07}"), "something happened, and it was written down")?;
        if number % 100 == 99 {
            sleep(Duration::from_millis(1));
        }
    }
    Ok(db.close()?)
}

fn read() -> Result<()> {
    let parent = tempfile::tempdir()?;
    let dir = parent.path().join("store");
    let this = std::env::current_exe()?;
    let mut writer = Command::new(this).arg(&dir).stdout(Stdio::piped()).spawn()?;
    // There is no store before the writer has made it.
    let output = writer.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut String::new())?;

    let store = Options::new().open_read_only(&dir)?;
    let mut count = show(&store)?;
    for _ in 0..4 {
        sleep(Duration::from_millis(200));
        let before = std::mem::replace(&mut count, show(&store)?);
        assert!(count >= before, "a refresh never goes back");
    }
    assert!(writer.wait()?.success());
    // Now no other process changes the directory.
    let before = files(&dir)?;
    show(&store)?;
    assert_eq!(files(&dir)?, before);
    println!("reading changed none of the {} files", before.len());
    Ok(())
}

fn show(store: &ReadOnlyDb) -> Result<usize> {
    store.refresh()?;
    let (count, newest) = (store.iter().count(), store.last()?.map(|(key, _)| key));
    println!(
        "{count} entries in {} tables and the log; the newest is {newest:?}",
        store.tables().len()
    );
    Ok(count)
}

/// The files with their lengths and times of change.
fn files(dir: &Path) -> Result<BTreeMap<std::ffi::OsString, (u64, SystemTime)>> {
    let file = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry?;
        let metadata = entry.metadata()?;
        Ok((entry.file_name(), (metadata.len(), metadata.modified()?)))
    };
    std::fs::read_dir(dir)?.map(file).collect()
}
