//! Odd orders: failures of local operations, late answers, other settings, hostile bytes, full backlogs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use criba::Durability;
use criba::vfs::{Keep, SimVfs, Unit};
use criba_object::object_store::memory::InMemory;
use criba_object::object_store::path::Path;
use criba_object::object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use criba_object::{Error, open, open_pinned, open_reader};
use futures_util::TryStreamExt;
use futures_util::stream::BoxStream;

use crate::bucket::{Client, Fate, key, options};

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn store(bucket: &Arc<InMemory>) -> Arc<dyn ObjectStore> {
    Client::new(bucket, Fate::Works).store()
}

fn sim() -> SimVfs {
    let mut disk = SimVfs::new().disk();
    disk.create_dir_all("/");
    SimVfs::on(disk)
}

/// What runs when a request puts an object whose name contains a text.
type Hook = Box<dyn Fn(u64) + Send + Sync>;

/// Calls a hook before each PUT of a manifest.
struct Hooked {
    bucket: Arc<InMemory>,
    puts: AtomicU64,
    hook: Hook,
}

impl std::fmt::Debug for Hooked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("hooked")
    }
}

impl std::fmt::Display for Hooked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("hooked")
    }
}

fn hooked(
    bucket: &Arc<InMemory>,
    hook: impl Fn(u64) + Send + Sync + 'static,
) -> Arc<dyn ObjectStore> {
    Arc::new(Hooked { bucket: Arc::clone(bucket), puts: AtomicU64::new(0), hook: Box::new(hook) })
}

#[async_trait::async_trait]
impl ObjectStore for Hooked {
    async fn put_opts(
        &self,
        to: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        if to.as_ref().contains("manifests") {
            let number = self.puts.fetch_add(1, Ordering::SeqCst) + 1;
            tokio::task::block_in_place(|| (self.hook)(number));
        }
        self.bucket.put_opts(to, payload, options).await
    }
    async fn put_multipart_opts(
        &self,
        to: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.bucket.put_multipart_opts(to, options).await
    }
    async fn get_opts(&self, from: &Path, options: GetOptions) -> Result<GetResult> {
        self.bucket.get_opts(from, options).await
    }
    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.bucket.delete_stream(paths)
    }
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.bucket.list(prefix)
    }
    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.bucket.list_with_offset(prefix, offset)
    }
    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.bucket.list_with_delimiter(prefix).await
    }
    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.bucket.copy_opts(from, to, options).await
    }
}

/// A checkpoint has buffered writes that came after the flush: they are synced here before they are published.
#[test]
fn what_is_published_is_durable_on_the_writers_disk() {
    for round in 0..20 {
        let bucket = Arc::new(InMemory::new());
        let vfs = sim();
        let stop = Arc::new(AtomicBool::new(false));
        let of_hook = Arc::clone(&stop);
        // The second manifest is that of the publication.
        let client = hooked(&bucket, move |number| of_hook.store(number >= 2, Ordering::SeqCst));
        let store_options = criba::Options::new().background_threads(1).cache_bytes(0);
        let local = options().store(store_options.clone()).vfs(vfs.clone());
        let writer = open(client, "/local", local).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut number = 0;
                while !stop.load(Ordering::SeqCst) {
                    writer.put_with(key(number), [1; 100], Durability::Buffered).unwrap();
                    number += 1;
                }
            });
            std::thread::sleep(Duration::from_millis(20));
            writer.sync_remote().unwrap();
        });
        let disk = vfs.disk().power_failure(Unit::Sector, |_| Keep::OLD);
        drop(writer);
        let reader = open_reader(
            store(&bucket),
            "/reader",
            options().store(store_options.clone()).vfs(sim()),
        );
        let readers_have = reader.unwrap().iter().count();
        let local = options().store(store_options).vfs(SimVfs::on(disk));
        let writer = open(store(&bucket), "/local", local).unwrap();
        let writer_has = writer.iter().count();
        assert!(
            writer_has >= readers_have,
            "round {round}: after a power failure the writer has lost {} published writes, without an error",
            readers_have - writer_has
        );
    }
}

