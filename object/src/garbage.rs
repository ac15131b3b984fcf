//! What earlier writers left in a bucket.

use crate::bucket::Bucket;
use crate::connect;
use crate::error::Result;
use crate::location::Location;
use crate::options::Options;
use crate::removal::{Unneeded, unneeded};

/// Objects that nothing needs: of epochs before that of the newest manifest, and named by no manifest that is the newest,
/// pinned, or was the newest at some moment within the grace time. What the present writer drops, it removes itself.
#[derive(Debug)]
pub struct Garbage {
    bucket: Bucket,
    objects: Vec<Unneeded>,
}

impl Garbage {
    /// Finds such objects. Removes nothing. The grace time is that of the newest manifest.
    ///
    /// Cost: listings, and a request for each manifest that is there.
    ///
    /// # Errors
    /// [`Error::NothingPublished`](crate::Error::NothingPublished); [`Error::Request`](crate::Error::Request);
    /// [`Error::Damaged`](crate::Error::Damaged).
    pub fn find(location: impl Into<Location>, options: &Options) -> Result<Self> {
        let bucket = connect(location.into(), options)?;
        let of_task = bucket.clone();
        let objects = bucket.runtime.wait(async move { unneeded(&of_task).await })?;
        Ok(Self { bucket, objects })
    }

    /// The objects, by name.
    pub fn objects(&self) -> &[Unneeded] {
        &self.objects
    }

    /// Removes the objects.
    ///
    /// # Errors
    /// [`Error::Request`](crate::Error::Request): some may be left.
    pub fn remove(self) -> Result<()> {
        let Self { bucket, objects } = self;
        let of_task = bucket.clone();
        bucket.runtime.wait(async move {
            for object in objects {
                of_task.remove(&object.name).await?;
            }
            Ok(())
        })
    }
}
