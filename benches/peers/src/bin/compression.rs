//! LZ4 for data blocks: what it saves on disk and what it costs, in criba, RocksDB and fjall.
//!
//! `cargo run --release --bin compression -- [--n N] [--rows ROWS] [--blocks BYTES] [--out FILE]` measures each store
//! without and with LZ4, one after the other, each in a process of its own, and appends lines of JSON.
//! `cargo run --release -- table` prints them as Markdown.
//!
//! The rows are text: paths of Debian with the packages that own them (`--paths`, for example the `Contents-all.gz` and
//! `Contents-amd64.gz` of a release), URLs with the state of a crawler, e-mail addresses with a row of JSON. Each store is loaded in random order and compacted
//! into one run. *Hits*: the cache has every block. *Misses*: the cache is a tenth of the keys and values, the files are in the page cache.
//! *Cold*: the files are dropped from the page cache.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::hint::black_box;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use criba::{Compression, Db, Options};
use fjall::config::{
    BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry,
    PartitioningPolicy, PinningPolicy,
};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions};
use flate2::read::GzDecoder;
use rustix::fs::{Advice, fadvise};
use serde::{Deserialize, Serialize};

#[path = "../lines.rs"]
mod lines;
#[path = "../machine.rs"]
mod machine;

use lines::{Line, read};

