//! What operators see: counts of writes and waits, latencies, and their text.

use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

use criba::vfs::{Fault, FaultRule, FaultVfs, FileKind, Operation, SimVfs};
use criba::{Batch, Durability, Error, Event, Histogram, Options, Stats};
use openmetrics_parser::openmetrics::parse_openmetrics;
use openmetrics_parser::{MetricNumber, OpenMetricsValue};

use crate::common;

fn options() -> Options {
    common::options().vfs(Arc::new(SimVfs::new())).background_threads(0).auto_compaction(false)
}

/// Each table takes so many milliseconds to be synced.
fn slow_flushes(milliseconds: u64) -> Arc<common::HookVfs> {
    common::HookVfs::new(move |kind, operation| {
        if (kind, operation) == (FileKind::Table, Operation::Sync) {
            sleep(Duration::from_millis(milliseconds));
        }
        Ok(())
    })
}

#[test]
fn writes_are_counted_by_kind_and_result() {
    let db = options().open("/store").unwrap();
    db.put("a", "1").unwrap();
    db.delete("b").unwrap();
    db.write(Batch::new().put("c", "3").put("d", "4").delete("a")).unwrap();
    assert!(db.insert_if_absent("e", "5").unwrap());
    assert!(!db.insert_if_absent("e", "6").unwrap());
    let inserted = db.insert_many_if_absent([("e", ""), ("f", ""), ("f", "")]).unwrap();
    assert_eq!(inserted, [false, true, false]);
    assert!(db.compare_and_swap("e", Some(b"5"), Some(b"7")).unwrap());
    assert!(!db.compare_and_swap("e", Some(b"5"), None).unwrap());
    let refused = db.write(Batch::new().require_absent("e").put("g", ""));
    assert!(matches!(refused, Err(Error::ConditionFailed { .. })));
    let mut transaction = db.transaction();
    transaction.get("e").unwrap();
    transaction.put("h", "");
    db.put("e", "8").unwrap();
    assert!(matches!(transaction.commit(Durability::Buffered), Err(Error::Conflict)));
    let writes = db.stats().writes;
    // a, c, d, e, f, e again by the swap, and e by the last put.
    assert_eq!((writes.puts, writes.deletes), (7, 2));
    assert_eq!((writes.conditions_met, writes.conditions_failed, writes.conflicts), (3, 5, 1));
    assert_eq!(writes.groups, 7);
    assert_eq!((writes.syncs, writes.sync_nanos), (0, 0));
    db.put_with("i", "", Durability::Synced).unwrap();
    db.sync().unwrap();
    assert_eq!(db.stats().writes.syncs, 2);
}

#[test]
fn writes_that_fail_are_counted() {
    let disk = FaultVfs::new(Arc::new(SimVfs::new()));
    let db = options().vfs(disk.clone()).open("/store").unwrap();
    db.put("a", "1").unwrap();
    let full = FaultRule::new(Fault::NoSpace).kinds([FileKind::Wal]).from_then_on();
    disk.add(full.operations([Operation::Append, Operation::Write]));
    db.put("b", "2").unwrap_err();
    db.write_with(Batch::new().put("c", "3").delete("a"), Durability::Synced).unwrap_err();
    db.insert_many_if_absent([("d", ""), ("e", "")]).unwrap_err();
    let mut transaction = db.transaction();
    transaction.put("f", "");
    transaction.commit(Durability::Buffered).unwrap_err();
    let refused = db.write(Batch::new().require_absent("a").put("g", ""));
    assert!(matches!(refused, Err(Error::ConditionFailed { .. })));
    let writes = db.stats().writes;
    assert_eq!((writes.failed, writes.puts, writes.conditions_failed), (4, 1, 1));
    assert!(db.stats().to_string().contains("\nfailed writes: 4"), "{}", db.stats());
    assert_eq!(value(&db.openmetrics(), "criba_writes_failed", &[]), Some(4.0));
    // A full disk poisons nothing.
    assert_eq!(value(&db.openmetrics(), "criba_poisoned", &[]), Some(0.0));
    disk.clear();
    db.put("b", "2").unwrap();
    disk.add(FaultRule::new(Fault::Io).kinds([FileKind::Wal]).operations([Operation::Sync]));
    db.sync().unwrap_err();
    assert!(matches!(db.put("b", "3"), Err(Error::Poisoned { .. })));
    assert_eq!(db.stats().writes.failed, 6);
    assert_eq!(value(&db.openmetrics(), "criba_poisoned", &[]), Some(1.0));
}

