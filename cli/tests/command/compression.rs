//! The option for compression, and what the commands show of it.

use std::fs;

use serde_json::Value;

use crate::common::run;

fn object(line: &str) -> Value {
    serde_json::from_str(&run(&format!("{line} --json")).well()).expect("one object")
}

/// A directory, the path of a store in it that is not made yet, and a file of lines.
fn place() -> (tempfile::TempDir, String, String) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let lines = (0..3000).map(|n| format!("key{n:05}\t{}\n", format!("{n} ").repeat(30)));
    let file = dir.path().join("lines");
    fs::write(&file, lines.collect::<String>()).expect("a file");
    let store = dir.path().join("store").display().to_string();
    let file = file.display().to_string();
    (dir, store, file)
}

fn table_of(store: &str) -> String {
    let id = object(&format!("stats {store}"))["tables"][0]["id"].as_u64().expect("a number");
    format!("{store}/{id:06}.sst")
}

#[test]
fn a_store_is_compressed_from_its_first_line_on_and_shows_what_that_saves() {
    let (_dir, store, lines) = place();
    run(&format!("load {store} {lines} --compression lz4")).well();
    run(&format!("compact {store}")).well();
    let stats = object(&format!("stats {store}"));
    let total = &stats["total"];
    assert_eq!((&stats["compression"], &total["compressed"]), (&"lz4".into(), &1.0.into()));
    let bytes = |of: &Value, name: &str| of[name].as_f64().expect("a number");
    let ratio = bytes(total, "data_bytes") / bytes(total, "contents_bytes");
    assert!((0.05..0.6).contains(&ratio), "{ratio}");
    assert_eq!(stats["tables"][0]["data_bytes"], total["data_bytes"]);
    let inspected = object(&format!("inspect {}", table_of(&store)));
    assert_eq!(inspected["contents_bytes"], total["contents_bytes"]);
    let tuned = object(&format!("tune {store}"));
    for name in ["data_bytes", "contents_bytes", "compressed"] {
        assert_eq!(tuned[name], total[name], "{name}");
    }
    let blocks: Vec<_> = [4096, 8192, 16_384].into_iter().map(Value::from).collect();
    let lz4 = tuned["lz4"].as_array().expect("a list");
    assert_eq!(lz4.iter().map(|of| of["block_bytes"].clone()).collect::<Vec<_>>(), blocks);
    let share = bytes(&lz4[0], "share");
    assert!((share / ratio - 1.0).abs() < 0.1, "{share}, {ratio}");
    let shown = format!("lz4      keeps {:.1} % of the data; in blocks of 8 KiB ", 100.0 * share);
    assert!(run(&format!("tune {store}")).well().contains(&shown), "{shown}");
    let percent = format!("{:.1} %", 100.0 * ratio);
    for (line, start) in [
        (format!("stats {store}"), "compression: lz4; data bytes "),
        (format!("inspect {}", table_of(&store)), "  data bytes        "),
        (format!("tune {store}"), "data     "),
    ] {
        let shown = run(&line).well();
        let found = shown.lines().find(|line| line.starts_with(start)).expect(start);
        assert!(found.contains(&percent), "{found}: {percent}");
        assert!(found.chars().count() <= 80, "{found}");
    }
    let listed = run(&format!("scan {store} --count")).well();
    assert_eq!(listed, "3000\n");
}

#[test]
fn compact_brings_a_store_to_the_compression_that_it_is_given() {
    let (_dir, store, lines) = place();
    let load = |options: &str| run(&format!("load {store} {lines} {options}")).well();
    let stats = || {
        let stats = object(&format!("stats {store}"));
        let setting = stats["compression"].as_str().expect("a name").to_owned();
        // A table of one short entry stays as it is.
        (setting, stats["total"]["compressed"].as_f64().expect("a share") > 0.9)
    };
    load("");
    run(&format!("compact {store}")).well();
    assert_eq!(stats(), ("none".into(), false));
    let shown = run(&format!("stats {store}")).well();
    assert!(shown.contains("\ncompression: none; data bytes "), "{shown}");
    assert!(!shown.contains("compressed"), "{shown}");
    let shown = run(&format!("tune {store}")).well();
    let command = format!("\n  criba compact {store} --rewrite --compression lz4\n");
    assert!(shown.contains(&command), "{shown}");
    let shown = run(&format!("compact {store} --compression none")).well();
    assert!(shown.contains("Until then their data blocks stay"), "{shown}");
    for (setting, is_compressed) in [("lz4", true), ("none", false)] {
        run(&format!("put {store} key00000 0 --compression {setting}")).well();
        assert_eq!(stats(), (setting.into(), !is_compressed), "one run of before");
        run(&format!("compact {store} --rewrite")).well();
        assert_eq!(stats(), (setting.into(), is_compressed));
    }
    run(&format!("compact {store} --rewrite --compression lz4")).well();
    assert_eq!(stats(), ("lz4".into(), true));
    let shown = run(&format!("tune {store}")).well();
    assert!(!shown.contains("would keep"), "{shown}");
    load(""); // which keeps it
    run(&format!("delete {store} key00001")).well();
    run(&format!("compact {store}")).well();
    assert_eq!(stats(), ("lz4".into(), true));
    assert_eq!(run(&format!("delete {store} key00002 --compression zip")).code, 2);
    assert_eq!(stats(), ("lz4".into(), true));
}

#[test]
fn the_size_of_blocks_is_that_of_the_command() {
    let (_dir, store, lines) = place();
    let blocks = || object(&format!("inspect {}", table_of(&store)))["data_blocks"].as_u64();
    run(&format!("load {store} {lines} --block-bytes 16384")).well();
    let few = blocks().expect("a number");
    run(&format!("compact {store} --rewrite")).well();
    let many = blocks().expect("a number");
    assert!((few * 7 / 2..few * 5).contains(&many), "{few}, {many}");
    let wrong = run(&format!("load {store} {lines} --block-bytes 63"));
    assert_eq!(wrong.code, 2, "{wrong:?}");
    assert!(wrong.err.contains("63 is less than 64"), "{wrong:?}");
}

#[test]
fn tune_says_that_a_block_is_damaged() {
    let (_dir, store, lines) = place();
    run(&format!("load {store} {lines}")).well();
    run(&format!("compact {store}")).well();
    let path = table_of(&store);
    let mut bytes = fs::read(&path).expect("a table");
    for at in (0..400_000).step_by(1000) {
        bytes[at] ^= 1;
    }
    fs::write(&path, bytes).expect("a table");
    let shown = run(&format!("tune {store}")).well();
    assert!(shown.contains("lz4      unknown: a data block cannot be read"), "{shown}");
}

/// Every count holds: reads of the disk, of the file layer and of the kernel are of stored bytes.
#[test]
fn readamp_counts_the_reads_of_a_compressed_store() {
    let line = "readamp --n 3000 --only-lookups --memtable-bytes 8192 --table-bytes 8192 --json";
    let plain: Value = serde_json::from_str(&run(line).well()).expect("one object");
    let line = format!("{line} --compression lz4");
    let lz4: Value = serde_json::from_str(&run(&line).well()).expect("one object");
    assert_ne!(plain, lz4);
}
