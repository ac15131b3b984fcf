//! An object store in memory, as one client sees it: requests are counted, and fail when the test says so.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use criba_object::Options;
use criba_object::object_store::memory::InMemory;
use criba_object::object_store::path::Path;
use criba_object::object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;

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

/// The view of one client. Clones are the same client.
#[derive(Debug, Clone)]
pub(crate) struct Client(Arc<State>);

#[derive(Debug)]
struct State {
    bucket: Arc<InMemory>,
    fate: Fate,
    requests: AtomicU64,
    gets: AtomicU64,
    under_way: AtomicU64,
    most_under_way: AtomicU64,
    is_dead: AtomicBool,
    latency: Duration,
}

impl Client {
    pub(crate) fn new(bucket: &Arc<InMemory>, fate: Fate) -> Self {
        Self::with_latency(bucket, fate, Duration::ZERO)
    }

    pub(crate) fn with_latency(bucket: &Arc<InMemory>, fate: Fate, latency: Duration) -> Self {
        Self(Arc::new(State {
            bucket: Arc::clone(bucket),
            fate,
            requests: AtomicU64::new(0),
            gets: AtomicU64::new(0),
            under_way: AtomicU64::new(0),
            most_under_way: AtomicU64::new(0),
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
        // The shortest sleep takes a millisecond.
        if !latency.is_zero() {
            tokio::time::sleep(*latency).await;
        }
        let done = work.await;
        under_way.fetch_sub(1, Ordering::SeqCst);
        if *fate == Fate::DiesAfter(number) {
            is_dead.store(true, Ordering::SeqCst);
        }
        let lost = [Fate::DiesAfter(number), Fate::LosesAnswer(number)].contains(fate);
        if lost { Err(cut_off()) } else { done }
    }
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
        self.request(self.0.bucket.put_opts(to, payload, options)).await
    }

    async fn put_multipart_opts(
        &self,
        to: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.request(self.0.bucket.put_multipart_opts(to, options)).await
    }

    async fn get_opts(&self, from: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.gets.fetch_add(1, Ordering::SeqCst);
        self.request(self.0.bucket.get_opts(from, options)).await
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
        self.listed(self.0.bucket.list(prefix))
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listed(self.0.bucket.list_with_offset(prefix, offset))
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
        listing: BoxStream<'static, Result<ObjectMeta>>,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let client = self.clone();
        let all = async move {
            let all = client.request(async { Ok(listing.collect::<Vec<_>>().await) }).await;
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

pub(crate) fn key(number: u64) -> Vec<u8> {
    format!("key{number:08}").into_bytes()
}
