//! An object store in memory, as one client sees it: requests are counted, and fail or give wrong bytes when the test
//! says so.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use criba::vfs::SimVfs;
use criba_object::Options;
use criba_object::object_store::memory::InMemory;
use criba_object::object_store::path::Path;
use criba_object::object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
    UploadPart,
};
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt, TryStreamExt};

/// When a client fails. Requests are counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Works,
    /// It is cut off before the request.
    DiesBefore(u64),
    /// It is cut off before the answer to the request.
    DiesAfter(u64),
    /// The answer to one request is lost.
    LosesAnswer(u64),
    /// One request is refused.
    Refuses(u64),
}

/// What a test sees of a request before it is made.
#[derive(Debug)]
pub(crate) enum Request<'a> {
    Put(&'a Path, &'a PutPayload, &'a PutOptions),
    /// A part of an object.
    Part(&'a Path),
    Get(&'a Path),
    List(&'a Path),
}

impl Request<'_> {
    /// Whether it is of an object whose name has this text.
    pub(crate) fn is_of(&self, text: &str) -> bool {
        let (Self::Put(path, ..) | Self::Part(path) | Self::Get(path) | Self::List(path)) = self;
        path.as_ref().contains(text)
    }
}

/// How a request is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    True,
    /// 503.
    Refused,
    /// None, ever.
    Silence,
    /// To a GET: bytes of another range, which the answer names.
    OtherRange,
    /// To a GET: a byte less.
    TooFew,
    /// To a GET: more bytes, without an end.
    TooMany,
    /// To a GET: an error after half of the body.
    HalfABody,
    /// To a GET: a wrong bit in the middle.
    WrongBit,
}

/// Answers the requests of a client, and may do anything meanwhile.
pub(crate) type Hook = Box<dyn Fn(&Request<'_>) -> Answer + Send + Sync>;

/// The view of one client. Clones are the same client.
#[derive(Debug, Clone)]
pub(crate) struct Client(Arc<State>);

struct State {
    bucket: Arc<InMemory>,
    fate: Fate,
    hook: Option<Hook>,
    requests: AtomicU64,
    gets: AtomicU64,
    under_way: AtomicU64,
    most_under_way: AtomicU64,
    depth: AtomicU64,
    is_dead: AtomicBool,
    latency: Duration,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a client that {:?}", self.fate)
    }
}

impl Client {
    pub(crate) fn new(bucket: &Arc<InMemory>, fate: Fate) -> Self {
        Self::with(bucket, fate, Duration::ZERO, None)
    }

    pub(crate) fn with_latency(bucket: &Arc<InMemory>, latency: Duration) -> Self {
        Self::with(bucket, Fate::Works, latency, None)
    }

    pub(crate) fn with_hook(
        bucket: &Arc<InMemory>,
        hook: impl Fn(&Request<'_>) -> Answer + Send + Sync + 'static,
    ) -> Self {
        Self::with(bucket, Fate::Works, Duration::ZERO, Some(Box::new(hook)))
    }

    /// Runs work before the PUT of each manifest, which has its number from 1.
    pub(crate) fn before_manifests(
        bucket: &Arc<InMemory>,
        work: impl Fn(u64) + Send + Sync + 'static,
    ) -> Self {
        let manifests = AtomicU64::new(0);
        Self::with_hook(bucket, move |request| {
            if matches!(request, Request::Put(..)) && request.is_of("manifests/") {
                work(manifests.fetch_add(1, Ordering::SeqCst) + 1);
            }
            Answer::True
        })
    }

    fn with(bucket: &Arc<InMemory>, fate: Fate, latency: Duration, hook: Option<Hook>) -> Self {
        Self(Arc::new(State {
            bucket: Arc::clone(bucket),
            fate,
            hook,
            requests: AtomicU64::new(0),
            gets: AtomicU64::new(0),
            under_way: AtomicU64::new(0),
            most_under_way: AtomicU64::new(0),
            depth: AtomicU64::new(0),
            is_dead: AtomicBool::new(false),
            latency,
        }))
    }

    pub(crate) fn store(&self) -> Arc<dyn ObjectStore> {
        Arc::new(self.clone())
    }

    pub(crate) fn requests(&self) -> u64 {
        self.0.requests.load(Ordering::SeqCst)
    }

    pub(crate) fn gets(&self) -> u64 {
        self.0.gets.load(Ordering::SeqCst)
    }

    pub(crate) fn most_under_way(&self) -> u64 {
        self.0.most_under_way.load(Ordering::SeqCst)
    }

    /// The most requests of which each began after the end of the one before: round trips.
    pub(crate) fn depth(&self) -> u64 {
        self.0.depth.load(Ordering::SeqCst)
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.0.is_dead.load(Ordering::SeqCst)
    }

    /// Lets all requests fail, or work again.
    pub(crate) fn cut_off(&self, is_cut_off: bool) {
        self.0.is_dead.store(is_cut_off, Ordering::SeqCst);
    }

    async fn request<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let State { fate, requests, is_dead, under_way, most_under_way, latency, .. } = &*self.0;
        let number = requests.fetch_add(1, Ordering::SeqCst) + 1;
        if self.is_dead() || *fate == Fate::DiesBefore(number) {
            is_dead.store(true, Ordering::SeqCst);
            return Err(cut_off());
        }
        if *fate == Fate::Refuses(number) {
            return Err(cut_off());
        }
        let now = under_way.fetch_add(1, Ordering::SeqCst) + 1;
        most_under_way.fetch_max(now, Ordering::SeqCst);
        let depth = self.depth() + 1;
        // The shortest sleep takes a millisecond.
        if !latency.is_zero() {
            tokio::time::sleep(*latency).await;
        }
        let done = work.await;
        under_way.fetch_sub(1, Ordering::SeqCst);
        self.0.depth.fetch_max(depth, Ordering::SeqCst);
        if *fate == Fate::DiesAfter(number) {
            is_dead.store(true, Ordering::SeqCst);
        }
        let lost = [Fate::DiesAfter(number), Fate::LosesAnswer(number)].contains(fate);
        if lost { Err(cut_off()) } else { done }
    }

    /// The answer that the test gives to a request, unless it is refused or not answered.
    async fn answer(&self, request: Request<'_>) -> Result<Answer> {
        let Some(hook) = &self.0.hook else { return Ok(Answer::True) };
        match tokio::task::block_in_place(|| hook(&request)) {
            Answer::Refused => Err(cut_off()),
            Answer::Silence => std::future::pending().await,
            answer => Ok(answer),
        }
    }
}

/// An upload in parts.
#[derive(Debug)]
struct Upload {
    parts: Box<dyn MultipartUpload>,
    client: Client,
    path: Path,
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (client, path, part) =
            (self.client.clone(), self.path.clone(), self.parts.put_part(data));
        let work = async move {
            client.answer(Request::Part(&path)).await?;
            part.await
        };
        let client = self.client.clone();
        async move { client.request(work).await }.boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.client.clone().request(self.parts.complete()).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.parts.abort().await
    }
}