#[test]
fn a_store_whose_directory_was_removed_is_poisoned_in_the_text() {
    let dir = common::tempdir();
    let store = dir.path().join("store");
    let db = common::options().open(&store).unwrap();
    db.put("key", "value").unwrap();
    std::fs::remove_dir_all(&store).unwrap();
    db.sync().unwrap_err();
    assert_eq!(value(&db.openmetrics(), "criba_poisoned", &[]), Some(1.0));
}

#[test]
fn work_and_its_events_have_bytes_and_durations() {
    let events: Arc<Mutex<Vec<Event>>> = Arc::default();
    let listener = Arc::clone(&events);
    let dir = common::tempdir();
    let slow = slow_flushes(2);
    let db = options()
        .vfs(slow)
        .on_event(move |event| listener.lock().unwrap().push(event.clone()))
        .open(dir.path())
        .unwrap();
    for round in 0..2 {
        for key in 0..100_u32 {
            db.put(key.to_be_bytes(), [round; 50]).unwrap();
        }
        db.flush().unwrap();
    }
    let flushed: u64 = db.tables().iter().map(|table| table.file_bytes).sum();
    db.compact().unwrap();
    let merged = db.tables()[0].file_bytes;
    let stats = db.stats();
    assert_eq!((stats.flush_work.input_bytes, stats.flush_work.output_bytes), (0, flushed));
    let work = stats.compaction_work;
    assert_eq!((work.input_bytes, work.output_bytes), (flushed, merged));
    assert!(stats.flush_work.nanos >= 4_000_000 && work.nanos >= 2_000_000, "{stats:?}");
    let (mut sum, mut longest) = (0, Duration::ZERO);
    for event in events.lock().unwrap().iter() {
        if let Event::FlushEnded { bytes, duration, .. }
        | Event::CompactionEnded { bytes, duration, .. } = event
        {
            sum += bytes;
            longest = longest.max(*duration);
        }
    }
    assert_eq!(sum, flushed + merged);
    assert!(longest >= Duration::from_millis(2));
}

#[test]
fn writers_that_wait_for_a_flush_are_counted() {
    let dir = common::tempdir();
    let slow = slow_flushes(20);
    let options = options().vfs(slow).background_threads(1).memtable_bytes(2048);
    let db = options.open(dir.path()).unwrap();
    for key in 0..200_u32 {
        db.put(key.to_be_bytes(), [7; 100]).unwrap();
    }
    let writes = db.stats().writes;
    assert!(writes.stalls > 0 && writes.stall_nanos > 1_000_000, "{writes:?}");
    assert_eq!(writes.slowdowns, 0);
    db.close().unwrap();
}

#[test]
fn writers_that_are_slowed_down_are_counted() {
    let dir = common::tempdir();
    let slow = slow_flushes(20);
    let options = options().vfs(slow).background_threads(1).auto_compaction(true);
    let options = options.l0_compaction_trigger(1).l0_slowdown_trigger(1).memtable_bytes(16 << 10);
    let db = options.open(dir.path()).unwrap();
    while db.stats().writes.slowdowns < 2 {
        for key in 0..100_u32 {
            db.put(key.to_be_bytes(), [7; 100]).unwrap();
        }
    }
    assert!(db.stats().writes.slowdown_nanos >= 2_000_000);
    db.close().unwrap();
}

#[test]
fn latencies_are_counted_only_where_they_are_wanted() {
    let db = options().open("/store").unwrap();
    assert!(db.latencies().is_none());
    let db = options().latencies(true).open("/store").unwrap();
    db.put("key", "value").unwrap();
    db.put_with("key", "value", Durability::Synced).unwrap();
    db.get("key").unwrap();
    db.contains("key").unwrap();
    db.get_many(&["key", "absent"]).unwrap();
    let latencies = db.latencies().unwrap();
    let counts = [&latencies.reads, &latencies.writes, &latencies.syncs].map(Histogram::count);
    assert_eq!(counts, [3, 2, 1]);
    assert!(latencies.reads.percentile(0.99).unwrap() < Duration::from_secs(10));
    assert!(latencies.writes.sum() >= latencies.syncs.sum());
}

