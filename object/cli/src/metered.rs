//! Counts of requests, taken between a store and its bucket.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use criba_object::object_store::path::Path;
use criba_object::object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use serde::Serialize;

/// Requests by what an object store charges for them, and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Requests {
    /// GETs of objects and of ranges.
    pub gets: u64,
    /// PUTs; the requests that begin and end an upload in parts, and its parts; copies.
    pub puts: u64,
    /// Listings.
    pub lists: u64,
    /// HEADs.
    pub heads: u64,
    /// Removals. S3 charges nothing for them.
    pub deletes: u64,
    /// Bytes of objects that were read.
    pub bytes_read: u64,
    /// Bytes of objects that were written.
    pub bytes_written: u64,
}

impl Requests {
    /// All requests.
    pub fn total(&self) -> u64 {
        self.gets + self.puts + self.lists + self.heads + self.deletes
    }
}

impl std::ops::Sub for Requests {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            gets: self.gets - before.gets,
            puts: self.puts - before.puts,
            lists: self.lists - before.lists,
            heads: self.heads - before.heads,
            deletes: self.deletes - before.deletes,
            bytes_read: self.bytes_read - before.bytes_read,
            bytes_written: self.bytes_written - before.bytes_written,
        }
    }
}

/// An object store that counts its requests, and makes each of them slower. Clones share the counts. `object_store`'s
/// own throttled store does not delay the beginning and the end of an upload in parts.
#[derive(Debug, Clone)]
pub struct Metered {
    store: Arc<dyn ObjectStore>,
    delay: Duration,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    gets: AtomicU64,
    puts: AtomicU64,
    lists: AtomicU64,
    heads: AtomicU64,
    deletes: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
}

fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

impl Metered {
    /// Counts the requests to `store`. Each takes `delay` longer; zero adds nothing.
    pub fn new(store: Arc<dyn ObjectStore>, delay: Duration) -> Self {
        Self { store, delay, counters: Arc::default() }
    }

    /// The requests so far.
    pub fn requests(&self) -> Requests {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Requests {
            gets: value(&self.counters.gets),
            puts: value(&self.counters.puts),
            lists: value(&self.counters.lists),
            heads: value(&self.counters.heads),
            deletes: value(&self.counters.deletes),
            bytes_read: value(&self.counters.bytes_read),
            bytes_written: value(&self.counters.bytes_written),
        }
    }

    async fn wait(&self) {
        // The shortest sleep takes a millisecond.
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
    }

    fn listed(
        &self,
        listing: BoxStream<'static, Result<ObjectMeta>>,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        add(&self.counters.lists, 1);
        let this = self.clone();
        let waits = stream::once(async move { this.wait().await });
        waits.filter_map(|()| async { None }).chain(listing).boxed()
    }
}

impl fmt::Display for Metered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for Metered {
    async fn put_opts(
        &self,
        to: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        add(&self.counters.puts, 1);
        add(&self.counters.bytes_written, payload.content_length() as u64);
        self.wait().await;
        self.store.put_opts(to, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        to: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        add(&self.counters.puts, 1);
        self.wait().await;
        let upload = self.store.put_multipart_opts(to, options).await?;
        Ok(Box::new(Upload { upload, metered: self.clone() }))
    }

    async fn get_opts(&self, from: &Path, options: GetOptions) -> Result<GetResult> {
        let is_head = options.head;
        add(if is_head { &self.counters.heads } else { &self.counters.gets }, 1);
        self.wait().await;
        let found = self.store.get_opts(from, options).await?;
        if !is_head {
            add(&self.counters.bytes_read, found.range.end - found.range.start);
        }
        Ok(found)
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let this = self.clone();
        let counted = paths.then(move |path| {
            let this = this.clone();
            async move {
                add(&this.counters.deletes, 1);
                this.wait().await;
                path
            }
        });
        self.store.delete_stream(counted.boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listed(self.store.list(prefix))
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listed(self.store.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        add(&self.counters.lists, 1);
        self.wait().await;
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        add(&self.counters.puts, 1);
        self.wait().await;
        self.store.copy_opts(from, to, options).await
    }
}

#[derive(Debug)]
struct Upload {
    upload: Box<dyn MultipartUpload>,
    metered: Metered,
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, part: PutPayload) -> UploadPart {
        let metered = self.metered.clone();
        add(&metered.counters.puts, 1);
        add(&metered.counters.bytes_written, part.content_length() as u64);
        let sent = self.upload.put_part(part);
        Box::pin(async move {
            metered.wait().await;
            sent.await
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        add(&self.metered.counters.puts, 1);
        self.metered.wait().await;
        self.upload.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        add(&self.metered.counters.deletes, 1);
        self.metered.wait().await;
        self.upload.abort().await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use criba_object::object_store::ObjectStoreExt;
    use criba_object::object_store::memory::InMemory;
    use futures_util::TryStreamExt;

    use super::*;

    #[tokio::test]
    async fn each_request_is_counted_and_takes_its_time() -> Result<()> {
        let request = Duration::from_millis(3);
        let bucket = Metered::new(Arc::new(InMemory::new()), request);
        let begun = Instant::now();
        let [one, two] = ["one", "two"].map(Path::from);
        bucket.put(&one, vec![1; 100].into()).await?;
        let mut upload = bucket.put_multipart(&two).await?;
        upload.put_part(vec![2; 50].into()).await?;
        upload.complete().await?;
        bucket.get_range(&one, 10..30).await?;
        bucket.get(&two).await?.bytes().await?;
        bucket.head(&one).await?;
        assert_eq!(bucket.list(None).try_collect::<Vec<_>>().await?.len(), 2);
        bucket.delete(&one).await?;
        let counts = bucket.requests();
        let expected = Requests {
            gets: 2,
            heads: 1,
            puts: 4,
            lists: 1,
            deletes: 1,
            bytes_read: 70,
            bytes_written: 150,
        };
        assert_eq!(counts, expected);
        assert!(begun.elapsed() >= request * counts.total() as u32);
        assert_eq!(counts - Requests::default(), counts);
        Ok(())
    }
}
