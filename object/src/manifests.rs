//! Manifest objects: the newest one, and a next one.
//!
//! Manifests are numbered without gaps. A manifest is created only if there is none of its number, so of two writers
//! that publish after the same manifest one succeeds. Any later writer begins its epoch with a manifest of its own,
//! which is never removed: so a writer of an earlier epoch finds it at its next number, however late it comes.

use crate::bucket::{Bucket, Created};
use crate::error::Result;
use crate::published::{MANIFESTS, MAX_MANIFEST_BYTES, Published, manifest_name, manifest_number};
use crate::record::{self, damaged};
use crate::requests::Purpose;

/// The newest manifest behind the number `after`; `None` if there is none. One request without news, else two.
pub(crate) async fn newest(bucket: &Bucket, after: Option<u64>) -> Result<Option<Published>> {
    loop {
        let after = after.map(manifest_name);
        let names = bucket.list(MANIFESTS, after.as_deref()).await?;
        let Some(number) = names.iter().filter_map(|found| manifest_number(&found.name)).max()
        else {
            return Ok(None);
        };
        match read(bucket, number).await {
            // Removed since, because a later one is the newest.
            Err(error) if error.is_missing() => {}
            found => return found.map(Some),
        }
    }
}

/// Reads a manifest.
pub(crate) async fn read(bucket: &Bucket, number: u64) -> Result<Published> {
    let name = format!("{MANIFESTS}/{}", manifest_name(number));
    let decode = |bytes: &[u8]| Published::decode(bytes, &name);
    let manifest = record::read(bucket, &name, MAX_MANIFEST_BYTES, decode).await?;
    if manifest.number != number {
        let found = format!("number {}", manifest.number);
        return Err(damaged(&name, 0, &format!("the manifest of number {number}"), &found));
    }
    Ok(manifest)
}

/// Creates a manifest, which then is the newest. If there is another one of its number, returns that. After an error
/// it may be there: create the same one again.
pub(crate) async fn create(bucket: &Bucket, manifest: &Published) -> Result<Option<Published>> {
    let bytes = manifest.encode();
    let created = bucket.create(Purpose::Publications, &manifest.object_name(), bytes).await?;
    if created == Created::Now {
        return Ok(None);
    }
    // The answer to an earlier attempt may have been lost.
    let found = read(bucket, manifest.number).await?;
    Ok((found != *manifest).then_some(found))
}
