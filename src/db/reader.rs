use std::time::SystemTime;

use super::keys::Keys;
use super::snapshot::Snapshot;
use crate::engine::scan::Range;
use crate::error::Result;
use crate::key_range::{KeyPrefix, KeyRange};
use crate::ledger::Explanation;
use crate::lookup::Membership;
use crate::value::Value;

/// The reads that [`Db`](crate::Db), [`Snapshot`](crate::Snapshot) and [`ReadOnlyDb`](crate::ReadOnlyDb) have
/// in common. Each has these methods of its own, which take any bytes as a key. The trait is for code that takes
/// any of the three, also as `&dyn Reader`; its keys are `&[u8]`, and its ranges references. A
/// [`Transaction`](crate::Transaction) is none, because its scans borrow it.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = criba::Db::open(dir.path().join("store"))?;
/// use criba::{Reader, Result};
///
/// fn count(store: &dyn Reader, prefix: &str) -> Result<usize> {
///     store.prefix(prefix.as_bytes()).try_fold(0, |sum, item| item.map(|_| sum + 1))
/// }
///
/// db.put("user/1", "")?;
/// let before = db.snapshot();
/// db.put("user/2", "")?;
/// assert_eq!((count(&before, "user/")?, count(&db, "user/")?), (1, 2));
///
/// let reader: &dyn Reader = &db;
/// assert_eq!(reader.range(&("user/2"..)).count(), 1);
/// # Ok::<(), criba::Error>(())
/// ```
///
/// # Errors
/// Each method fails as the method of [`Db`](crate::Db) with its name.
#[expect(clippy::missing_errors_doc, reason = "said once, for the whole trait")]
pub trait Reader {
    /// As [`Db::get`](crate::Db::get).
    fn get(&self, key: &[u8]) -> Result<Option<Value>>;

    /// As [`Db::get_with_expiry`](crate::Db::get_with_expiry).
    fn get_with_expiry(&self, key: &[u8]) -> Result<Option<(Value, Option<SystemTime>)>>;

    /// As [`Db::get_many`](crate::Db::get_many).
    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value>>>;

    /// As [`Db::explain`](crate::Db::explain).
    fn explain(&self, key: &[u8]) -> Result<Explanation>;

    /// As [`Db::may_contain`](crate::Db::may_contain).
    fn may_contain(&self, key: &[u8]) -> Result<Membership>;

    /// As [`Db::approximate_len`](crate::Db::approximate_len).
    fn approximate_len(&self, bounds: &dyn KeyRange) -> Result<u64>;

    /// As [`Db::range`](crate::Db::range).
    fn range(&self, bounds: &dyn KeyRange) -> Range;

    /// As [`Db::snapshot`](crate::Db::snapshot).
    fn snapshot(&self) -> Snapshot;

    /// As [`Db::contains`](crate::Db::contains).
    fn contains(&self, key: &[u8]) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// As [`Db::prefix`](crate::Db::prefix).
    fn prefix(&self, prefix: &[u8]) -> Range {
        self.range(&KeyPrefix::new(prefix))
    }

    /// As [`Db::iter`](crate::Db::iter).
    fn iter(&self) -> Range {
        self.range(&..)
    }

    /// As [`Db::keys`](crate::Db::keys).
    fn keys(&self) -> Keys {
        Keys(self.iter())
    }

    /// As [`Db::first`](crate::Db::first).
    fn first(&self) -> Result<Option<(Value, Value)>> {
        self.iter().next().transpose()
    }

    /// As [`Db::last`](crate::Db::last).
    fn last(&self) -> Result<Option<(Value, Value)>> {
        self.iter().next_back().transpose()
    }
}

