//! A window of keys that expire: the space that it takes, and the bytes that it writes. The clock is simulated, and
//! both of its clocks advance together.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::thread::scope;
use std::time::{Duration, Instant, SystemTime};

use criba::Options;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::common::{self, ManualClock};

const HOUR: u64 = 3600;
const YEAR: u64 = 365 * 24 * HOUR;
/// A sample is taken at each of so many seconds.
const SAMPLE: u64 = 10;

const BEGIN: Duration = Duration::from_secs(1_700_000_000);

fn at(second: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + BEGIN + Duration::from_secs(second)
}

/// Sizes for a window of some megabytes, so that it has three levels.
fn options() -> Options {
    common::options()
        .background_threads(0)
        .memtable_bytes(64 << 10)
        .table_bytes(64 << 10)
        .level_base_bytes(128 << 10)
        .vfs(common::HookVfs::without_syncs())
}

/// The inserts of a second: fewer unless the sweeps are full.
fn rate(full: u64) -> u64 {
    if common::is_full() { full } else { full * 2 / 5 }
}

/// The bytes of the tables and their filters.
fn table_bytes(dir: &Path) -> u64 {
    let files = ["sst", "flt"].map(|extension| common::files_with(dir, extension));
    files.iter().flatten().map(|file| std::fs::metadata(file).unwrap().len()).sum()
}

