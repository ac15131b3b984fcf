//! The one writer of a store in a bucket.

use std::fmt;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use criba::vfs::FileKind;
use criba::{Db, ReadOnlyDb};

use crate::bucket::Bucket;
use crate::epoch::{self, Writer};
use crate::error::{Error, Result};
use crate::files::TableFiles;
use crate::install::install;
use crate::local::{LocalDir, io_error};
use crate::location::Location;
use crate::manifests;
use crate::options::Options;
use crate::published::Published;
use crate::publisher::{Publications, Publisher, Rules, read_published};
use crate::removal::{pin, unpin};
use crate::requests::{Purpose, RequestCounts};
use crate::{connect, directories};

/// The writer of a store in a bucket: a [`Db`], from [`open`], whose finished tables become objects.
///
/// Writes are durable on the local disk first, as [`criba::Durability`] says. A thread publishes:
/// [`Options::publish_every`]. After a publication, tables beyond [`Options::local_bytes`] leave the local disk; a
/// lookup then makes a request for each of their blocks that it reads, and a compaction one for each 4 MiB.
///
/// When another writer opens the store, this one fails at its next publication with [`Error::Fenced`]: its [`Db`] is
/// closed, and the local directory stays as it is.
///
/// Dropping it ends the thread, without a publication; clones of the `Db` then go on locally.
pub struct ObjectDb {
    publisher: Arc<Publisher>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for ObjectDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ObjectDb").field(&self.publisher.bucket()).finish()
    }
}

impl Deref for ObjectDb {
    type Target = Db;

    fn deref(&self) -> &Db {
        self.publisher.db()
    }
}

/// Opens the store in a bucket for writing, or makes one in an empty bucket. The earlier writer is fenced.
///
/// `local` is the directory of this writer: the store with its log, and the stubs of tables that are only in the
/// bucket. It is made if it is missing, in a directory that exists. A new or emptied directory gets the newest
/// published version.
///
/// Cost: a listing, a request for the newest manifest, one to begin the epoch; with an empty `local` one for each
/// table, sixteen at once.
///
/// # Errors
/// [`Error::Fenced`]: another writer has opened the store since this directory was used; its unpublished changes stay
/// there. [`Error::OtherBucket`]; [`Error::Request`]; [`Error::Damaged`]; [`Error::Store`].
#[expect(clippy::needless_pass_by_value, reason = "options are given away, as to a store")]
pub fn open(
    location: impl Into<Location>,
    local: impl AsRef<Path>,
    options: Options,
) -> Result<ObjectDb> {
    let bucket = connect(location.into(), &options)?;
    let (local, store) = directories(&options, local.as_ref())?;
    let lock = local.lock()?;
    local.remove_temporary()?;
    let limit = options.backlog_bytes;
    let files = TableFiles::new(options.vfs.clone(), bucket.clone(), store.path.clone(), limit);
    files.keep(lock);
    let store_options = options.store.clone().vfs(files.clone());

    let grace = options.grace.as_millis().try_into().unwrap_or(u64::MAX);
    let begun = begin_epoch(&bucket, (&local, &store), &store_options, grace)?;
    let (version, has_local) = begun;
    if version.has_store() && !has_local {
        install(&bucket, &store, &version, None)?;
    }
    store.remove_temporary()?;
    let db = store_options.open(&store.path)?;
    if db.latest_sequence_number() < version.up_to {
        return Err(Error::OtherBucket {
            directory: local.path,
            bucket: bucket.to_string(),
            found: format!(
                "an older copy of it, with {} of {} changes",
                db.latest_sequence_number(),
                version.up_to
            ),
        });
    }
    let rules = Rules { local_bytes: options.local_bytes, interval: options.publish_every };
    let publisher = Arc::new(Publisher::new(bucket, files, db, (local, store), version, rules)?);
    let of_thread = Arc::clone(&publisher);
    let thread = std::thread::Builder::new()
        .name("criba-publish".into())
        .spawn(move || of_thread.run())
        .map_err(io_error("start a thread", Path::new("")))?;
    Ok(ObjectDb { publisher, thread: Some(thread) })
}

/// Opens what the directory of a writer has, for reading only: also of one whose epoch has ended, to find what it did not
/// publish. Changes nothing there. Tables that are only in the bucket are read from it, if they are still there.
///
/// # Errors
/// [`Error::Store`]; [`Error::Url`].
pub fn open_local(
    location: impl Into<Location>,
    local: impl AsRef<Path>,
    options: Options,
) -> Result<ReadOnlyDb> {
    let bucket = connect(location.into(), &options)?;
    let store = std::path::absolute(local.as_ref())
        .map_err(io_error("find the full path", local.as_ref()))?;
    let store = store.join("store");
    let files = TableFiles::new(options.vfs, bucket, store.clone(), u64::MAX);
    Ok(options.store.vfs(files).open_read_only(store)?)
}

