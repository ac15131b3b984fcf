//! A store in a bucket that is only read.

use std::fmt;
use std::ops::Deref;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use criba::ReadOnlyDb;

use crate::bucket::Bucket;
use crate::epoch::WRITER;
use crate::error::{Error, Result};
use crate::files::TableFiles;
use crate::install::install;
use crate::local::LocalDir;
use crate::location::Location;
use crate::manifests;
use crate::options::Options;
use crate::published::Published;
use crate::removal::{pin, pinned_version, unpin};
use crate::requests::{Purpose, RequestCounts};
use crate::{connect, directories};

/// A store in a bucket that is only read: a [`ReadOnlyDb`], from [`open_reader`]. It shows the newest version that was
/// published when it was opened, until [`refresh`](Self::refresh).
///
/// Filters and indexes are in the local directory, and in memory. A lookup makes a request for each block that it
/// reads, a scan for each range of up to 4 MiB.
pub struct ObjectReader {
    db: ReadOnlyDb,
    bucket: Bucket,
    store: LocalDir,
    shown: Mutex<Published>,
}

impl fmt::Debug for ObjectReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ObjectReader").field(&self.bucket).finish()
    }
}

impl Deref for ObjectReader {
    type Target = ReadOnlyDb;

    fn deref(&self) -> &ReadOnlyDb {
        &self.db
    }
}

/// Opens the newest published version of the store in a bucket, for reading only. `local` is a directory of this reader
/// alone: it keeps filters and indexes for the next opening. It is made if it is missing, in a directory that exists.
///
/// Cost: a listing, a request for the manifest, and one for each table whose filter and index are not in `local`,
/// sixteen at once: three round trips, and more for more tables.
///
/// # Errors
/// [`Error::NothingPublished`]; [`Error::OtherBucket`]: `local` is the directory of a writer; [`Error::Request`];
/// [`Error::Damaged`]; [`Error::Store`].
pub fn open_reader(
    location: impl Into<Location>,
    local: impl AsRef<Path>,
    options: Options,
) -> Result<ObjectReader> {
    let bucket = connect(location.into(), &options)?;
    open_version(bucket, None, local.as_ref(), options)
}

/// Opens this version; `None` for the newest.
fn open_version(
    bucket: Bucket,
    version: Option<Published>,
    local: &Path,
    options: Options,
) -> Result<ObjectReader> {
    let (local, store) = directories(&options, local)?;
    refuse_writers(&bucket, &local)?;
    let lock = local.lock()?;
    // Again: one may have come and gone meanwhile.
    refuse_writers(&bucket, &local)?;
    let version = match version {
        None => newest(&bucket, None)?,
        pinned => pinned,
    };
    let version = version.filter(Published::has_store);
    let version = version.ok_or_else(|| Error::NothingPublished { bucket: bucket.to_string() })?;
    install(&bucket, &store, &version, None)?;
    let files = TableFiles::new(options.vfs, bucket.clone(), store.path.clone(), u64::MAX);
    files.keep(lock);
    let db = options.store.vfs(files).open_read_only(&store.path)?;
    Ok(ObjectReader { db, bucket, store, shown: Mutex::new(version) })
}

/// As [`open_reader`], the version that a [pin](crate::ObjectDb::pin) names. A [`refresh`](ObjectReader::refresh) shows the
/// newest one.
///
/// # Errors
/// As [`open_reader`]; [`Error::Request`]: there is no such pin.
pub fn open_pinned(
    location: impl Into<Location>,
    pin: &str,
    local: impl AsRef<Path>,
    options: Options,
) -> Result<ObjectReader> {
    let bucket = connect(location.into(), &options)?;
    let (of_task, pin) = (bucket.clone(), pin.to_owned());
    let version = bucket.runtime.wait(async move { pinned_version(&of_task, &pin).await })?;
    open_version(bucket, Some(version), local.as_ref(), options)
}

/// Refuses the directory of a writer: it may have changes that are nowhere else.
fn refuse_writers(bucket: &Bucket, local: &LocalDir) -> Result<()> {
    if !local.names()?.iter().any(|name| name == WRITER) {
        return Ok(());
    }
    let (directory, found) = (local.path.clone(), "that of a writer".to_owned());
    Err(Error::OtherBucket { directory, bucket: bucket.to_string(), found })
}

fn newest(bucket: &Bucket, after: Option<u64>) -> Result<Option<Published>> {
    let of_task = bucket.clone();
    bucket.runtime.wait(async move { manifests::newest(&of_task, after).await })
}

impl ObjectReader {
    /// Shows the newest published version. Returns whether anything changed. Live snapshots and scans do not change.
    ///
    /// Cost: one request without news; else a second one, and one for each new table, sixteen at once.
    ///
    /// # Errors
    /// As [`open_reader`]. Then the reader shows what it showed before.
    pub fn refresh(&self) -> Result<bool> {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(version) = newest(&self.bucket, Some(shown.number))? else { return Ok(false) };
        install(&self.bucket, &self.store, &version, Some(&shown))?;
        let has_changed = self.db.refresh()?;
        *shown = version;
        Ok(has_changed)
    }

    /// Pins the version that is shown: it stays in the bucket, also beyond the grace time, until [`unpin`](Self::unpin).
    /// Copies nothing. Fails if a later version was published more than half the grace time ago.
    ///
    /// Cost: about six requests.
    ///
    /// # Errors
    /// [`Error::Damaged`]: the name is not plain, or of another pin, or the version is too old; [`Error::Request`].
    pub fn pin(&self, name: &str) -> Result<()> {
        let (bucket, name) = (self.bucket.clone(), name.to_owned());
        let manifest = self.manifest();
        self.bucket.runtime.wait(async move { pin(&bucket, &name, manifest).await })
    }

    /// Removes a pin, if it is there. One request.
    ///
    /// # Errors
    /// [`Error::Request`].
    pub fn unpin(&self, name: &str) -> Result<()> {
        let (bucket, name) = (self.bucket.clone(), name.to_owned());
        self.bucket.runtime.wait(async move { unpin(&bucket, &name).await })
    }

    /// The number of the manifest that is shown.
    pub fn manifest(&self) -> u64 {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).number
    }

    /// The requests since the opening.
    pub fn requests(&self, purpose: Purpose) -> RequestCounts {
        self.bucket.requests.counts(purpose)
    }
}
