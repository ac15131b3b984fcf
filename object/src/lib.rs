//! A criba store whose SSTables are objects in a bucket. Filters and indexes stay on the local disk and in memory: a
//! lookup of an absent key whose filters say "no" makes no request.
//!
//! [`open`] gives the one writer, [`open_reader`] readers on any number of machines.
//!
//! **On a machine whose disk goes away, what was not published is gone.** A write is durable on the local disk as in
//! any criba store. It is in the bucket when [`ObjectDb::sync_remote`] returns, or after the next publication.
//!
//! ```
//! # let dir = tempfile::tempdir()?;
//! use std::sync::Arc;
//!
//! use criba_object::object_store::{ObjectStore, memory::InMemory};
//! use criba_object::{Options, open, open_reader};
//!
//! let bucket: Arc<dyn ObjectStore> = Arc::new(InMemory::new()); // or "s3://bucket/path"
//! let writer = open(bucket.clone(), dir.path().join("writer"), Options::new())?;
//! writer.put("seen", "yes")?;
//! writer.sync_remote()?;
//!
//! let reader = open_reader(bucket, dir.path().join("reader"), Options::new())?;
//! assert_eq!(reader.get("seen")?.unwrap(), "yes");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Threads and runtimes
//! Calls block, as those of `criba` do; a lookup may wait for a request. Requests run on two threads of this
//! package's own, so every call, and the last drop, also works on a thread of an async runtime. It blocks that thread:
//! use `spawn_blocking` there.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod backlog;
mod bucket;
mod epoch;
mod error;
mod files;
mod garbage;
mod install;
mod local;
mod location;
mod manifests;
mod options;
mod published;
mod publisher;
mod reader;
mod record;
mod remote_table;
mod removal;
mod requests;
mod runtime;
mod stub;
mod writer;

use std::path::Path;

pub use error::{Error, Result};
pub use garbage::Garbage;
pub use location::Location;
pub use object_store;
pub use options::Options;
pub use publisher::Publications;
pub use reader::{ObjectReader, open_pinned, open_reader};
pub use removal::Unneeded;
pub use requests::{Purpose, RequestCounts};
pub use writer::{ObjectDb, open, open_local};

use bucket::{Bucket, Patience};
use local::{LocalDir, io_error};
use runtime::Runtime;

fn connect(location: Location, options: &Options) -> Result<Bucket> {
    let (store, path) = location.connect()?;
    let runtime =
        Runtime::start().map_err(io_error("start threads for requests", Path::new("")))?;
    let patience = Patience { request: options.request_timeout, all: options.retry_for };
    Ok(Bucket::new(store, path, runtime, patience))
}

/// The local directory, and the store's in it.
fn directories(options: &Options, local: &Path) -> Result<(LocalDir, LocalDir)> {
    let path = std::path::absolute(local).map_err(io_error("find the full path", local))?;
    let local = LocalDir::make(&options.vfs, &path, options.file_mode)?;
    let store = LocalDir::make(&options.vfs, &path.join("store"), options.file_mode)?;
    Ok((local, store))
}
