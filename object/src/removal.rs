//! Which objects may go: none that a reader can still need.
//!
//! A reader holds a version for at most the grace time after another one is published; a pin holds it for longer. So an
//! object stays while it is named by the newest manifest, by a pinned one, or by one that was the newest at some moment
//! within the grace time. All times are the server's, of objects that it created: the newest manifest's stands for now,
//! which is earlier, and so keeps more.
//!
//! A pin is valid only if its manifest was the newest until half the grace time before the pin was written, or later. So
//! no pin that a removal does not see can be valid.
//!
//! The first manifest of each epoch stays for ever: writers of earlier epochs must find it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::bucket::{Bucket, Listed, ServerTime};
use crate::error::{Error, Result};
use crate::manifests;
use crate::published::{DIRECTORIES, MANIFESTS, Published, manifest_name, manifest_number};
use crate::record::{self, damaged};
use crate::requests::Purpose;
use crate::stub::stub_name;

const PINS: &str = "pins";
const FIRST_LINE: &str = "criba-object pin 1\n";
const MAX_PIN_BYTES: u64 = 1024;

#[derive(Debug, Serialize, Deserialize)]
struct Pin {
    manifest: u64,
}

/// The manifests of a bucket, with the times of their creation, and the newest one.
pub(crate) struct Timeline {
    times: BTreeMap<u64, ServerTime>,
    newest: Published,
    /// When the newest was created.
    now: ServerTime,
}

impl Timeline {
    pub(crate) async fn read(bucket: &Bucket) -> Result<Self> {
        loop {
            let listed = bucket.list(MANIFESTS, None).await?;
            let numbered = |found: &Listed| Some((manifest_number(&found.name)?, found.time));
            let times: BTreeMap<_, _> = listed.iter().filter_map(numbered).collect();
            let Some((&number, &now)) = times.last_key_value() else {
                return Err(Error::NothingPublished { bucket: bucket.to_string() });
            };
            match manifests::read(bucket, number).await {
                Err(error) if error.is_missing() => {} // removed, because a later one is the newest
                newest => return Ok(Self { newest: newest?, times, now }),
            }
        }
    }

    fn grace(&self) -> ServerTime {
        self.newest.grace.try_into().unwrap_or(ServerTime::MAX).min(ServerTime::MAX / 4)
    }

    /// When a manifest stopped to be the newest; `None` if it is. Long ago if the next one was removed since.
    fn end_of(&self, number: u64) -> Option<ServerTime> {
        let next = self.times.get(&(number + 1)).copied();
        if number >= self.newest.number { None } else { Some(next.unwrap_or(ServerTime::MIN / 4)) }
    }

    /// Whether a manifest was the newest at some moment within the grace time.
    pub(crate) fn is_recent(&self, number: u64) -> bool {
        self.end_of(number).is_none_or(|end| end + self.grace() >= self.now)
    }

    fn is_valid(&self, pin: &Pin, written: ServerTime) -> bool {
        self.times.contains_key(&pin.manifest)
            && self.end_of(pin.manifest).is_none_or(|end| written <= end + self.grace() / 2)
    }

    /// The manifests with a valid pin.
    pub(crate) async fn pinned(&self, bucket: &Bucket) -> Result<BTreeSet<u64>> {
        let mut pinned = BTreeSet::new();
        for found in bucket.list(PINS, None).await? {
            match read_pin(bucket, &found.name).await {
                Ok(pin) if self.is_valid(&pin, found.time) => _ = pinned.insert(pin.manifest),
                Ok(_) => {}
                Err(error) if error.is_missing() => {} // removed meanwhile
                Err(error) => return Err(error),
            }
        }
        Ok(pinned)
    }
}

async fn read_pin(bucket: &Bucket, name: &str) -> Result<Pin> {
    let object = format!("{PINS}/{name}");
    let decode = |bytes: &[u8]| record::decode(FIRST_LINE, bytes, &object);
    record::read(bucket, &object, MAX_PIN_BYTES, decode).await
}

/// Refuses the name of a pin that is not a plain one.
fn check_name(name: &str) -> Result<()> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    if !name.is_empty() && name.len() <= 200 && name.bytes().all(is_plain) {
        return Ok(());
    }
    let expected = "a name of letters, digits, - and _, at most 200";
    Err(damaged("the name of a pin", 0, expected, &format!("{name:?}")))
}

/// Pins a manifest, which was the newest a moment ago.
pub(crate) async fn pin(bucket: &Bucket, name: &str, manifest: u64) -> Result<()> {
    check_name(name)?;
    let object = format!("{PINS}/{name}");
    let bytes = record::encode(FIRST_LINE, &Pin { manifest }).into();
    let created = bucket.create(Purpose::Publications, &object, bytes).await?;
    let ours = read_pin(bucket, name).await?.manifest == manifest;
    if created == crate::bucket::Created::Before && !ours {
        return Err(damaged(&object, 0, "no pin of this name", "one of another version"));
    }
    let timeline = Timeline::read(bucket).await?;
    let pins = bucket.list(PINS, None).await?;
    let written = pins.iter().find(|found| found.name == name).map(|found| found.time);
    // This pin, not another one of the version, which may go earlier.
    if written.is_some_and(|written| timeline.is_valid(&Pin { manifest }, written)) {
        return Ok(());
    }
    bucket.remove(&object).await?;
    let expected = format!("manifest {manifest} to be the newest, or until lately");
    Err(damaged(&object, 0, &expected, "a much later one"))
}

