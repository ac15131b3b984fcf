//! Requests to the object store: counted, with a time limit, repeated after failures that may pass.

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{
    Error as StoreError, GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMode, PutOptions, PutPayload,
};

use crate::error::{Error, Result, without_queries};
use crate::requests::{Purpose, Requests};
use crate::runtime::Runtime;

/// Objects are read and written in pieces of so many bytes at most.
pub(crate) const PART_BYTES: u64 = 8 << 20;
/// The wait before the first repetition. Each later one is twice as long, up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(20);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// How long requests are tried.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// One request.
    pub(crate) request: Duration,
    /// A request and its repetitions.
    pub(crate) all: Duration,
}

/// A place in an object store, and how requests are made there. Clones share it.
#[derive(Clone)]
pub(crate) struct Bucket {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) requests: Arc<Requests>,
    patience: Patience,
}

/// The result of a request that creates an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Created {
    Now,
    /// It was there: from another program, or by an earlier attempt whose answer was lost.
    Before,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bucket").field(&self.to_string()).finish()
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.store, self.prefix)
    }
}

impl Bucket {
    pub(crate) fn new(
        store: Arc<dyn ObjectStore>,
        prefix: Path,
        runtime: Arc<Runtime>,
        patience: Patience,
    ) -> Self {
        Self { store, prefix, runtime, requests: Arc::default(), patience }
    }

    fn path(&self, object: &str) -> Path {
        object.split('/').fold(self.prefix.clone(), Path::join)
    }

    /// Reads a whole object. No object has more than `at_most` bytes.
    pub(crate) async fn read_all(
        &self,
        purpose: Purpose,
        object: &str,
        at_most: u64,
    ) -> Result<Bytes> {
        let path = self.path(object);
        let request = || async {
            let found = self.store.get(&path).await?;
            if found.meta.size > at_most {
                return Ok(Err(found.meta.size));
            }
            let length = found.meta.size;
            body(found, length).await.map(Ok)
        };
        let read = self.repeated(purpose, "read it", object, request).await?;
        let read = read.map_err(|size| Error::Damaged {
            object: object.to_owned(),
            offset: 0,
            expected: format!("at most {at_most} bytes"),
            found: format!("{size} bytes"),
        })?;
        self.requests.moved(purpose, read.len() as u64);
        Ok(read)
    }

    /// Reads a range of an object, in one request.
    pub(crate) async fn read(
        &self,
        purpose: Purpose,
        object: &str,
        range: Range<u64>,
    ) -> Result<Bytes> {
        let path = self.path(object);
        let length = range.end - range.start;
        let request = || async {
            let options = GetOptions {
                range: Some(GetRange::Bounded(range.clone())),
                ..GetOptions::default()
            };
            let found = self.store.get_opts(&path, options).await?;
            if found.range != range {
                return Err(unusable(format!("range {:?} instead of {range:?}", found.range)));
            }
            body(found, length).await
        };
        let action = format!("read {length} bytes at offset {}", range.start);
        let bytes = self.repeated(purpose, &action, object, request).await?;
        self.requests.moved(purpose, length);
        Ok(bytes)
    }

    /// Creates an object in one request, if there is none of the name.
    pub(crate) async fn create(
        &self,
        purpose: Purpose,
        object: &str,
        bytes: Bytes,
    ) -> Result<Created> {
        let path = self.path(object);
        let request = || async {
            let options = PutOptions::from(PutMode::Create);
            let payload = PutPayload::from(bytes.clone());
            match self.store.put_opts(&path, payload, options).await {
                Ok(_) => Ok(Created::Now),
                Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => {
                    Ok(Created::Before)
                }
                Err(error) => Err(error),
            }
        };
        let action = format!("create it with {} bytes", bytes.len());
        let created = self.repeated(purpose, &action, object, request).await?;
        if created == Created::Now {
            self.requests.moved(purpose, bytes.len() as u64);
        }
        Ok(created)
    }

    /// Writes an object in parts, which `read_part` gives. Only whole objects appear. The name must be one that is
    /// never given to other bytes: a multipart upload has no condition.
    pub(crate) async fn upload(
        &self,
        object: &str,
        bytes: u64,
        read_part: impl Fn(Range<u64>) -> Result<Bytes>,
    ) -> Result<()> {
        let path = self.path(object);
        let purpose = Purpose::Uploads;
        if bytes <= PART_BYTES {
            let created = self.create(purpose, object, read_part(0..bytes)?).await?;
            if created == Created::Before {
                self.expect_size(object, bytes).await?;
            }
            return Ok(());
        }
        let begin = || self.store.put_multipart(&path);
        let mut upload = self.repeated(purpose, "begin to write it", object, begin).await?;
        let mut offset = 0;
        while offset < bytes {
            let end = bytes.min(offset + PART_BYTES);
            let part = read_part(offset..end)?;
            let action = format!("write {} bytes at offset {offset}", part.len());
            self.requests.began(purpose, false);
            // A part that failed cannot be sent again: the whole upload is repeated by the next publication.
            let sent = tokio::time::timeout(self.patience.request, upload.put_part(part.into()));
            if let Err(error) = flat(sent.await) {
                let _ = upload.abort().await;
                return Err(failed(&action, object, &error));
            }
            self.requests.moved(purpose, end - offset);
            offset = end;
        }
        self.requests.began(purpose, false);
        let ended = tokio::time::timeout(self.patience.request, upload.complete()).await;
        flat(ended).map(drop).map_err(|error| failed("write it to its end", object, &error))
    }