/// The log of all writes during a flush is longer than a manifest may be.
#[test]
fn a_manifest_that_is_published_can_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Arc::new(InMemory::new());
    let large = || {
        let store =
            criba::Options::new().background_threads(1).memtable_bytes(512 << 20).cache_bytes(0);
        options().store(store)
    };
    let stop = Arc::new(AtomicBool::new(false));
    let of_hook = Arc::clone(&stop);
    let client = hooked(&bucket, move |number| of_hook.store(number >= 2, Ordering::SeqCst));
    let writer = open(client, dir.path().join("a"), large()).unwrap();
    let mut value = vec![0u8; 1 << 20];
    let mut random = 1u64;
    for byte in &mut value {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *byte = (random >> 56) as u8;
    }
    for number in 0..400 {
        writer.put_with(key(number), &value, Durability::Buffered).unwrap();
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0;
            while !stop.load(Ordering::SeqCst) && number < 450 {
                writer.put_with(key(number), &value, Durability::Buffered).unwrap();
                number += 1;
            }
        });
        writer.sync_remote().unwrap();
    });
    let listed: Vec<ObjectMeta> =
        block_on(bucket.list(Some(&"manifests".into())).try_collect()).unwrap();
    println!("{:?}", listed.iter().map(|meta| meta.size).collect::<Vec<_>>());
    drop(writer);
    open_reader(store(&bucket), dir.path().join("r"), large()).unwrap();
    open(store(&bucket), dir.path().join("a"), large()).unwrap();
}

/// A pin that was in time for one grace time must not be late for a shorter one.
#[test]
fn a_pin_stays_when_the_next_writer_has_a_shorter_grace_time() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Arc::new(InMemory::new());
    let at = |name: &str| dir.path().join(name);
    let writer = open(store(&bucket), at("a"), options()).unwrap();
    for number in 0..2000 {
        writer.put(key(number), [1; 50]).unwrap();
    }
    writer.sync_remote().unwrap();
    let reader = open_reader(store(&bucket), at("r"), options()).unwrap();
    writer.put("later", "").unwrap();
    writer.sync_remote().unwrap();
    std::thread::sleep(Duration::from_millis(60));
    reader.pin("monday").unwrap();
    drop(open_pinned(store(&bucket), "monday", at("p"), options()).unwrap());
    writer.close().unwrap();
    let busy = options().grace(Duration::from_millis(100)).publish_every(Duration::from_millis(5));
    let writer = open(store(&bucket), at("a"), busy.local_bytes(0)).unwrap();
    for value in 2..12 {
        for number in 0..2000 {
            writer.put(key(number), [value; 50]).unwrap();
        }
        writer.compact().unwrap();
        writer.sync_remote().unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(writer);
    let monday = open_pinned(store(&bucket), "monday", at("p2"), options()).unwrap();
    assert_eq!(monday.iter().flatten().count(), 2000);
}