type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, Parser)]
struct Arguments {
    /// Rows in each store.
    #[arg(long, default_value_t = 1_000_000)]
    n: u64,
    #[arg(long, value_delimiter = ',', default_value = "paths,urls,mails")]
    rows: Vec<Kind>,
    /// Gzipped files of lines, each a path, white space and its packages; repeated with numbers if there are too few
    #[arg(long, value_delimiter = ',', default_value = "../../tests/data/paths-present.tsv.gz")]
    paths: Vec<PathBuf>,
    /// Sizes of data blocks.
    #[arg(long, value_delimiter = ',', default_value = "4096,8192,16384")]
    blocks: Vec<usize>,
    #[arg(long, value_delimiter = ',', default_value = "criba,rocksdb,fjall")]
    stores: Vec<Name>,
    #[arg(long, default_value_t = 3)]
    repetitions: u32,
    /// The most lookups of a measurement.
    #[arg(long, default_value_t = 500_000)]
    lookups: u64,
    /// The directory of the stores, on the disk to measure.
    #[arg(long, default_value = "target/compression")]
    dir: PathBuf,
    #[arg(long, default_value = "results/compression.jsonl")]
    out: PathBuf,
    /// One measurement, as the program runs it itself.
    #[arg(long, hide = true)]
    child: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Paths,
    Urls,
    Mails,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
enum Name {
    Criba,
    #[value(name = "rocksdb")]
    RocksDb,
    Fjall,
}

impl Name {
    fn version(self) -> String {
        match self {
            Self::Criba => machine::criba_version(),
            Self::RocksDb => env!("VERSION_ROCKSDB_AS_BUILT").to_owned(),
            Self::Fjall => env!("VERSION_FJALL").to_owned(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Setting {
    Plain,
    Lz4,
}

/// What is measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Job {
    store: Name,
    setting: Setting,
    version: String,
    workload: String,
    rows: Kind,
    block_bytes: usize,
    repetition: u32,
    n: u64,
    lookups: u64,
}

impl Job {
    fn compresses(&self) -> bool {
        self.setting == Setting::Lz4
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Findings {
    figures: BTreeMap<String, f64>,
}

/// A permutation of the numbers; the part of SplitMix64 that mixes.
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A number below a bound, drawn by a number.
fn below(number: u64, bound: u64) -> u64 {
    ((u128::from(mix(number)) * u128::from(bound)) >> 64) as u64
}

/// The rows by number: the first `n` are present.
struct Rows {
    kind: Kind,
    n: u64,
    /// In random order: a number, a path and its packages.
    paths: Vec<(u64, String, String)>,
}

impl Rows {
    fn new(kind: Kind, n: u64, files: &[PathBuf]) -> Result<Self> {
        let mut paths = Vec::new();
        if kind == Kind::Paths {
            for file in files {
                for line in BufReader::new(GzDecoder::new(File::open(file)?)).lines() {
                    let line = line?;
                    let (path, packages) =
                        line.rsplit_once(char::is_whitespace).ok_or("a line without packages")?;
                    let path = path.trim_end();
                    let mut hasher = DefaultHasher::new();
                    path.hash(&mut hasher);
                    paths.push((hasher.finish(), path.to_owned(), packages.to_owned()));
                }
            }
            // The first `n` are spread over all directories.
            paths.sort_unstable_by_key(|(order, ..)| *order);
            paths.dedup_by(|later, first| later.1 == first.1);
        }
        Ok(Self { kind, n, paths })
    }

    fn row(&self, number: u64) -> (String, String) {
        const WORDS: [&str; 32] = [
            "about", "archive", "article", "blog", "catalog", "contact", "docs", "download",
            "event", "forum", "gallery", "guide", "help", "image", "index", "item", "learn",
            "library", "list", "map", "member", "news", "page", "product", "project", "review",
            "search", "shop", "story", "tag", "topic", "video",
        ];
        const NAMES: [&str; 16] = [
            "anna", "ben", "carla", "david", "elena", "felix", "greta", "hugo", "ines", "jonas",
            "kira", "luis", "marta", "nils", "olga", "paul",
        ];
        let draw = |what: u64, bound: usize| below(number * 16 + what, bound as u64) as usize;
        match self.kind {
            Kind::Paths => {
                let (_, path, packages) = &self.paths[(number % self.paths.len() as u64) as usize];
                let round = number / self.paths.len() as u64;
                if round == 0 {
                    return (path.clone(), packages.clone());
                }
                // As another version of the file.
                let name = path.rfind('/').map_or(0, |slash| slash + 1);
                let dot = path[name..].rfind('.').map_or(path.len(), |dot| name + dot);
                let (stem, end) = path.split_at(dot);
                (format!("{stem}+again{round}{end}"), packages.clone())
            }
            Kind::Urls => {
                let (a, b, c) = (WORDS[draw(1, 32)], WORDS[draw(2, 32)], WORDS[draw(3, 32)]);
                let site = below(mix(number) % 97, 20_000); // few sites have most pages
                let url =
                    format!("https://www.{a}-{site}.example/{b}/{c}/{:x}.html", mix(number) >> 24);
                let status = [200, 200, 200, 200, 301, 404][draw(4, 6)];
                let (day, second) = (1 + draw(5, 28), draw(6, 86_400));
                let etag = mix(number * 16 + 7);
                let size = 900 + draw(8, 60_000);
                (
                    url,
                    format!(
                        "{status}\t2026-11-{day:02}+{second}\ttext/html; charset=utf-8\t{etag:016x}\t{size}"
                    ),
                )
            }
            Kind::Mails => {
                let (a, b) = (NAMES[draw(1, 16)], NAMES[draw(2, 16)]);
                let host = WORDS[draw(3, 32)];
                let mail = format!("{a}.{b}{}@{host}.example", mix(number) >> 30);
                let (day, logins) = (1 + draw(5, 28), draw(6, 1000));
                let verified = draw(7, 4) > 0;
                (
                    mail,
                    format!(
                        r#"{{"name":"{a} {b}","created":"2026-11-{day:02}","verified":{verified},"plan":"free","language":"en","logins":{logins}}}"#
                    ),
                )
            }
        }
    }

    /// The bytes of keys and values of the present rows, from a sample.
    fn live_bytes(&self) -> u64 {
        let sample = 10_000.min(self.n);
        let bytes = (0..sample)
            .map(|i| self.row(below(i, self.n)))
            .map(|(key, value)| key.len() + value.len());
        bytes.sum::<usize>() as u64 * self.n / sample
    }
}

trait Store: Sized {
    fn open(dir: &Path, job: &Job, cache_bytes: u64) -> Result<Self>;
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;
    /// Waits until no flush and no compaction is due.
    fn settle(&self) -> Result<()>;
    fn compact(&self) -> Result<()>;
    /// The length of a value.
    fn get(&self, key: &[u8]) -> Result<Option<usize>>;
    /// The number of pairs.
    fn scan(&self) -> Result<u64>;
    fn close(self) -> Result<()> {
        Ok(())
    }
}

const BITS_PER_KEY: u32 = 10;
const MEMTABLE_BYTES: usize = 64 << 20;

impl Store for Db {
    fn open(dir: &Path, job: &Job, cache_bytes: u64) -> Result<Self> {
        let compression = if job.compresses() { Compression::Lz4 } else { Compression::None };
        let options = Options::new().compression(compression).block_bytes(job.block_bytes);
        Ok(options.cache_bytes(cache_bytes).memtable_bytes(MEMTABLE_BYTES).open(dir)?)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(Db::put(self, key, value)?)
    }

    fn settle(&self) -> Result<()> {
        self.flush()?;
        Ok(self.wait_until_settled()?)
    }

    fn compact(&self) -> Result<()> {
        Ok(Db::compact(self)?)
    }

    fn get(&self, key: &[u8]) -> Result<Option<usize>> {
        Ok(Db::get(self, key)?.map(|value| black_box(value.len())))
    }

    fn scan(&self) -> Result<u64> {
        let mut pairs = 0;
        for pair in self {
            black_box(pair?);
            pairs += 1;
        }
        Ok(pairs)
    }

    fn close(self) -> Result<()> {
        Ok(Db::close(self)?)
    }
}

#[cfg(feature = "rocksdb")]
mod rocks {
    use std::hint::black_box;
    use std::path::Path;

    use rocksdb::{
        BlockBasedOptions, BottommostLevelCompaction, Cache, CompactOptions, DB, DBCompressionType,
        WaitForCompactOptions,
    };

    use super::{BITS_PER_KEY, Job, MEMTABLE_BYTES, Result, Store};

    impl Store for DB {
        fn open(dir: &Path, job: &Job, cache_bytes: u64) -> Result<Self> {
            let mut blocks = BlockBasedOptions::default();
            blocks.set_block_size(job.block_bytes);
            blocks.set_format_version(7);
            blocks.set_bloom_filter(f64::from(BITS_PER_KEY), false);
            blocks.set_cache_index_and_filter_blocks(false);
            blocks.set_block_cache(&Cache::new_lru_cache(cache_bytes as usize));
            let mut options = rocksdb::Options::default();
            options.create_if_missing(true);
            let compression =
                if job.compresses() { DBCompressionType::Lz4 } else { DBCompressionType::None };
            options.set_compression_type(compression);
            options.set_write_buffer_size(MEMTABLE_BYTES);
            options.set_max_open_files(-1);
            options.set_block_based_table_factory(&blocks);
            Ok(DB::open(&options, dir)?)
        }

        fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
            Ok(DB::put(self, key, value)?)
        }

        fn settle(&self) -> Result<()> {
            self.flush()?;
            Ok(self.wait_for_compact(&WaitForCompactOptions::default())?)
        }

        fn compact(&self) -> Result<()> {
            let mut options = CompactOptions::default();
            options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
            self.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &options);
            self.settle()
        }

        fn get(&self, key: &[u8]) -> Result<Option<usize>> {
            Ok(self.get_pinned(key)?.map(|value| black_box(value.len())))
        }

        fn scan(&self) -> Result<u64> {
            let mut iterator = self.raw_iterator();
            iterator.seek_to_first();
            let mut pairs = 0;
            while let Some(pair) = iterator.item() {
                black_box(pair);
                pairs += 1;
                iterator.next();
            }
            iterator.status()?;
            Ok(pairs)
        }
    }
}

struct Fjall(Database, Keyspace);

impl Store for Fjall {
    fn open(dir: &Path, job: &Job, cache_bytes: u64) -> Result<Self> {
        let compression =
            if job.compresses() { CompressionType::Lz4 } else { CompressionType::None };
        let bloom = BloomConstructionPolicy::BitsPerKey(BITS_PER_KEY as f32);
        let database = Database::builder(dir).cache_size(cache_bytes).open()?;
        let options = KeyspaceCreateOptions::default()
            .max_memtable_size(MEMTABLE_BYTES as u64)
            .data_block_size_policy(BlockSizePolicy::all(job.block_bytes as u32))
            .data_block_compression_policy(CompressionPolicy::all(compression))
            .filter_policy(FilterPolicy::all(FilterPolicyEntry::Bloom(bloom)))
            .filter_block_partitioning_policy(PartitioningPolicy::all(false))
            .index_block_partitioning_policy(PartitioningPolicy::all(false))
            .filter_block_pinning_policy(PinningPolicy::all(true))
            .index_block_pinning_policy(PinningPolicy::all(true));
        let keyspace = database.keyspace("rows", || options)?;
        Ok(Self(database, keyspace))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.1.insert(key, value)?)
    }

    /// Until nothing has changed for half a second.
    fn settle(&self) -> Result<()> {
        self.1.rotate_memtable_and_wait()?;
        let Self(database, _) = self;
        let (mut since, mut last) = (Instant::now(), None);
        while since.elapsed() < Duration::from_millis(500) {
            let busy = database.outstanding_flushes() > 0 || database.active_compactions() > 0;
            let now = (!busy).then(|| database.compactions_completed());
            if now.is_none() || now != last {
                (since, last) = (Instant::now(), now);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn compact(&self) -> Result<()> {
        Ok(self.1.major_compact()?)
    }

    fn get(&self, key: &[u8]) -> Result<Option<usize>> {
        Ok(self.1.get(key)?.map(|value| black_box(value.len())))
    }

    fn scan(&self) -> Result<u64> {
        let mut pairs = 0;
        for pair in self.1.iter() {
            black_box(pair.into_inner()?);
            pairs += 1;
        }
        Ok(pairs)
    }
}

/// Looks rows up until there were enough or the time is over. Returns nanoseconds each.
fn look_up<S: Store>(store: &S, keys: &[(String, Option<usize>)], seconds: f64) -> Result<f64> {
    let start = Instant::now();
    let mut done = 0;
    for (number, (key, expected)) in keys.iter().enumerate() {
        if store.get(key.as_bytes())? != *expected {
            return Err(format!("wrong answer for {key}").into());
        }
        done = number + 1;
        if done % 256 == 0 && start.elapsed().as_secs_f64() > seconds {
            break;
        }
    }
    Ok(start.elapsed().as_secs_f64() * 1e9 / done as f64)
}

fn measure<S: Store>(job: &Job, arguments: &Arguments) -> Result<BTreeMap<String, f64>> {
    let (dir, rows) = (&*arguments.dir, Rows::new(job.rows, job.n, &arguments.paths)?);
    let live = rows.live_bytes();
    let mut figures = BTreeMap::new();
    let mut order: Vec<u32> = (0..job.n as u32).collect();
    order.sort_unstable_by_key(|&number| mix(u64::from(number) ^ 0x5EED));

    let store = S::open(dir, job, 64 << 20)?;
    let start = Instant::now();
    for &number in &order {
        let (key, value) = rows.row(u64::from(number));
        store.put(key.as_bytes(), value.as_bytes())?;
    }
    store.settle()?;
    figures.insert("load_s".to_owned(), start.elapsed().as_secs_f64());
    store.compact()?;
    store.close()?;
    // Obsolete files and logs go when the store is opened, at the latest.
    S::open(dir, job, 64 << 20)?.close()?;
    figures.insert("bytes_a_row".to_owned(), disk_bytes(dir)? as f64 / job.n as f64);
    figures.insert("live_bytes_a_row".to_owned(), live as f64 / job.n as f64);

    let drawn = |seed: u64, count: u64, of: u64| -> Vec<(String, Option<usize>)> {
        let numbers = (0..count).map(|i| u64::from(order[below(seed + i, of) as usize]));
        numbers
            .map(|number| rows.row(number))
            .map(|(key, value)| (key, Some(value.len())))
            .collect()
    };
    let absent: Vec<_> =
        (0..job.lookups).map(|i| (rows.row(job.n + mix(i) % job.n).0, None)).collect();
    // A twentieth of the rows, whose blocks are nearly all.
    let hot = drawn(1 << 40, job.lookups, (job.n / 20).max(1));
    let any = drawn(2 << 40, job.lookups, job.n);

    let store = S::open(dir, job, 4 * live)?;
    look_up(&store, &hot, 1e9)?;
    figures.insert("hits_ns".to_owned(), look_up(&store, &hot, 3.0)?);
    figures.insert("absent_ns".to_owned(), look_up(&store, &absent, 3.0)?);
    store.close()?;

    warm(dir)?;
    let store = S::open(dir, job, live / 10)?;
    look_up(&store, &any[..any.len() / 4], 1.0)?;
    figures.insert("misses_ns".to_owned(), look_up(&store, &any[any.len() / 4..], 3.0)?);
    let start = Instant::now();
    if store.scan()? != job.n {
        return Err("a scan has another number of rows".into());
    }
    figures.insert("scan_ns".to_owned(), start.elapsed().as_secs_f64() * 1e9 / job.n as f64);
    store.close()?;

    chill(dir)?;
    let store = S::open(dir, job, live / 10)?;
    figures.insert("cold_us".to_owned(), look_up(&store, &any, 2.0)? / 1e3);
    store.close()?;
    Ok(figures)
}

fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() { all.append(&mut files(&path)?) } else { all.push(path) }
    }
    Ok(all)
}

/// The bytes on disk, without logs, whose entries are in tables, too. Files may have holes.
fn disk_bytes(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for file in files(dir)? {
        if file.extension().is_none_or(|suffix| suffix != "log" && suffix != "jnl") {
            bytes += fs::metadata(file)?.blocks() * 512;
        }
    }
    Ok(bytes)
}

fn warm(dir: &Path) -> Result<()> {
    for file in files(dir)? {
        std::io::copy(&mut File::open(file)?, &mut std::io::sink())?;
    }
    Ok(())
}

fn chill(dir: &Path) -> Result<()> {
    for file in files(dir)? {
        let file = File::open(file)?;
        file.sync_all()?;
        fadvise(file, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

fn child(job: &Job, arguments: &Arguments) -> Result<()> {
    let figures = match job.store {
        Name::Criba => measure::<Db>(job, arguments)?,
        #[cfg(feature = "rocksdb")]
        Name::RocksDb => measure::<rocksdb::DB>(job, arguments)?,
        #[cfg(not(feature = "rocksdb"))]
        Name::RocksDb => return Err("this program was built without RocksDB".into()),
        Name::Fjall => measure::<Fjall>(job, arguments)?,
    };
    println!("{}", serde_json::to_string(&figures)?);
    Ok(())
}

fn run(arguments: &Arguments) -> Result<()> {
    let done: Vec<Job> = match arguments.out.exists() {
        true => {
            read(&arguments.out)?.into_iter().map(|line: Line<Job, Findings>| line.job).collect()
        }
        false => Vec::new(),
    };
    let mut jobs = Vec::new();
    for repetition in 1..=arguments.repetitions {
        for &rows in &arguments.rows {
            for &block_bytes in &arguments.blocks {
                for &store in &arguments.stores {
                    for setting in [Setting::Plain, Setting::Lz4] {
                        jobs.push(Job {
                            store,
                            setting,
                            version: store.version(),
                            workload: "lz4".to_owned(),
                            rows,
                            block_bytes,
                            repetition,
                            n: arguments.n,
                            lookups: arguments.lookups,
                        });
                    }
                }
            }
        }
    }
    jobs.retain(|job| !done.contains(job));
    for job in jobs {
        let dir = arguments.dir.join(format!("{}", std::process::id()));
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        fs::create_dir_all(&arguments.dir)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--child").arg(serde_json::to_string(&job)?).arg("--dir").arg(&dir);
        for file in &arguments.paths {
            command.arg("--paths").arg(file);
        }
        let output = command.stderr(std::process::Stdio::inherit()).output()?;
        fs::remove_dir_all(&dir)?;
        if !output.status.success() {
            return Err(format!("{job:?}: {}", output.status).into());
        }
        let figures = serde_json::from_slice(&output.stdout)?;
        println!("{job:?} {figures:?}");
        Line::now(job, Findings { figures })?.append(&arguments.out)?;
    }
    Ok(())
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if let Some(job) = &arguments.child {
        return child(&serde_json::from_str(job)?, &arguments);
    }
    run(&arguments)
}