/// The value of a sample of a parsed text: a counter, a gauge, or the count of a histogram.
fn value(text: &str, family: &str, labels: &[&str]) -> Option<f64> {
    let exposition = parse_openmetrics(text).unwrap();
    let family = exposition.families.get(family)?;
    let sample = family
        .iter_samples()
        .find(|sample| labels.iter().all(|label| format!("{sample:?}").contains(label)))?;
    let number = |number: &MetricNumber| number.as_f64();
    match &sample.value {
        OpenMetricsValue::Counter(counter) => Some(number(&counter.value)),
        OpenMetricsValue::Gauge(gauge) => Some(number(gauge)),
        OpenMetricsValue::Histogram(times) => times.count.map(|count| count as f64),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_parser_reads_the_text() {
    assert_eq!(value(&Stats::default().openmetrics(), "criba_activity_lookups", &[]), Some(0.0));
    let db = options().latencies(true).open("/store").unwrap();
    db.put_with("key", "value", Durability::Synced).unwrap();
    db.flush().unwrap();
    for _ in 0..3 {
        db.get("key").unwrap();
    }
    let text = db.openmetrics();
    assert_eq!(value(&text, "criba_activity_lookups", &[]), Some(3.0));
    assert_eq!(value(&text, "criba_writes_puts", &[]), Some(1.0));
    assert_eq!(value(&text, "criba_levels_true_positives", &["0"]), Some(3.0));
    assert_eq!(value(&text, "criba_tables", &["0"]), Some(1.0));
    assert_eq!(value(&text, "criba_filters_degraded", &[]), Some(0.0));
    assert_eq!(value(&text, "criba_read_seconds", &[]), Some(3.0));
    let seconds = db.stats().writes.sync_nanos as f64 / 1e9;
    assert_eq!(value(&text, "criba_writes_sync_seconds", &[]), Some(seconds));
    let bytes = db.stats().wal_writes.bytes as f64;
    assert_eq!(value(&text, "criba_io_bytes", &["wal_writes"]), Some(bytes));
}

/// A name that the page does not have would be an alert that never fires.
#[test]
fn the_alerts_are_on_figures_of_the_text() {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operating.md");
    let document = std::fs::read_to_string(document).unwrap();
    let (_, alerts) = document.split_once("## What to alert on\n").unwrap();
    let text = options().open("/store").unwrap().openmetrics();
    let mut named = 0;
    for name in alerts.split(|c: char| !c.is_alphanumeric() && c != '_') {
        if name.starts_with("criba_") {
            assert!(
                text.contains(&format!("\n{name} ")) || text.contains(&format!("\n{name}{{")),
                "{name}"
            );
            named += 1;
        }
    }
    assert!(named >= 10, "{named}");
    for needed in ["criba_activity_failed_total", "criba_writes_failed_total", "criba_poisoned"] {
        assert!(alerts.contains(needed), "{needed}");
    }
}

/// A program that only reads the files has not met what a task meets, and a 0 would say that there was nothing.
#[test]
fn the_text_of_files_has_no_counts_of_activity() {
    let options = options();
    let db = options.clone().open("/store").unwrap();
    db.put("key", "value").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let reader = options.open_read_only("/store").unwrap();
    let text = reader.openmetrics_of_files();
    let families = parse_openmetrics(&text).unwrap().families;
    let mut names: Vec<_> = families.keys().map(String::as_str).collect();
    names.sort_unstable();
    let expected = [
        "criba_filter_bytes",
        "criba_filters_degraded",
        "criba_memory_bytes",
        "criba_table_bytes",
        "criba_table_entries",
        "criba_table_tombstones",
        "criba_tables",
    ];
    assert_eq!(names, expected);
    assert_eq!(value(&text, "criba_tables", &["0"]), Some(1.0));
    assert_eq!(value(&text, "criba_filters_degraded", &[]), Some(0.0));
    // A reader that stays open counts.
    reader.get("key").unwrap();
    let all = reader.openmetrics();
    assert_eq!(value(&all, "criba_activity_lookups", &[]), Some(1.0));
    assert_eq!(value(&all, "criba_tables_damaged", &[]), Some(0.0));
}

/// Keys in ascending order: a compaction moves their tables.
#[test]
fn tables_that_move_are_no_work() {
    let bytes: Arc<Mutex<Vec<u64>>> = Arc::default();
    let listener = Arc::clone(&bytes);
    let options = options().auto_compaction(true).memtable_bytes(4096).table_bytes(4096);
    let options = options.on_event(move |event| {
        if let Event::CompactionEnded { bytes, .. } = event {
            listener.lock().unwrap().push(*bytes);
        }
    });
    let db = options.open("/store").unwrap();
    for key in 0..1000_u32 {
        db.put(key.to_be_bytes(), [7; 100]).unwrap();
    }
    let stats = db.stats();
    assert!(stats.activity.tables_moved > 3 && stats.activity.compactions == 0);
    assert_eq!(stats.compaction_work, criba::Work::default());
    let bytes = bytes.lock().unwrap();
    assert!(!bytes.is_empty() && bytes.iter().all(|bytes| *bytes == 0), "{bytes:?}");
}