/// Removes a pin. Its version goes with the next removal, if nothing else needs it.
pub(crate) async fn unpin(bucket: &Bucket, name: &str) -> Result<()> {
    check_name(name)?;
    bucket.remove(&format!("{PINS}/{name}")).await
}

/// The version that a pin names.
pub(crate) async fn pinned_version(bucket: &Bucket, name: &str) -> Result<Published> {
    check_name(name)?;
    let pin = read_pin(bucket, name).await?;
    manifests::read(bucket, pin.manifest).await
}

/// Whether a pin needs this manifest: its own, and the next one, which shows when that stopped to be the newest.
fn is_named_by(pinned: &BTreeSet<u64>, number: u64) -> bool {
    pinned.contains(&number) || pinned.contains(&number.saturating_sub(1))
}

/// What one writer's manifests dropped, and its manifests: oldest first.
#[derive(Debug, Default)]
pub(crate) struct Dropped {
    /// By the number of the manifest that has them no more.
    objects: BTreeMap<u64, Vec<String>>,
    /// Manifests of this writer but for its first.
    manifests: BTreeSet<u64>,
}

impl Dropped {
    /// Notes a publication of this writer.
    pub(crate) fn note(&mut self, before: &Published, after: &Published) {
        let named: BTreeSet<&str> = after.objects.iter().map(|object| &*object.name).collect();
        let gone = before.objects.iter().filter(|object| !named.contains(&*object.name));
        self.objects.insert(after.number, gone.map(|object| object.name.clone()).collect());
        self.manifests.insert(after.number);
    }

    /// Adds what was noted meanwhile.
    pub(crate) fn join(&mut self, other: Self) {
        self.objects.extend(other.objects);
        self.manifests.extend(other.manifests);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.objects.values().all(Vec::is_empty) && self.manifests.len() < 2
    }

    /// Removes what may go. What fails stays for the next time.
    /// Tables whose file or stub is among `in_use` are read by this process.
    pub(crate) async fn remove(
        &mut self,
        bucket: &Bucket,
        in_use: &BTreeSet<String>,
    ) -> Result<u64> {
        let timeline = Timeline::read(bucket).await?;
        let pinned = timeline.pinned(bucket).await?;
        let mut kept = BTreeSet::new();
        for &number in &pinned {
            kept.extend(manifests::read(bucket, number).await?.objects.into_iter().map(|o| o.name));
        }
        let mut removed = 0;
        // The version before this manifest, and all earlier ones, are out of use.
        while let Some((&number, names)) = self.objects.first_key_value()
            && !timeline.is_recent(number - 1)
        {
            if names
                .iter()
                .filter_map(|name| file_of(name))
                .any(|file| in_use.contains(&file) || in_use.contains(&stub_name(&file)))
            {
                break;
            }
            for name in names.iter().filter(|name| !kept.contains(*name)) {
                bucket.remove(name).await?;
                removed += 1;
            }
            self.objects.remove(&number);
        }
        let old = self.manifests.iter().copied().take_while(|&number| !timeline.is_recent(number));
        for number in old.collect::<Vec<_>>() {
            if !is_named_by(&pinned, number) {
                bucket.remove(&format!("{MANIFESTS}/{}", manifest_name(number))).await?;
            }
            self.manifests.remove(&number);
        }
        Ok(removed)
    }
}

/// The table of an object.
fn file_of(object: &str) -> Option<String> {
    let (number, _) = object.strip_prefix("tables/")?.split_once('-')?;
    Some(format!("{number}.sst"))
}

/// An object that nothing needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Unneeded {
    /// The name of the object.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
}

/// Objects of epochs before that of the newest manifest that no kept manifest names, and such manifests.
pub(crate) async fn unneeded(bucket: &Bucket) -> Result<Vec<Unneeded>> {
    // The objects first: what a later manifest names is uploaded before it.
    let mut found = Vec::new();
    for directory in DIRECTORIES {
        let listed = bucket.list(directory, None).await?;
        found.extend(listed.into_iter().map(|listed| (directory, listed)));
    }
    let timeline = Timeline::read(bucket).await?;
    let pinned = timeline.pinned(bucket).await?;
    let newest = timeline.newest.epoch.number;
    let (mut named, mut unneeded) = (BTreeSet::new(), Vec::new());
    let mut epoch_before = 0;
    let sizes = bucket.list(MANIFESTS, None).await?;
    for &number in timeline.times.keys() {
        let manifest = match manifests::read(bucket, number).await {
            Err(error) if error.is_missing() => continue,
            other => other?,
        };
        let is_first = manifest.epoch.number > epoch_before;
        epoch_before = manifest.epoch.number;
        if timeline.is_recent(number) || pinned.contains(&number) {
            named.extend(manifest.objects.into_iter().map(|object| object.name));
        } else if !is_first && !is_named_by(&pinned, number) && manifest.epoch.number < newest {
            let name = manifest_name(number);
            let size = sizes.iter().find(|found| found.name == name).map_or(0, |found| found.bytes);
            unneeded.push(Unneeded { name: format!("{MANIFESTS}/{name}"), bytes: size });
        }
    }
    for (directory, Listed { name, bytes, .. }) in found {
        let epoch = name.split('-').rev().nth(1).and_then(|epoch| epoch.parse::<u64>().ok());
        let is_old = epoch.is_some_and(|epoch| epoch < newest);
        let name = format!("{directory}/{name}");
        if is_old && !named.contains(&name) {
            unneeded.push(Unneeded { name, bytes });
        }
    }
    unneeded.sort();
    Ok(unneeded)
}