/// A claim that is late by more than the grace time finds the number of a removed manifest free.
#[test]
fn a_late_claim_does_not_take_the_number_of_a_removed_manifest() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Arc::new(InMemory::new());
    let at = |name: &str| dir.path().join(name);
    let busy = options().grace(Duration::from_millis(10)).publish_every(Duration::from_millis(5));
    let first = open(store(&bucket), at("a"), busy).unwrap();
    first.set_auto_compaction(false).unwrap();
    first.put("a", "1").unwrap();
    first.sync_remote().unwrap();
    first.put("a", "2").unwrap();
    first.sync_remote().unwrap();
    let first = Arc::new(first);
    let of_hook = Arc::clone(&first);
    // The second writer has read the newest manifest, and sleeps before it creates its own.
    let late = hooked(&bucket, move |number| {
        if number == 1 {
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(300) {
                of_hook.put("a", "while the second sleeps").unwrap();
                of_hook.sync_remote().unwrap();
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    });
    let second = open(late, at("b"), options()).unwrap();
    let listed: Vec<ObjectMeta> =
        block_on(bucket.list(Some(&"manifests".into())).try_collect()).unwrap();
    let names: Vec<_> = listed.iter().map(|meta| meta.location.to_string()).collect();
    println!("{names:?} {:?} {:?}", first.publications(), second.publications());
    second.put("b", "1").unwrap();
    let by_second = second.sync_remote();
    first.put("c", "1").unwrap();
    let by_first = first.sync_remote();
    println!("{by_first:?} {by_second:?}");
    assert!(
        by_first.is_ok() != by_second.is_ok(),
        "first {by_first:?}, second {by_second:?}, {:?} {:?}",
        first.publications(),
        second.publications()
    );
    let newest = open_reader(store(&bucket), at("r"), options()).unwrap();
    if by_second.is_ok() {
        assert!(newest.get("b").unwrap().is_some(), "sync_remote of the second returned Ok");
    } else {
        assert!(newest.get("c").unwrap().is_some(), "sync_remote of the first returned Ok");
    }
}

/// The checkpoint waits for the writer's lock, which a stalled write holds until a flush has room in the backlog, which
/// only this publication makes.
#[test]
fn a_full_backlog_and_a_publication_do_not_wait_for_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Arc::new(InMemory::new());
    for threads in [2, 0] {
        let small = criba::Options::new()
            .background_threads(threads)
            .memtable_bytes(64 << 10)
            .table_bytes(64 << 10);
        let small = options()
            .store(small)
            .backlog_bytes(128 << 10)
            .publish_every(Duration::from_millis(50));
        let path = dir.path().join(format!("w{threads}"));
        let place = criba_object::Location::new(store(&bucket), format!("p{threads}"));
        let writer = Arc::new(open(place, path, small).unwrap());
        let written = Arc::new(AtomicU64::new(0));
        for of_thread in 0..3u64 {
            let (writer, written) = (Arc::clone(&writer), Arc::clone(&written));
            std::thread::spawn(move || {
                for number in 0..20_000u64 {
                    let key = key(number * 7919 % 20_000 + of_thread);
                    writer.put_with(key, [7; 400], Durability::Buffered).unwrap();
                    written.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let (mut last, mut since) = (0, Instant::now());
        while last < 60_000 {
            let now = written.load(Ordering::SeqCst);
            if now > last {
                (last, since) = (now, Instant::now());
            }
            if since.elapsed() > Duration::from_secs(15) {
                let status = writer.publications();
                std::mem::forget(writer);
                panic!("{threads} background threads: hangs after {now} writes: {status:?}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The writer's own scan reads objects that no version has any more.
#[test]
fn a_scan_of_the_writer_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Arc::new(InMemory::new());
    let busy = options().grace(Duration::from_millis(20)).publish_every(Duration::from_millis(5));
    let writer = open(store(&bucket), dir.path().join("a"), busy.local_bytes(0)).unwrap();
    for number in 0..2000 {
        writer.put(key(number), [1; 50]).unwrap();
    }
    writer.compact().unwrap();
    writer.sync_remote().unwrap();
    let mut scan = writer.iter();
    scan.next().unwrap().unwrap();
    for value in 2..8 {
        for number in 0..2000 {
            writer.put(key(number), [value; 50]).unwrap();
        }
        writer.compact().unwrap();
        writer.sync_remote().unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut left = 0;
    for pair in scan {
        assert_eq!(pair.unwrap().1, [1; 50]);
        left += 1;
    }
    assert_eq!(left, 1999);
}

/// A process dies after it has begun its epoch, in a directory that a reader had used.
#[test]
fn a_readers_directory_becomes_a_writers_although_the_process_died_meanwhile() {
    let bucket = Arc::new(InMemory::new());
    let (vfs, first) = (sim(), sim());
    let writer = open(store(&bucket), "/a", options().vfs(first)).unwrap();
    writer.put("a", "1").unwrap();
    writer.sync_remote().unwrap();
    drop(open_reader(store(&bucket), "/local", options().vfs(vfs.clone())).unwrap());
    writer.put("b", "1").unwrap();
    for number in 0..2000 {
        writer.put(key(number), [1; 50]).unwrap();
    }
    writer.close().unwrap();
    // Requests: a listing, the manifest, the claim; then it is cut off.
    let client = Client::new(&bucket, Fate::DiesAfter(4));
    open(client.store(), "/local", options().vfs(vfs.clone())).unwrap_err();
    let writer = open(store(&bucket), "/local", options().vfs(vfs)).unwrap();
    assert!(writer.get("b").unwrap().is_some());
}

/// A manifest of the greatest number has no next one.
#[test]
fn hostile_numbers_do_not_panic() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Arc::new(InMemory::new());
    let writer = open(store(&bucket), dir.path().join("a"), options()).unwrap();
    writer.put("a", "1").unwrap();
    writer.close().unwrap();
    // The manifest as anyone can write it: number u64::MAX.
    let listed: Vec<ObjectMeta> =
        block_on(bucket.list(Some(&"manifests".into())).try_collect()).unwrap();
    let newest = listed.iter().map(|meta| meta.location.clone()).max().unwrap();
    let bytes = block_on(async { bucket.get(&newest).await.unwrap().bytes().await.unwrap() });
    let line = b"criba-object manifest 1\n";
    let (mut old, body) = (line.to_vec(), &bytes[line.len()..bytes.len() - 4]);
    // The number is a varint of one byte here.
    assert!(body[0] < 128);
    old.extend([0xff; 9]);
    old.push(1);
    old.extend(&body[1..]);
    let sum = crc32(&old);
    old.extend(sum.to_le_bytes());
    let name = format!("manifests/{:020}", u64::MAX);
    block_on(bucket.put(&name.as_str().into(), old.into())).unwrap();
    let opened = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        open(store(&bucket), dir.path().join("b"), options()).map(drop)
    }));
    // No writer makes a manifest of this name: it does not count.
    opened.expect("no panic").unwrap();
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    !crc
}

/// A checkpoint beside the store's directory is no publication: it gets whole tables.
#[test]
fn a_checkpoint_beside_the_store_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Arc::new(InMemory::new());
    let local = dir.path().join("a");
    let writer = open(store(&bucket), &local, options().local_bytes(0)).unwrap();
    for number in 0..2000 {
        writer.put(key(number), [1; 50]).unwrap();
    }
    writer.sync_remote().unwrap();
    writer.checkpoint(dir.path().join("elsewhere")).unwrap();
    assert_eq!(criba::Db::open(dir.path().join("elsewhere")).unwrap().iter().count(), 2000);
    writer.checkpoint(local.join("backup")).unwrap();
    let copy = criba::Db::open(local.join("backup")).map(|db| db.iter().count());
    assert_eq!(copy.unwrap(), 2000);
}

/// A claim arrives after the time limit, behind a second one.
#[test]
fn an_own_claim_that_arrives_late_is_no_other_writer() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Arc::new(InMemory::new());
    let local = dir.path().join("a");
    let writer = open(store(&bucket), &local, options()).unwrap();
    writer.put("a", "1").unwrap();
    writer.sync_remote().unwrap();
    writer.put("not published", "1").unwrap();
    drop(writer);
    // The PUT of the claim gets no answer within the limit. It is still on its way.
    let late = Late { bucket: Arc::clone(&bucket), sent: std::sync::Mutex::default() };
    let late = Arc::new(late);
    let limit = options().request_timeout(Duration::from_millis(50));
    open(late.clone() as Arc<dyn ObjectStore>, &local, limit).unwrap_err();
    let (to, payload, put) = late.sent.lock().unwrap().take().unwrap();
    // The program tries again; then the first PUT arrives, before the second.
    let once = std::sync::Mutex::new(Some((to, payload, put)));
    let of_hook = Arc::clone(&bucket);
    let again = hooked(&bucket, move |_| {
        if let Some((to, payload, put)) = once.lock().unwrap().take() {
            std::thread::scope(|scope| {
                scope.spawn(|| block_on(of_hook.put_opts(&to, payload, put)).unwrap());
            });
        }
    });
    let opened = open(again, &local, options());
    let opened = opened.or_else(|first| {
        println!("{first}");
        open(store(&bucket), &local, options())
    });
    assert!(opened.expect("nobody else opened the store").get("not published").unwrap().is_some());
}

type Sent = (Path, PutPayload, PutOptions);

#[derive(Debug)]
struct Late {
    bucket: Arc<InMemory>,
    sent: std::sync::Mutex<Option<Sent>>,
}

impl std::fmt::Display for Late {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("late")
    }
}

#[async_trait::async_trait]
impl ObjectStore for Late {
    async fn put_opts(
        &self,
        to: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        *self.sent.lock().unwrap() = Some((to.clone(), payload, options));
        std::future::pending().await
    }
    async fn put_multipart_opts(
        &self,
        to: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.bucket.put_multipart_opts(to, options).await
    }
    async fn get_opts(&self, from: &Path, options: GetOptions) -> Result<GetResult> {
        self.bucket.get_opts(from, options).await
    }
    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.bucket.delete_stream(paths)
    }
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.bucket.list(prefix)
    }
    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.bucket.list_with_offset(prefix, offset)
    }
    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.bucket.list_with_delimiter(prefix).await
    }
    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.bucket.copy_opts(from, to, options).await
    }
}