/// Begins the next epoch. Returns the published version, and whether the local directory has it, and perhaps more.
fn begin_epoch(
    bucket: &Bucket,
    (local, store): (&LocalDir, &LocalDir),
    options: &criba::Options,
    grace: u64,
) -> Result<(Published, bool)> {
    loop {
        let of_task = bucket.clone();
        let newest = bucket.runtime.wait(async move { manifests::newest(&of_task, None).await })?;
        let writer = Writer::read(local)?;
        // Without a record a reader made the directory, or nothing is there.
        let has_store = store.read("CURRENT", FileKind::Current)?.is_some();
        // Nor is the directory local before it was installed once.
        let was_published = read_published(local)?.is_some();
        let has_local = writer.is_some() && has_store && was_published;
        let found = newest.as_ref().map(|newest| newest.epoch);
        if let Some(writer) = writer.filter(|_| has_local)
            && (!writer.is_of(found) || found.is_none())
        {
            return Err(match newest {
                Some(newest) => Error::Fenced {
                    directory: local.path.clone(),
                    epoch: writer.number(),
                    newest: newest.epoch.number,
                    unpublished: unpublished(local, store, options)?,
                },
                None => Error::OtherBucket {
                    directory: local.path.clone(),
                    bucket: bucket.to_string(),
                    found: format!("epoch {} of a store, and no manifest there", writer.number()),
                },
            });
        }
        if let Some(version) = epoch::begin(bucket, local, newest, grace, has_local)? {
            return Ok((version, has_local));
        }
    }
}

/// How many changes of a local directory are not published, at most.
fn unpublished(local: &LocalDir, store: &LocalDir, options: &criba::Options) -> Result<u64> {
    let published = read_published(local)?.map_or(0, |published| published.changes);
    let db = options.clone().open_read_only(&store.path)?;
    Ok(db.latest_sequence_number().saturating_sub(published))
}

impl ObjectDb {
    /// Publishes: when it returns, all that was committed before the call is in the bucket.
    ///
    /// Cost: a flush; a request for each new table of up to 8 MiB, two at once, and for each 8 MiB of larger ones; one
    /// for the manifest. None if nothing was changed.
    ///
    /// # Errors
    /// [`Error::Fenced`]; [`Error::Request`]: nothing is lost, and the next call goes on; [`Error::Store`];
    /// [`Error::Closed`].
    pub fn sync_remote(&self) -> Result<()> {
        self.publisher.publish()
    }

    /// Publishes, and pins that version: it stays in the bucket until [`unpin`](Self::unpin), for
    /// [`open_pinned`](crate::open_pinned). Copies nothing.
    ///
    /// # Errors
    /// As [`sync_remote`](Self::sync_remote), and [`ObjectReader::pin`](crate::ObjectReader::pin).
    pub fn pin(&self, name: &str) -> Result<()> {
        self.publisher.publish()?;
        let (bucket, name) = (self.publisher.bucket().clone(), name.to_owned());
        let manifest = self.publications().manifest;
        self.publisher.bucket().runtime.wait(async move { pin(&bucket, &name, manifest).await })
    }

    /// Removes a pin, if it is there. One request.
    ///
    /// # Errors
    /// [`Error::Request`].
    pub fn unpin(&self, name: &str) -> Result<()> {
        let (bucket, name) = (self.publisher.bucket().clone(), name.to_owned());
        self.publisher.bucket().runtime.wait(async move { unpin(&bucket, &name).await })
    }

    /// What is in the bucket, and what is not yet. No I/O.
    pub fn publications(&self) -> Publications {
        self.publisher.publications()
    }

    /// The requests since the opening.
    pub fn requests(&self, purpose: Purpose) -> RequestCounts {
        self.publisher.bucket().requests.counts(purpose)
    }

    /// Publishes, then closes the store.
    ///
    /// # Errors
    /// As [`sync_remote`](Self::sync_remote): then the store is closed all the same, and the local directory has what
    /// is not published. As [`Db::close`].
    pub fn close(mut self) -> Result<()> {
        let published = self.publisher.publish();
        self.end_thread();
        let closed = self.publisher.db().clone().close();
        published.and(closed.map_err(Error::from))
    }

    fn end_thread(&mut self) {
        self.publisher.stop();
        if let Some(thread) = self.thread.take() {
            // It panics only if it has a defect; the drop must not add another panic.
            let _ = thread.join();
        }
    }
}

impl Drop for ObjectDb {
    fn drop(&mut self) {
        self.end_thread();
    }
}