async fn spoiled(mut found: GetResult, answer: Answer) -> Result<GetResult> {
    let (meta, mut range) = (found.meta.clone(), found.range.clone());
    let attributes = std::mem::take(&mut found.attributes);
    let mut bytes = found.bytes().await?.to_vec();
    let mut parts = Vec::new();
    match answer {
        Answer::OtherRange => range = range.start + 1..range.end + 1,
        Answer::TooFew => bytes.truncate(bytes.len() - 1),
        Answer::HalfABody => {
            bytes.truncate(bytes.len() / 2);
            parts.push(Err(cut_off()));
        }
        Answer::WrongBit => {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        }
        Answer::True | Answer::Refused | Answer::Silence | Answer::TooMany => {}
    }
    parts.insert(0, Ok(bytes.into()));
    let parts = futures_util::stream::iter(parts);
    let more = futures_util::stream::repeat_with(|| Ok(Bytes::from_static(&[0; 4096])));
    let parts = if answer == Answer::TooMany { parts.chain(more).boxed() } else { parts.boxed() };
    let payload = GetResultPayload::Stream(parts);
    Ok(GetResult { payload, meta, range, attributes, extensions: <_>::default() })
}

fn cut_off() -> Error {
    Error::Generic { store: "test", source: "503 Service Unavailable".into() }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("test")
    }
}