/// A reader whose lookups are of 1000 keys at once.
#[test]
fn a_large_batch_makes_one_request_for_each_block() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Arc::new(InMemory::new());
    let writer_options = || {
        let store = criba::Options::new().background_threads(0).cache_bytes(0);
        options().store(store)
    };
    let writer = open(store(&bucket), dir.path().join("a"), writer_options()).unwrap();
    for number in 0..20_000 {
        writer.put(key(number), [1; 1000]).unwrap();
    }
    writer.compact().unwrap();
    writer.close().unwrap();
    let client = Client::new(&bucket, Fate::Works);
    let reader = open_reader(client.store(), dir.path().join("r"), writer_options()).unwrap();
    let keys: Vec<_> = (0..2000).map(|number| key(number * 10)).collect();
    let before = client.gets();
    assert!(reader.get_many(&keys).unwrap().iter().all(Option::is_some));
    let gets = client.gets() - before;
    assert!(
        gets <= reader.stats().total().disk_reads,
        "{gets} {}",
        reader.stats().total().disk_reads
    );
}

/// With a damaged pin each removal fails, but no publication.
#[test]
fn a_damaged_pin_does_not_make_a_publication_each_second() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Arc::new(InMemory::new());
    let rare = options()
        .publish_every(Duration::from_secs(3600))
        .backlog_bytes(1 << 20)
        .grace(Duration::ZERO);
    let writer = open(store(&bucket), dir.path().join("a"), rare).unwrap();
    block_on(bucket.put(&"pins/x".into(), "garbage".into())).unwrap();
    for number in 0..20_000 {
        writer.put(key(number), [1; 100]).unwrap();
    }
    std::thread::sleep(Duration::from_secs(1));
    let (began, before) = (Instant::now(), writer.publications().manifest);
    let mut number = 0;
    while began.elapsed() < Duration::from_secs(3) {
        writer.put(key(number), "x").unwrap();
        number += 1;
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(writer.publications().manifest <= before + 1, "{:?}", writer.publications());
}

