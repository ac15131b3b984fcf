//! Publishes a store: flush, checkpoint, upload of new tables, a manifest.
//!
//! A checkpoint in the local directory names the files, and keeps them while they are uploaded: a whole table or a stub
//! under its name. What is prepared once is published before anything else is: after a failure, and after an answer
//! that was lost, the same manifest is created again.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use criba::vfs::{FileKind, VfsFile};
use criba::{Db, TableLayout};
use futures_util::{StreamExt, TryStreamExt};
use tokio::task::AbortHandle;

use crate::bucket::Bucket;
use crate::error::{Error, Result};
use crate::files::TableFiles;
use crate::install::kind_of;
use crate::local::{LocalDir, io_error};
use crate::manifests;
use crate::published::{
    Object, PUBLICATION, Published, is_filter, is_log, is_publication, is_table, object_name,
};
use crate::removal::Dropped;
use crate::stub::{Stub, table_of};

/// The record of the newest version that this directory's writer published.
const PUBLISHED: &str = "PUBLISHED";
/// How many files are uploaded at once.
const UPLOADS_AT_ONCE: usize = 2;
/// The least time between two publications of the thread.
const BETWEEN: Duration = Duration::from_millis(2);
/// A log of so many bytes is a part of the manifest object, a longer one an object.
const MOST_INLINE_BYTES: usize = 64 << 10;
/// The wait after a publication that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Publisher {
    bucket: Bucket,
    files: TableFiles,
    db: Db,
    local: LocalDir,
    store: LocalDir,
    rules: Rules,
    epoch: u64,
    state: Mutex<State>,
    status: Mutex<Status>,
}

/// What is in the bucket, and what is not yet.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Publications {
    /// The epoch of this writer.
    pub epoch: u64,
    /// The number of the newest manifest of this writer.
    pub manifest: u64,
    /// At most so many changes are not in it.
    pub unpublished_changes: u64,
    /// The bytes of tables that are not in it.
    pub unpublished_bytes: u64,
    /// The time since the last publication.
    pub since_publication: Duration,
    /// The error of the last attempt, if it failed.
    pub last_error: Option<String>,
}

/// When to publish, and what to keep.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// The bytes of published tables that stay whole on the local disk.
    pub(crate) local_bytes: u64,
    pub(crate) interval: Option<Duration>,
}

/// Held during a publication.
#[derive(Debug)]
struct State {
    published: Published,
    /// The version that is to be published next.
    prepared: Option<Published>,
    /// What later versions of this writer do not have any more.
    dropped: Dropped,
    /// The settings, tables and filters of `published`, to find out whether anything changed.
    shape: (String, BTreeSet<(usize, u64, usize)>),
}

/// What other threads ask for during a publication.
#[derive(Debug)]
struct Status {
    manifest: u64,
    changes: u64,
    at: Instant,
    last_error: Option<String>,
    /// The work that is under way.
    running: Vec<AbortHandle>,
    /// Why nothing is published any more.
    ended: Option<Error>,
}