/// The key of a number: a hash (SplitMix) and the number, or only the number.
fn key(number: u64, hashed: bool) -> [u8; 16] {
    let mut hash = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    hash = (hash ^ hash >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    hash = (hash ^ hash >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    hash ^= hash >> 31;
    (u128::from(if hashed { hash } else { 0 }) << 64 | u128::from(number)).to_be_bytes()
}

fn value(rng: &mut ChaCha8Rng) -> &'static [u8] {
    &[7; 100][..rng.random_range(20..=100)]
}

/// Inserts at a constant rate, each with the next one of some times to live; then none.
#[derive(Debug, Clone, Copy)]
struct Stream {
    a_second: u64,
    ttls: &'static [u64],
    seconds: u64,
    quiet: u64,
    hashed: bool,
    /// Whether keys expire. If not, each is deleted when it would.
    expires: bool,
}

#[derive(Debug, Default)]
struct Figures {
    /// For each sample the bytes of tables, and of all files, per live byte.
    tables: Vec<f64>,
    files: Vec<f64>,
    written: u64,
    logged: u64,
}

/// The part of samples that are at most 1.35, and the greatest one.
fn spread(samples: &[f64]) -> (f64, f64) {
    let within = samples.iter().filter(|sample| **sample <= 1.35).count();
    (within as f64 / samples.len() as f64, samples.iter().copied().fold(0.0, f64::max))
}

/// The bytes of a compacted store per byte of its keys and values. All expire, and none has.
fn compacted(hashed: bool) -> f64 {
    let dir = common::tempdir();
    let db = options().default_ttl(Duration::from_secs(YEAR)).open(dir.path()).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut plain = 0;
    for number in 0..20_000 {
        let value = value(&mut rng);
        db.put(key(number, hashed), value).unwrap();
        plain += 16 + value.len();
    }
    db.compact().unwrap();
    table_bytes(dir.path()) as f64 / plain as f64
}

/// Runs a stream, and takes samples once the shortest time to live is over.
fn run(stream: Stream) -> Figures {
    let per_byte = compacted(stream.hashed);
    let (dir, clock) = (common::tempdir(), Arc::new(ManualClock::at(BEGIN)));
    let db = options().clock(Arc::clone(&clock) as _).open(dir.path()).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(48);
    // For each time to live: the end, number and bytes of live keys.
    let mut live: Vec<VecDeque<(u64, u64, usize)>> = vec![VecDeque::new(); stream.ttls.len()];
    let (mut next, mut live_bytes) = (0, 0);
    let mut figures = Figures::default();
    for second in 0..stream.seconds + stream.quiet {
        clock.advance(Duration::from_secs(u64::from(second > 0)));
        for live in &mut live {
            while live.front().is_some_and(|(end, ..)| *end <= second) {
                let (_, number, bytes) = live.pop_front().unwrap();
                live_bytes -= bytes;
                if !stream.expires {
                    db.delete(key(number, stream.hashed)).unwrap();
                }
            }
        }
        let inserts = if second < stream.seconds { stream.a_second } else { 0 };
        for number in next..next + inserts {
            let kind = number as usize % stream.ttls.len();
            let (key, value) = (key(number, stream.hashed), value(&mut rng));
            let end = second + stream.ttls[kind];
            if stream.expires {
                db.put_with_expiry(key, value, at(end)).unwrap();
            } else {
                db.put(key, value).unwrap();
            }
            live[kind].push_back((end, number, key.len() + value.len()));
            live_bytes += key.len() + value.len();
        }
        next += inserts;
        let is_full = second >= stream.ttls[0] + 60;
        if is_full && second % SAMPLE == 0 {
            if inserts == 0 {
                // A store without threads does nothing between calls.
                db.wait_until_settled().unwrap();
            }
            let live_bytes = live_bytes as f64 * per_byte;
            figures.tables.push(table_bytes(dir.path()) as f64 / live_bytes);
            figures.files.push(db.disk_bytes().unwrap() as f64 / live_bytes);
        }
    }
    assert_eq!(db.iter().count(), live.iter().map(VecDeque::len).sum::<usize>());
    let stats = db.stats();
    figures.written = stats.table_writes.bytes + stats.filter_writes.bytes;
    figures.logged = stats.wal_writes.bytes;
    println!("{stream:?}");
    for (what, samples) in [("tables", &figures.tables), ("all files", &figures.files)] {
        let (mean, (within, greatest)) =
            (samples.iter().sum::<f64>() / samples.len() as f64, spread(samples));
        println!(
            "  {what} per live byte: mean {mean:.3}, greatest {greatest:.3}, at most 1.35 in {within:.3} of {}",
            samples.len()
        );
    }
    println!(
        "  bytes written: {} to tables, {} to logs; {} compactions; expired: {} entries dropped, {} to tombstones, \
         {} tables",
        figures.written,
        figures.logged,
        stats.activity.compactions,
        stats.activity.expired_dropped,
        stats.activity.expired_to_tombstones,
        stats.activity.tables_expired,
    );
    db.close().unwrap();
    assert!(criba::verify(dir.path()).unwrap().is_sound());
    figures
}

fn check_space(figures: &Figures) {
    // Logs and the manifest count, too.
    let (within, greatest) = spread(&figures.files);
    assert!(within >= 0.95 && greatest <= 1.5, "{within} {greatest}");
}

/// An hour after the window has filled, that is seven windows.
#[test]
fn a_window_takes_little_more_than_its_live_bytes_and_writes_less_than_deletes_would() {
    let ttls = &[600];
    let window = Stream {
        a_second: rate(100),
        ttls,
        seconds: 7 * 600,
        quiet: 0,
        hashed: true,
        expires: true,
    };
    let (expiring, deleting) = scope(|scope| {
        let deleting = scope.spawn(|| run(Stream { expires: false, ..window }));
        (run(window), deleting.join().unwrap())
    });
    check_space(&expiring);
    let tables = expiring.written as f64 / deleting.written as f64;
    let all =
        (expiring.written + expiring.logged) as f64 / (deleting.written + deleting.logged) as f64;
    println!("bytes written per byte that deletes write: {tables:.2} to tables, {all:.2} in all");
    // Two thirds in all runs: a delete is a second entry.
    assert!(tables <= 0.9 && all <= 0.9, "{tables} {all}");
}

/// Each table has keys of both kinds, so none expires as a whole. At first inserts cause compactions, then only the
/// time that passes.
#[test]
fn what_expires_within_an_hour_leaves_what_stays_for_a_year() {
    let ttls = &[HOUR, YEAR];
    let (seconds, quiet) = (4 * HOUR, HOUR + HOUR / 2);
    let a_second = rate(20);
    check_space(&run(Stream { a_second, ttls, seconds, quiet, hashed: true, expires: true }));
}

/// Keys in the order of time: tables of neighbours in time, which expire nearly at once.
#[test]
fn a_window_of_ascending_keys_is_written_about_once() {
    let ttls = &[600];
    let window = Stream {
        a_second: rate(100),
        ttls,
        seconds: 7 * 600,
        quiet: 0,
        hashed: false,
        expires: true,
    };
    let figures = run(window);
    check_space(&figures);
    // The log has each entry once.
    let ratio = figures.written as f64 / figures.logged as f64;
    assert!(ratio < 1.2, "{ratio} bytes to tables per byte of the log");
}

/// Nothing but the time wakes a thread. Of the system's clock.
#[test]
fn tables_of_a_quiet_store_go_by_themselves() {
    let dir = common::tempdir();
    let db = common::options()
        .background_threads(1)
        .memtable_bytes(64 << 10)
        .table_bytes(64 << 10)
        .default_ttl(Duration::from_millis(1500))
        .open(dir.path())
        .unwrap();
    for number in 0..5000 {
        db.put(key(number, true), [7; 50]).unwrap();
    }
    db.wait_until_settled().unwrap();
    let tables = db.tables().len();
    let begin = Instant::now();
    while !db.tables().is_empty() {
        assert!(begin.elapsed().as_secs() < 15, "{} of {tables} tables", db.tables().len());
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("{tables} tables went within {:?}", begin.elapsed());
    assert_eq!(db.iter().count(), 0);
}