use criba::vfs::{Fault, FaultRule, FaultVfs};
use criba_object::{ObjectDb, Options};
use std::collections::BTreeMap;

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

fn content(
    pairs: impl Iterator<Item = criba::Result<(criba::Value, criba::Value)>>,
) -> criba::Result<Content> {
    pairs.map(|pair| pair.map(|(k, v)| (k.to_vec(), v.to_vec()))).collect()
}

fn put_all(writer: &ObjectDb, wanted: &mut Content, value: u8, step: usize) -> criba::Result<()> {
    for number in (0..400).step_by(step) {
        let pair = (key(number), vec![value; 100]);
        wanted.insert(pair.0.clone(), pair.1.clone());
        writer.put(pair.0, pair.1)?;
    }
    Ok(())
}

/// Returns what was acknowledged as published, and what was written.
fn life(bucket: &Arc<InMemory>, options: Options) -> (Content, Content, Option<String>) {
    let (mut published, mut wanted) = (Content::new(), Content::new());
    let work = || -> std::result::Result<(), Error> {
        let writer = open(store(bucket), "/local", options)?;
        put_all(&writer, &mut wanted, 1, 1)?;
        writer.sync_remote()?;
        published = wanted.clone();
        put_all(&writer, &mut wanted, 2, 3)?;
        writer.compact()?;
        writer.sync_remote()?;
        published = wanted.clone();
        writer.rebuild_filters(&criba::FilterPolicy::bits_per_key(14.0))?;
        writer.sync_remote()?;
        put_all(&writer, &mut wanted, 3, 5)?;
        writer.rebuild_filters(&criba::FilterPolicy::bits_per_key(9.0))?;
        writer.compact()?;
        writer.sync_remote()?;
        published = wanted.clone();
        writer.close()
    };
    let failed = work().err().map(|error| error.to_string());
    (published, wanted, failed)
}