/// Reads the newest version that the writer of a local directory published.
pub(crate) fn read_published(local: &LocalDir) -> Result<Option<Published>> {
    let Some(bytes) = local.read(PUBLISHED, FileKind::Manifest)? else { return Ok(None) };
    let path = local.path.join(PUBLISHED);
    Published::decode(&bytes, &path.display().to_string()).map(Some)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Publisher {
    pub(crate) fn new(
        bucket: Bucket,
        files: TableFiles,
        db: Db,
        (local, store): (LocalDir, LocalDir),
        published: Published,
        rules: Rules,
    ) -> Result<Self> {
        let status = Status {
            manifest: published.number,
            changes: published.changes,
            at: Instant::now(),
            last_error: None,
            running: Vec::new(),
            ended: None,
        };
        let epoch = published.epoch.number;
        let state =
            State { published, prepared: None, dropped: Dropped::default(), shape: <_>::default() };
        let publisher = Self {
            bucket,
            files,
            db,
            local,
            store,
            rules,
            epoch,
            state: Mutex::new(state),
            status: Mutex::new(status),
        };
        publisher.remove_checkpoint()?;
        publisher.record(&lock(&publisher.state).published)?;
        Ok(publisher)
    }

    pub(crate) fn bucket(&self) -> &Bucket {
        &self.bucket
    }

    pub(crate) fn db(&self) -> &Db {
        &self.db
    }

    pub(crate) fn publications(&self) -> Publications {
        let status = lock(&self.status);
        Publications {
            epoch: self.epoch,
            manifest: status.manifest,
            unpublished_changes: self.db.latest_sequence_number().saturating_sub(status.changes),
            unpublished_bytes: self.files.backlog().bytes(),
            since_publication: status.at.elapsed(),
            last_error: status.last_error.clone(),
        }
    }

    /// Publishes at each interval, and when the backlog is half full, until [`stop`](Self::stop).
    pub(crate) fn run(&self) {
        let mut failed = false;
        loop {
            let wait = if failed { Some(AFTER_FAILURE) } else { self.rules.interval };
            if !self.files.backlog().wait(wait, failed) {
                return;
            }
            failed = self.publish().is_err();
            if !failed && let Err(error) = self.remove_dropped() {
                lock(&self.status).last_error = Some(error.to_string());
            }
            // Not at once, if unfinished tables take the room.
            if !self.files.backlog().wait(Some(BETWEEN), true) {
                return;
            }
            if lock(&self.status).ended.is_some() {
                return;
            }
        }
    }

    /// Ends publications, one that is under way too.
    pub(crate) fn stop(&self) {
        self.end(Error::Closed);
    }

    fn end(&self, error: Error) {
        let mut status = lock(&self.status);
        status.ended.get_or_insert(error);
        for running in status.running.drain(..) {
            running.abort();
        }
        drop(status);
        self.files.backlog().close();
    }

    /// Removes objects that no reader needs any more.
    fn remove_dropped(&self) -> Result<()> {
        // A table has its file, or its stub, for as long as a scan or a snapshot reads it.
        let in_use = self.store.names()?.into_iter().collect();
        let mut dropped = std::mem::take(&mut lock(&self.state).dropped);
        if dropped.is_empty() {
            lock(&self.state).dropped.join(dropped);
            return Ok(());
        }
        let bucket = self.bucket.clone();
        let (removed, dropped) = self.while_running(async move {
            let removed = dropped.remove(&bucket, &in_use).await;
            Ok((removed, dropped))
        })?;
        lock(&self.state).dropped.join(dropped);
        removed.map(drop)
    }

    /// Publishes what was committed before the call.
    pub(crate) fn publish(&self) -> Result<()> {
        let mut state = lock(&self.state);
        let published = self.publish_all(&mut state);
        if let Err(error @ Error::Fenced { .. }) = &published {
            self.end(error.clone());
            // Its later writes would never be published. What it has stays in the directory.
            let _ = self.db.clone().close();
        }
        lock(&self.status).last_error = published.as_ref().err().map(ToString::to_string);
        published
    }

    fn publish_all(&self, state: &mut State) -> Result<()> {
        if let Some(error) = &lock(&self.status).ended {
            return Err(error.clone());
        }
        if state.prepared.is_some() {
            self.finish(state)?;
        }
        self.prepare(state)?;
        while !self.finish(state)? {
            self.prepare(state)?;
        }
        Ok(())
    }

    /// Flushes, and makes the next version from a checkpoint, if anything changed.
    fn prepare(&self, state: &mut State) -> Result<()> {
        let changes = self.db.latest_sequence_number();
        // In one: each waits for a write that is under way, and that may wait for room.
        self.files.backlog().while_flushing(|| self.prepare_files(state, changes))
    }

    fn prepare_files(&self, state: &mut State, changes: u64) -> Result<()> {
        self.db.flush()?;
        let settings = format!(
            "{:?} {:?} {:?} {:?}",
            self.db.policy(),
            self.db.prefix_extractor(),
            self.db.compression(),
            self.db.default_ttl()
        );
        let tables = self.db.tables();
        let shape = tables.iter().map(|table| (table.level, table.id, table.filter.stored_bytes()));
        let shape: BTreeSet<_> = shape.collect();
        let shape = (settings, shape);
        if state.published.has_store() && changes == state.published.changes && shape == state.shape
        {
            return Ok(());
        }
        self.remove_checkpoint()?;
        let path = self.local.path.join(PUBLICATION);
        self.db.checkpoint(&path)?;
        // What readers see must not be lost here: its sequence numbers would be given to other changes.
        let up_to = self.db.latest_sequence_number();
        self.db.sync()?;
        let checkpoint = self.open_checkpoint()?;
        let mut version = Published {
            number: state.published.number + 1,
            epoch: state.published.epoch,
            changes,
            up_to,
            grace: state.published.grace,
            files: Vec::new(),
            objects: Vec::new(),
        };
        for name in checkpoint.names()? {
            if is_table(table_of(&name).unwrap_or(&name)) || is_filter(&name) {
                version.objects.push(Self::object_of(&checkpoint, &name, &state.published)?);
            } else if name != "LOCK" {
                let bytes = checkpoint.read(&name, FileKind::Manifest)?.unwrap_or_default();
                if is_log(&name) && bytes.len() > MOST_INLINE_BYTES {
                    let (object, bytes) =
                        (new_name(&name, version.epoch.number)?, bytes.len() as u64);
                    version.objects.push(Object { file: name, name: object, bytes, kept_from: 0 });
                } else {
                    version.files.push((name, bytes));
                }
            }
        }
        version.objects.sort_by(|a, b| a.file.cmp(&b.file));
        state.prepared = Some(version);
        state.shape = shape;
        Ok(())
    }

    fn open_checkpoint(&self) -> Result<LocalDir> {
        let path = self.local.path.join(PUBLICATION);
        let dir = self.local.dir.open_dir(OsStr::new(PUBLICATION));
        let dir = dir.map_err(io_error("open", &path))?;
        Ok(LocalDir { dir, path, mode: self.local.mode })
    }

    /// The object of a file of the checkpoint: that which it has, or a new one.
    fn object_of(checkpoint: &LocalDir, name: &str, published: &Published) -> Result<Object> {
        let path = checkpoint.path.join(name);
        let failed = |error| io_error("open", &path)(error);
        let kind = if is_filter(name) { FileKind::Filter } else { FileKind::Table };
        let file = checkpoint.dir.open(OsStr::new(name), kind).map_err(failed)?;
        if let Some(table) = table_of(name) {
            let stub = Stub::open(file).map_err(failed)?;
            let (bytes, kept_from) = (stub.bytes, stub.tail_offset);
            return Ok(Object { file: table.to_owned(), name: stub.object, bytes, kept_from });
        }
        let bytes = file.length().map_err(failed)?;
        let known = published.object_of(name).filter(|known| known.bytes == bytes);
        let epoch = published.epoch.number;
        if is_filter(name) {
            // A generation of a table's filter is written once.
            let object =
                known.map_or_else(|| new_name(name, epoch), |known| Ok(known.name.clone()))?;
            return Ok(Object { file: name.to_owned(), name: object, bytes, kept_from: 0 });
        }
        let layout = TableLayout::read(&*file, bytes, &path)?;
        let new = object_name(name, epoch, layout.random());
        // The epoch in the name is that of the first publication.
        let is_same = |known: &&Object| known.name.rsplit('-').next() == new.rsplit('-').next();
        let object = known.filter(is_same).map_or(new, |known| known.name.clone());
        Ok(Object { file: name.to_owned(), name: object, bytes, kept_from: layout.tail_offset() })
    }

    /// Uploads what the prepared version has and the published one has not, and creates its manifest. False if an earlier
    /// version of this writer was found under its number: then another one is to be prepared.
    fn finish(&self, state: &mut State) -> Result<bool> {
        let published = self.try_finish(state);
        if let Err(Error::Store(_)) = published {
            // A local file failed. The next version is made anew, also if nothing changes until then.
            state.prepared = None;
            state.shape = <_>::default();
        }
        published
    }

    fn try_finish(&self, state: &mut State) -> Result<bool> {
        let Some(version) = &state.prepared else { return Ok(true) };
        let checkpoint = self.open_checkpoint()?;
        let mut uploads = Vec::new();
        for object in &version.objects {
            let is_published =
                state.published.objects.iter().any(|published| published.name == object.name);
            if is_published {
                continue;
            }
            let kind = kind_of(&object.file).unwrap_or(FileKind::Filter);
            let path = checkpoint.path.join(&object.file);
            match checkpoint.dir.open(OsStr::new(&object.file), kind) {
                Ok(file) => uploads.push(Upload { object: object.clone(), file, path }),
                // A stub is the proof that its object is there.
                Err(error)
                    if error.kind() == std::io::ErrorKind::NotFound && is_table(&object.file) => {}
                Err(error) => return Err(io_error("open", &path)(error).into()),
            }
        }
        let (bucket, manifest) = (self.bucket.clone(), version.clone());
        let other = self.while_running(async move {
            let uploads = uploads.into_iter().map(|upload| upload.run(bucket.clone()));
            futures_util::stream::iter(uploads)
                .buffer_unordered(UPLOADS_AT_ONCE)
                .try_collect::<()>()
                .await?;
            manifests::create(&bucket, &manifest).await
        })?;
        if let Some(other) = other.as_ref().filter(|other| other.epoch == version.epoch) {
            self.record(other)?;
            state.dropped.note(&state.published, other);
            state.published = other.clone();
            state.prepared = None;
            state.shape = <_>::default();
            return Ok(false);
        }
        if let Some(other) = other {
            return Err(Error::Fenced {
                directory: self.local.path.clone(),
                epoch: version.epoch.number,
                newest: other.epoch.number,
                unpublished: self
                    .db
                    .latest_sequence_number()
                    .saturating_sub(state.published.changes),
            });
        }
        self.record(version)?;
        if let Some(version) = state.prepared.take() {
            state.dropped.note(&state.published, &version);
            state.published = version;
        }
        self.published(&state.published)?;
        self.remove_checkpoint()?;
        Ok(true)
    }

    /// Runs work that [`stop`](Self::stop) aborts.
    fn while_running<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let pending = {
            let mut status = lock(&self.status);
            if let Some(error) = &status.ended {
                return Err(error.clone());
            }
            let pending = self.bucket.runtime.begin(work)?;
            status.running.retain(|running| !running.is_finished());
            status.running.push(pending.aborter());
            pending
        };
        pending.wait()?
    }

    fn record(&self, version: &Published) -> Result<()> {
        let bytes = version.encode();
        self.local.write(PUBLISHED, FileKind::Manifest, |file| file.append(&bytes))
    }

    /// Ends the wait of writers, and lets tables beyond the local bytes go.
    fn published(&self, version: &Published) -> Result<()> {
        {
            let mut status = lock(&self.status);
            status.manifest = version.number;
            status.changes = version.changes;
            status.at = Instant::now();
        }
        self.files.backlog().remove(version.objects.iter().map(|object| OsStr::new(&object.file)));
        let mut kept = 0;
        // L0 first.
        for table in self.db.tables() {
            let Some(object) = version.object_of(&format!("{:06}.sst", table.id)) else { continue };
            kept += object.bytes;
            if kept > self.rules.local_bytes {
                self.files.replace_by_stub(&self.store, object)?;
            }
        }
        Ok(())
    }

    /// Removes the checkpoint, also one that an earlier process left.
    fn remove_checkpoint(&self) -> Result<()> {
        let is_one = |name: &String| is_publication(name);
        for name in self.local.names()?.into_iter().filter(is_one) {
            let path: PathBuf = self.local.path.join(&name);
            let remove = || {
                let dir = self.local.dir.open_dir(OsStr::new(&name))?;
                for file in dir.list()? {
                    dir.remove(&file, FileKind::Current)?;
                }
                self.local.dir.remove(OsStr::new(&name), FileKind::Directory)
            };
            remove().map_err(io_error("remove", &path))?;
        }
        Ok(())
    }
}

/// The name of a new object for a file without random bytes of its own.
fn new_name(file: &str, epoch: u64) -> Result<String> {
    let mut random = [0; 16];
    getrandom::fill(&mut random)?;
    Ok(object_name(file, epoch, random))
}

/// A file that is to become an object.
struct Upload {
    object: Object,
    file: Arc<dyn VfsFile>,
    path: PathBuf,
}

impl Upload {
    async fn run(self, bucket: Bucket) -> Result<()> {
        let Self { object, file, path } = self;
        let read_part = |range: Range<u64>| {
            let length = (range.end - range.start) as usize;
            let read = file.read_new(length, range.start);
            let read = read.map_err(io_error(&format!("read at offset {}", range.start), &path))?;
            Ok(Bytes::from(read))
        };
        bucket.upload(&object.name, object.bytes, read_part).await
    }
}
