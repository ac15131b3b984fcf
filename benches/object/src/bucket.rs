//! A bucket in memory. Each request is counted and takes its time.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};

/// The requests that a bucket had.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Of objects, and of ranges.
    pub gets: u64,
    pub heads: u64,
    /// Of objects and of parts; the beginnings and ends of uploads in parts, and copies.
    pub puts: u64,
    pub lists: u64,
    pub deletes: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
}

impl Counts {
    pub fn requests(&self) -> u64 {
        self.gets + self.heads + self.puts + self.lists + self.deletes
    }

    pub fn since(self, earlier: Self) -> Self {
        Self {
            gets: self.gets - earlier.gets,
            heads: self.heads - earlier.heads,
            puts: self.puts - earlier.puts,
            lists: self.lists - earlier.lists,
            deletes: self.deletes - earlier.deletes,
            bytes_read: self.bytes_read - earlier.bytes_read,
            bytes_written: self.bytes_written - earlier.bytes_written,
        }
    }
}

#[derive(Debug, Default)]
struct Counters {
    gets: AtomicU64,
    heads: AtomicU64,
    puts: AtomicU64,
    lists: AtomicU64,
    deletes: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
}

/// The bucket. `object_store`'s own throttled store does not delay the beginning and the end of an upload in parts.
#[derive(Debug)]
pub struct Bucket {
    objects: InMemory,
    counters: Arc<Counters>,
    request: Duration,
}

impl Bucket {
    pub fn new(request: Duration) -> Arc<Self> {
        Arc::new(Self { objects: InMemory::new(), counters: Arc::default(), request })
    }

    pub fn counts(&self) -> Counts {
        let Counters { gets, heads, puts, lists, deletes, bytes_read, bytes_written } =
            &*self.counters;
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            gets: of(gets),
            heads: of(heads),
            puts: of(puts),
            lists: of(lists),
            deletes: of(deletes),
            bytes_read: of(bytes_read),
            bytes_written: of(bytes_written),
        }
    }

    async fn put_request(&self, bytes: usize) {
        put_request(&self.counters, self.request, bytes).await;
    }

    /// The answers of `results`, after the time of a request.
    fn listed<T: Send + 'static>(
        &self,
        results: BoxStream<'static, Result<T>>,
    ) -> BoxStream<'static, Result<T>> {
        let (counters, request) = (Arc::clone(&self.counters), self.request);
        let begun = async move {
            add(&counters.lists, 1);
            tokio::time::sleep(request).await;
            results
        };
        stream::once(begun).flatten().boxed()
    }
}

fn add(counter: &AtomicU64, value: u64) {
    counter.fetch_add(value, Ordering::Relaxed);
}

async fn put_request(counters: &Counters, request: Duration, bytes: usize) {
    add(&counters.puts, 1);
    add(&counters.bytes_written, bytes as u64);
    tokio::time::sleep(request).await;
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a bucket in memory")
    }
}

#[async_trait]
impl ObjectStore for Bucket {
    async fn put_opts(&self, at: &Path, bytes: PutPayload, how: PutOptions) -> Result<PutResult> {
        self.put_request(bytes.content_length()).await;
        self.objects.put_opts(at, bytes, how).await
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        how: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.put_request(0).await;
        let upload = self.objects.put_multipart_opts(at, how).await?;
        let (counters, request) = (Arc::clone(&self.counters), self.request);
        Ok(Box::new(Upload { upload, counters, request }))
    }

    async fn get_opts(&self, at: &Path, how: GetOptions) -> Result<GetResult> {
        let is_head = how.head;
        add(if is_head { &self.counters.heads } else { &self.counters.gets }, 1);
        tokio::time::sleep(self.request).await;
        let found = self.objects.get_opts(at, how).await?;
        if !is_head {
            add(&self.counters.bytes_read, found.range.end - found.range.start);
        }
        Ok(found)
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let (counters, request) = (Arc::clone(&self.counters), self.request);
        let delayed = paths.then(move |path| {
            add(&counters.deletes, 1);
            async move {
                tokio::time::sleep(request).await;
                path
            }
        });
        self.objects.delete_stream(delayed.boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listed(self.objects.list(prefix))
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listed(self.objects.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        add(&self.counters.lists, 1);
        tokio::time::sleep(self.request).await;
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, how: CopyOptions) -> Result<()> {
        self.put_request(0).await;
        self.objects.copy_opts(from, to, how).await
    }
}

/// An upload in parts.
#[derive(Debug)]
struct Upload {
    upload: Box<dyn MultipartUpload>,
    counters: Arc<Counters>,
    request: Duration,
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, bytes: PutPayload) -> UploadPart {
        let (counters, request) = (Arc::clone(&self.counters), self.request);
        let length = bytes.content_length();
        let part = self.upload.put_part(bytes);
        Box::pin(async move {
            put_request(&counters, request, length).await;
            part.await
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        put_request(&self.counters, self.request, 0).await;
        self.upload.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        put_request(&self.counters, self.request, 0).await;
        self.upload.abort().await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use futures_util::TryStreamExt;
    use object_store::ObjectStoreExt;

    use super::*;

    #[tokio::test]
    async fn each_request_is_counted_and_takes_its_time() -> Result<()> {
        let request = Duration::from_millis(3);
        let bucket = Bucket::new(request);
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
        let counts = bucket.counts();
        let expected = Counts {
            gets: 2,
            heads: 1,
            puts: 4,
            lists: 1,
            deletes: 1,
            bytes_read: 70,
            bytes_written: 150,
        };
        assert_eq!(counts, expected);
        assert!(begun.elapsed() >= request * counts.requests() as u32);
        assert_eq!(counts.since(Counts::default()), counts);
        Ok(())
    }
}