/// From each local operation on, all fail; or only one. Then the machine comes back.
fn sweep(lasting: bool, step: usize) {
    let mut refused = BTreeMap::<String, (u64, u64)>::new();
    let mut number = 0;
    loop {
        let bucket = Arc::new(InMemory::new());
        let vfs = sim();
        let faults = FaultVfs::new(Arc::new(vfs.clone()));
        let rule = FaultRule::new(Fault::Io).skip(number);
        faults.add(if lasting { rule.from_then_on() } else { rule });
        let (published, wanted, failed) =
            life(&bucket, options().vfs(faults.clone()).local_bytes(0));
        if faults.injected().is_empty() {
            break;
        }
        let what = format!("operation {number}, {:?}, {failed:?}", faults.injected()[0]);
        let disk = match number % 3 {
            0 => vfs.disk().power_failure(Unit::Sector, |_| Keep::OLD),
            1 => vfs.disk().power_failure(Unit::Sector, |_| Keep::NEW),
            _ => vfs.disk(),
        };
        let vfs = SimVfs::on(disk);
        let check = |found: &Content, who: &str| {
            // Each key is as published, or as later written.
            for (key, value) in &published {
                let found = found.get(key);
                let later = wanted.get(key);
                assert!(
                    found == Some(value)
                        || found.is_some() && found >= Some(value) && found <= later,
                    "{who}, {what}: {:?} is {:?}",
                    String::from_utf8_lossy(key),
                    found.map(|v| v[0])
                );
            }
        };
        if !published.is_empty() {
            let reader = open_reader(store(&bucket), "/reader", options().vfs(sim()));
            let reader = reader.unwrap_or_else(|error| panic!("reader, {what}: {error}"));
            check(&content(reader.iter()).unwrap(), "reader");
            for key in published.keys() {
                assert!(reader.get(key).unwrap().is_some(), "reader's filter, {what}");
            }
        }
        match open(store(&bucket), "/local", options().vfs(vfs).local_bytes(0)) {
            Ok(writer) => {
                check(
                    &content(writer.iter())
                        .unwrap_or_else(|error| panic!("writer, {what}: {error}")),
                    "writer",
                );
                for key in published.keys() {
                    assert!(writer.get(key).unwrap().is_some(), "writer's filter, {what}");
                }
                writer.put("later", "1").unwrap();
                writer.sync_remote().unwrap_or_else(|error| panic!("goes on, {what}: {error}"));
                let all = content(writer.iter()).unwrap();
                let reader = open_reader(store(&bucket), "/reader", options().vfs(sim())).unwrap();
                assert_eq!(content(reader.iter()).unwrap(), all, "{what}");
                for key in all.keys() {
                    assert!(reader.get(key).unwrap().is_some(), "filter, {what}");
                }
            }
            Err(error) => {
                let entry = refused
                    .entry(error.to_string().chars().take(150).collect())
                    .or_insert((0, number));
                entry.0 += 1;
            }
        }
        number += step as u64;
        if number % 205 == 0 {
            println!("at {number}");
        }
    }
    println!("{number} operations; refused: {refused:#?}");
    assert!(refused.is_empty(), "{refused:?}");
}