    async fn expect_size(&self, object: &str, bytes: u64) -> Result<()> {
        let path = self.path(object);
        let head = || self.store.head(&path);
        let found = self.repeated(Purpose::Uploads, "find its size", object, head).await?;
        if found.size == bytes {
            return Ok(());
        }
        Err(Error::Damaged {
            object: object.to_owned(),
            offset: found.size,
            expected: format!("{bytes} bytes, as the same table has here"),
            found: format!("{} bytes", found.size),
        })
    }

    /// The names in a directory behind `after`, in their order, each with its length and time. One request for a
    /// thousand.
    pub(crate) async fn list(&self, directory: &str, after: Option<&str>) -> Result<Vec<Listed>> {
        let path = self.path(directory);
        let offset = after.map(|name| path.clone().join(name));
        let request = || async {
            let listing = match &offset {
                Some(offset) => self.store.list_with_offset(Some(&path), offset),
                None => self.store.list(Some(&path)),
            };
            listing.try_collect::<Vec<ObjectMeta>>().await
        };
        let found = self.repeated(Purpose::Lists, "list it", directory, request).await?;
        let mut names: Vec<Listed> =
            found.iter().filter_map(|meta| Listed::of(meta, &path)).collect();
        names.sort();
        Ok(names)
    }

    /// Removes an object, if it is there.
    pub(crate) async fn remove(&self, object: &str) -> Result<()> {
        let path = self.path(object);
        let request = || async {
            match self.store.delete(&path).await {
                Err(StoreError::NotFound { .. }) => Ok(()),
                other => other,
            }
        };
        self.repeated(Purpose::Removals, "remove it", object, request).await
    }

    /// Makes a request, and repeats it while its failures may pass.
    async fn repeated<T, F>(
        &self,
        purpose: Purpose,
        action: &str,
        object: &str,
        mut request: impl FnMut() -> F,
    ) -> Result<T>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        let began = Instant::now();
        let mut wait = FIRST_WAIT;
        let mut is_repeated = false;
        loop {
            self.requests.began(purpose, is_repeated);
            let error = match flat(tokio::time::timeout(self.patience.request, request()).await) {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            if !may_pass(&error) || began.elapsed() + wait > self.patience.all {
                return Err(failed(action, object, &error));
            }
            tokio::time::sleep(wait.mul_f64(jitter())).await;
            wait = (wait * 2).min(LONGEST_WAIT);
            is_repeated = true;
        }
    }
}

/// The time of the server, in milliseconds since 1970.
pub(crate) type ServerTime = i64;

/// A name in a listing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// When it was created.
    pub(crate) time: ServerTime,
}

impl Listed {
    fn of(meta: &ObjectMeta, directory: &Path) -> Option<Self> {
        let mut parts = meta.location.prefix_match(directory)?;
        let name = parts.next()?.as_ref().to_owned();
        let time = meta.last_modified.timestamp_millis();
        parts.next().is_none().then_some(Self { name, bytes: meta.size, time })
    }
}

/// Spreads the repetitions of many clients: between 0.5 and 1.5.
fn jitter() -> f64 {
    let random = getrandom::u32().unwrap_or(u32::MAX / 2);
    0.5 + f64::from(random) / f64::from(u32::MAX)
}

fn flat<T>(
    done: std::result::Result<object_store::Result<T>, tokio::time::error::Elapsed>,
) -> object_store::Result<T> {
    done.unwrap_or_else(|_| Err(unusable("no answer within the time limit".to_owned())))
}

/// The body of an answer, which has so many bytes. A longer one is not read to its end, which may never come.
async fn body(found: GetResult, length: u64) -> object_store::Result<Bytes> {
    let (mut parts, mut bytes) = (Vec::new(), 0);
    let mut body = found.into_stream();
    while let Some(part) = body.try_next().await? {
        bytes += part.len() as u64;
        if bytes > length {
            return Err(unusable(format!("more than {length} bytes")));
        }
        parts.push(part);
    }
    if bytes < length {
        return Err(unusable(format!("{bytes} bytes instead of {length}")));
    }
    Ok(if parts.len() == 1 { parts.remove(0) } else { parts.concat().into() })
}

fn unusable(reason: String) -> StoreError {
    StoreError::Generic { store: "object store", source: reason.into() }
}

/// Whether a repetition of the request may succeed.
fn may_pass(error: &StoreError) -> bool {
    matches!(error, StoreError::Generic { .. } | StoreError::JoinError { .. })
}

fn failed(action: &str, object: &str, error: &StoreError) -> Error {
    Error::Request {
        action: action.to_owned(),
        object: object.to_owned(),
        cause: without_queries(&error.to_string()),
        is_missing: matches!(error, StoreError::NotFound { .. }),
    }
}
