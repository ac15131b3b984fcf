//! Entries that expire. See format.md, "Expiry".

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use std::time::{Duration, SystemTime};

use crate::key::{EXPIRY_BYTES, EntryKind, EntryRef, Seq};
use crate::value::Value;

/// A time in milliseconds since the beginning of 1970.
pub(crate) type Millis = u64;

/// The expiry of what never expires. A batch alone has it: without it, an entry takes the default of the store.
pub(crate) const NEVER: Millis = Millis::MAX;
/// The bit of a time to live. A batch alone has it, until it is written.
const TTL: Millis = 1 << 63;

/// When a key expires. From then on it is absent for every call. Times are whole milliseconds, rounded up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Expiry {
    /// The key stays until it is deleted or overwritten, whatever [`Options::default_ttl`] is.
    ///
    /// [`Options::default_ttl`]: crate::Options::default_ttl
    Never,
    /// The key is absent from this time on.
    At(SystemTime),
    /// The key is absent when this time has passed since its write, by the [time of the store](crate::Db::now).
    In(Duration),
}

impl From<SystemTime> for Expiry {
    fn from(time: SystemTime) -> Self {
        Self::At(time)
    }
}

/// `None` is never: what reads return.
impl From<Option<SystemTime>> for Expiry {
    fn from(expiry: Option<SystemTime>) -> Self {
        expiry.map_or(Self::Never, Self::At)
    }
}

impl From<Duration> for Expiry {
    fn from(ttl: Duration) -> Self {
        Self::In(ttl)
    }
}

impl Expiry {
    /// What a batch has for it.
    pub(crate) fn in_batch(self) -> Millis {
        match self {
            Self::Never => NEVER,
            Self::At(time) => rounded_up(since_1970(time)).min(TTL - 1),
            Self::In(ttl) => ttl_in_batch(rounded_up(ttl)),
        }
    }

    pub(crate) fn of_batch(expiry: Millis) -> Self {
        match expiry {
            NEVER => Self::Never,
            TTL.. => Self::In(Duration::from_millis(expiry - TTL)),
            _ => system_time(expiry).into(),
        }
    }
}

/// The time of a stored expiry; `None` for [`NEVER`].
pub(crate) fn system_time(expiry: Millis) -> Option<SystemTime> {
    let time = (expiry != NEVER).then(|| Duration::from_millis(expiry))?;
    SystemTime::UNIX_EPOCH.checked_add(time)
}

/// What a batch has for a time to live.
pub(crate) fn ttl_in_batch(ttl: Millis) -> Millis {
    TTL + ttl.min(TTL - 2)
}

/// The expiry that a write at this time stores for what a batch has; `None` for [`NEVER`].
pub(crate) fn written_at(now: Millis, in_batch: Millis) -> Option<Millis> {
    match in_batch {
        NEVER => None,
        TTL.. => Some((now + (in_batch - TTL)).min(TTL - 1)),
        expiry => Some(expiry),
    }
}

/// Zero for an earlier time.
pub(crate) fn since_1970(time: SystemTime) -> Duration {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

pub(crate) fn rounded_up(time: Duration) -> Millis {
    Millis::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(Millis::MAX)
}

/// What a reader sees: the entries up to a number, at a time. The time is 0 before the store has expiring entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Moment {
    pub(crate) seq: Seq,
    pub(crate) time: Millis,
}

impl<'a> EntryRef<'a> {
    /// The expiry, and what it gives its key; `None` for a tombstone.
    pub(crate) fn put(&self) -> Option<(Option<Millis>, &'a [u8])> {
        match self.kind {
            EntryKind::Delete => None,
            EntryKind::Put => Some((None, self.value)),
            EntryKind::Expiring => {
                let (expiry, value) = self.value.split_first_chunk()?;
                Some((Some(Millis::from_le_bytes(*expiry)), value))
            }
        }
    }

    pub(crate) fn expiry(&self) -> Option<Millis> {
        self.put()?.0
    }

    /// The value that the entry gives its key at a time.
    pub(crate) fn value_at(&self, time: Millis) -> Option<&'a [u8]> {
        let (expiry, value) = self.put()?;
        (!is_over(expiry, time)).then_some(value)
    }
}

pub(crate) fn is_over(expiry: Option<Millis>, time: Millis) -> bool {
    expiry.is_some_and(|expiry| expiry <= time)
}

/// What an entry stores for its key, to keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) kind: EntryKind,
    pub(crate) value: Value,
}

impl Stored {
    pub(crate) fn expiry(&self) -> Option<Millis> {
        EntryRef { key: &[], seq: 0, kind: self.kind, value: &self.value }.expiry()
    }

    #[inline]
    pub(crate) fn is_over(&self, time: Millis) -> bool {
        self.kind == EntryKind::Expiring && is_over(self.expiry(), time)
    }

    /// Whether it gives its key a value at a time.
    #[inline]
    pub(crate) fn is_value_at(&self, time: Millis) -> bool {
        self.kind != EntryKind::Delete && !self.is_over(time)
    }

    /// As [`EntryRef::value_at`].
    #[inline]
    pub(crate) fn value_at(self, time: Millis) -> Option<Value> {
        self.is_value_at(time).then(|| self.into_value())
    }

    pub(crate) fn into_value_and_expiry(self) -> (Value, Option<SystemTime>) {
        let expiry = self.expiry().and_then(system_time);
        (self.into_value(), expiry)
    }

    /// The value, without an expiry before it.
    #[inline]
    pub(crate) fn into_value(self) -> Value {
        match self.kind {
            EntryKind::Expiring => self.value.without(EXPIRY_BYTES),
            EntryKind::Put | EntryKind::Delete => self.value,
        }
    }
}

/// The bytes that an expiring entry stores.
pub(crate) fn stored(expiry: Millis, value: &[u8]) -> Vec<u8> {
    [&expiry.to_le_bytes(), value].concat()
}