#[test]
fn death_at_each_local_operation() {
    sweep(true, 41);
}

#[test]
fn one_failure_of_each_local_operation() {
    sweep(false, 41);
}

/// A reader whose local operations fail once, or from then on, and which then refreshes or opens again.
#[test]
fn failures_of_each_local_operation_of_a_reader() {
    let bucket = Arc::new(InMemory::new());
    let writer = open(store(&bucket), "/local", options().vfs(sim()).local_bytes(0)).unwrap();
    let mut first = Content::new();
    put_all(&writer, &mut first, 1, 1).unwrap();
    writer.rebuild_filters(&criba::FilterPolicy::bits_per_key(9.0)).unwrap();
    writer.sync_remote().unwrap();
    let old = Arc::new(bucket.fork());
    let mut second = first.clone();
    put_all(&writer, &mut second, 2, 3).unwrap();
    writer.compact().unwrap();
    writer.rebuild_filters(&criba::FilterPolicy::bits_per_key(14.0)).unwrap();
    writer.sync_remote().unwrap();
    for lasting in [false, true] {
        for number in (0..).step_by(7) {
            let vfs = sim();
            drop(open_reader(store(&old), "/reader", options().vfs(vfs.clone())).unwrap());
            let faults = FaultVfs::new(Arc::new(vfs.clone()));
            // The client has the old bucket, and then the new one.
            let both = Arc::new(old.fork());
            let reader =
                open_reader(store(&both), "/reader", options().vfs(faults.clone())).unwrap();
            let names: Vec<ObjectMeta> = block_on(bucket.list(None).try_collect()).unwrap();
            for meta in names {
                let bytes = block_on(async {
                    bucket.get(&meta.location).await.unwrap().bytes().await.unwrap()
                });
                block_on(both.put(&meta.location, bytes.into())).unwrap();
            }
            let rule = FaultRule::new(Fault::Io).skip(number);
            faults.add(if lasting { rule.from_then_on() } else { rule });
            let refreshed = reader.refresh();
            let injected = faults.injected();
            faults.clear();
            if number % 50 == 0 {
                println!("at {number}");
            }
            let what = format!("{number} {lasting} {:?} {refreshed:?}", injected.first());
            let expected = if refreshed.is_ok() { &second } else { &first };
            let found = content(reader.iter());
            assert!(
                found.as_ref().is_ok_and(|found| found == expected),
                "{what}: {:?}",
                found.map(|f| f.len())
            );
            for (key, value) in expected {
                assert_eq!(reader.get(key).unwrap().as_deref(), Some(&value[..]), "{what}");
            }
            if number % 2 == 0 {
                reader.refresh().unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_eq!(content(reader.iter()).unwrap(), second, "{what}");
                for (key, value) in &second {
                    assert_eq!(reader.get(key).unwrap().as_deref(), Some(&value[..]), "{what}");
                }
            }
            let disk = if number % 3 == 0 {
                vfs.disk()
            } else {
                vfs.disk().power_failure(Unit::Sector, |_| {
                    if number % 3 == 1 { Keep::OLD } else { Keep::NEW }
                })
            };
            drop(reader);
            let reader = open_reader(store(&both), "/reader", options().vfs(SimVfs::on(disk)));
            let reader = reader.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(content(reader.iter()).unwrap(), second, "{what}");
            for (key, value) in &second {
                assert_eq!(reader.get(key).unwrap().as_deref(), Some(&value[..]), "{what}");
            }
            if injected.is_empty() {
                println!("{number} operations");
                break;
            }
        }
    }
}