/// Implements [`Reader`] for types that have `at`, which reads as of one moment, and `scan`. Used above this module,
/// which must not import its users.
macro_rules! implement_reader {
    ($($store:ty),*) => {$(
        impl Reader for $store {
            #[inline]
            fn get(&self, key: &[u8]) -> Result<Option<Value>> {
                self.lookup(|lookups, view, when| lookups.get(view, when, key, &mut ()))
            }

            fn get_with_expiry(&self, key: &[u8]) -> Result<Option<(Value, Option<SystemTime>)>> {
                self.lookup(|lookups, view, when| {
                    lookups.find(view, when, key, &mut (), Stored::into_value_and_expiry)
                })
            }

            fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
                <$store>::get_many(self, keys)
            }

            fn explain(&self, key: &[u8]) -> Result<Explanation> {
                self.lookup(|lookups, view, when| lookups.explain(view, when, key))
            }

            fn may_contain(&self, key: &[u8]) -> Result<Membership> {
                self.lookup(|lookups, view, when| Ok(lookups.may_contain(view, when, key)))
            }

            fn approximate_len(&self, bounds: &dyn KeyRange) -> Result<u64> {
                self.at(|_, view, _| Ok(view.approximate_len(bounds.bounds())))
            }

            fn range(&self, bounds: &dyn KeyRange) -> Range {
                Range::new(self.scan(bounds.bounds()))
            }

            fn snapshot(&self) -> Snapshot {
                <$store>::snapshot(self)
            }
        }

        impl IntoIterator for &$store {
            type Item = Result<(Value, Value)>;
            type IntoIter = Range;

            fn into_iter(self) -> Range {
                self.iter()
            }
        }
    )*};
}

/// Gives types the methods of [`Reader`], so that a call needs no import of the trait.
macro_rules! inherit_reads {
    ($($store:ty),*) => {$(
        #[expect(clippy::missing_errors_doc, reason = "each method is as that of `Db`")]
        impl $store {
            /// As [`Db::get`](crate::Db::get).
            pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
                Reader::get(self, key.as_ref())
            }

            /// As [`Db::get_with_expiry`](crate::Db::get_with_expiry).
            pub fn get_with_expiry(
                &self,
                key: impl AsRef<[u8]>,
            ) -> Result<Option<(Value, Option<SystemTime>)>> {
                Reader::get_with_expiry(self, key.as_ref())
            }

            /// As [`Db::get_many`](crate::Db::get_many).
            pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
                self.at(|lookups, view, when| lookups.get_many(view, when, keys, Stored::into_value))
            }

            /// As [`Db::contains`](crate::Db::contains).
            pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
                Reader::contains(self, key.as_ref())
            }

            /// As [`Db::explain`](crate::Db::explain).
            pub fn explain(&self, key: impl AsRef<[u8]>) -> Result<Explanation> {
                Reader::explain(self, key.as_ref())
            }

            /// As [`Db::may_contain`](crate::Db::may_contain).
            pub fn may_contain(&self, key: impl AsRef<[u8]>) -> Result<Membership> {
                Reader::may_contain(self, key.as_ref())
            }

            /// As [`Db::approximate_len`](crate::Db::approximate_len).
            pub fn approximate_len(&self, bounds: impl KeyRange) -> Result<u64> {
                Reader::approximate_len(self, &bounds)
            }

            /// As [`Db::range`](crate::Db::range).
            pub fn range(&self, bounds: impl KeyRange) -> Range {
                Reader::range(self, &bounds)
            }

            /// As [`Db::prefix`](crate::Db::prefix).
            pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range {
                Reader::prefix(self, prefix.as_ref())
            }

            /// As [`Db::iter`](crate::Db::iter).
            pub fn iter(&self) -> Range {
                Reader::iter(self)
            }

            /// As [`Db::keys`](crate::Db::keys).
            pub fn keys(&self) -> Keys {
                Reader::keys(self)
            }

            /// As [`Db::first`](crate::Db::first).
            pub fn first(&self) -> Result<Option<(Value, Value)>> {
                Reader::first(self)
            }

            /// As [`Db::last`](crate::Db::last).
            pub fn last(&self) -> Result<Option<(Value, Value)>> {
                Reader::last(self)
            }
        }
    )*};
}

pub(super) use {implement_reader, inherit_reads};