#[async_trait]
impl ObjectStore for Client {
    async fn put_opts(
        &self,
        to: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let work = async {
            self.answer(Request::Put(to, &payload, &options)).await?;
            self.0.bucket.put_opts(to, payload, options).await
        };
        self.request(work).await
    }

    async fn put_multipart_opts(
        &self,
        to: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let work = self.0.bucket.put_multipart_opts(to, options);
        let parts = self.request(work).await?;
        Ok(Box::new(Upload { parts, client: self.clone(), path: to.clone() }))
    }

    async fn get_opts(&self, from: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.gets.fetch_add(1, Ordering::SeqCst);
        let work = async {
            let answer = self.answer(Request::Get(from)).await?;
            let found = self.0.bucket.get_opts(from, options).await?;
            if answer == Answer::True { Ok(found) } else { spoiled(found, answer).await }
        };
        self.request(work).await
    }

    async fn get_ranges(&self, from: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.request(self.0.bucket.get_ranges(from, ranges)).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.0.bucket.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listed(prefix, self.0.bucket.list(prefix))
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listed(prefix, self.0.bucket.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.request(self.0.bucket.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.request(self.0.bucket.copy_opts(from, to, options)).await
    }
}

impl Client {
    fn listed(
        &self,
        prefix: Option<&Path>,
        listing: BoxStream<'static, Result<ObjectMeta>>,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let (client, prefix) = (self.clone(), prefix.cloned().unwrap_or_default());
        let all = async move {
            let work = async {
                client.answer(Request::List(&prefix)).await?;
                Ok(listing.collect::<Vec<_>>().await)
            };
            let all = client.request(work).await;
            futures_util::stream::iter(all.unwrap_or_else(|error| vec![Err(error)]))
        };
        futures_util::stream::once(all).flatten().boxed()
    }
}

/// Options of a store without threads of its own, that publishes only when it is called. No request is repeated.
pub(crate) fn options() -> Options {
    let store = criba::Options::new()
        .background_threads(0)
        .memtable_bytes(64 << 10)
        .table_bytes(64 << 10)
        .cache_bytes(0);
    Options::new()
        .store(store)
        .publish_every(None)
        .backlog_bytes(u64::MAX)
        .retry_for(Duration::ZERO)
}

/// Waits for the first write of another thread.
pub(crate) fn until_one_is_written(db: &criba::Db) {
    while db.latest_sequence_number() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn key(number: u64) -> Vec<u8> {
    format!("key{number:08}").into_bytes()
}

/// The client of a program that meets no failure.
pub(crate) fn store(bucket: &Arc<InMemory>) -> Arc<dyn ObjectStore> {
    Client::new(bucket, Fate::Works).store()
}

/// A disk with a root directory.
pub(crate) fn sim() -> SimVfs {
    let mut disk = SimVfs::new().disk();
    disk.create_dir_all("/");
    SimVfs::on(disk)
}

/// Waits for a request to the bucket itself.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// The objects of a directory of the bucket.
pub(crate) fn listed(bucket: &Arc<InMemory>, directory: &str) -> Vec<ObjectMeta> {
    block_on(bucket.list(Some(&directory.into())).try_collect()).unwrap()
}