/// A writer comes and goes between a reader's look at the directory and its lock.
#[test]
fn a_reader_that_opens_while_a_writer_comes_and_goes_removes_nothing_of_it() {
    let bucket = Arc::new(InMemory::new());
    let writer = open(store(&bucket), "/w", options().vfs(sim())).unwrap();
    writer.put("a", "1").unwrap();
    writer.close().unwrap();
    let vfs = sim();
    let slow = FaultVfs::new(Arc::new(vfs.clone()));
    let delay = Fault::Delay(Duration::from_millis(800));
    slow.add(FaultRule::new(delay).operations([criba::vfs::Operation::Lock]));
    std::thread::scope(|scope| {
        let reader = scope
            .spawn(|| drop(open_reader(store(&bucket), "/local", options().vfs(slow.clone()))));
        std::thread::sleep(Duration::from_millis(200));
        let writer = open(store(&bucket), "/local", options().vfs(vfs.clone())).unwrap();
        writer.put_with("not published", "1", Durability::Synced).unwrap();
        drop(writer);
        reader.join().unwrap();
    });
    assert!(!slow.injected().is_empty());
    let writer = open(store(&bucket), "/local", options().vfs(vfs)).unwrap();
    assert!(writer.get("not published").unwrap().is_some(), "the reader removed the writer's log");
}

/// The store's filter policy is in the manifest; no table changes with it.
#[test]
fn a_policy_that_was_set_is_published() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Arc::new(InMemory::new());
    let writer = open(store(&bucket), dir.path().join("a"), options()).unwrap();
    writer.put("a", "1").unwrap();
    writer.sync_remote().unwrap();
    let policy = criba::FilterPolicy::bits_per_key(17.0);
    writer.set_policy(policy).unwrap();
    writer.sync_remote().unwrap();
    let new = open_reader(store(&bucket), dir.path().join("b"), options()).unwrap();
    assert_eq!(new.policy(), policy);
}

/// The bucket does not answer for two seconds, in which the backlog fills; then it works again. Background threads, one
/// program that writes.
#[test]
fn writes_go_on_when_the_bucket_answers_again() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Arc::new(InMemory::new());
    let slow = hooked(&bucket, |number| {
        if number == 2 {
            std::thread::sleep(Duration::from_secs(2));
        }
    });
    let small =
        criba::Options::new().background_threads(2).memtable_bytes(64 << 10).table_bytes(64 << 10);
    let small =
        options().store(small).backlog_bytes(1 << 20).publish_every(Duration::from_millis(50));
    let writer = Arc::new(open(slow, dir.path().join("a"), small).unwrap());
    let written = Arc::new(AtomicU64::new(0));
    let (of_thread, count) = (Arc::clone(&writer), Arc::clone(&written));
    std::thread::spawn(move || {
        for number in 0..60_000u64 {
            of_thread.put_with(key(number), [7; 400], Durability::Buffered).unwrap();
            count.fetch_add(1, Ordering::SeqCst);
            if number == 0 {
                std::thread::sleep(Duration::from_millis(200)); // a small publication is under way
            }
        }
    });
    let (mut last, mut since) = (0, Instant::now());
    while last < 60_000 {
        let now = written.load(Ordering::SeqCst);
        if now > last {
            (last, since) = (now, Instant::now());
        }
        if since.elapsed() > Duration::from_secs(15) {
            let status = writer.publications();
            if std::env::var("BREAKER_WAITS").is_ok() {
                std::thread::sleep(Duration::from_secs(20));
            }
            std::mem::forget(writer);
            panic!("hangs after {now} writes: {status:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
