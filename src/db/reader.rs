use super::keys::Keys;
use crate::engine::scan::{Range, prefix_bounds};
use crate::error::Result;
use crate::key_range::KeyRange;
use crate::ledger::Explanation;
use crate::value::Value;

/// The reads that [`Db`](crate::Db), [`Snapshot`](crate::Snapshot) and [`ReadOnlyDb`](crate::ReadOnlyDb) have
/// in common. Each has these methods of its own; the trait is for code that takes any of them.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = criba::Db::open(dir.path().join("store"))?;
/// use criba::{Reader, Result};
///
/// fn count(store: &impl Reader, prefix: &str) -> Result<usize> {
///     store.prefix(prefix)?.try_fold(0, |sum, item| item.map(|_| sum + 1))
/// }
///
/// db.put("user/1", "")?;
/// let before = db.snapshot()?;
/// db.put("user/2", "")?;
/// assert_eq!((count(&before, "user/")?, count(&db, "user/")?), (1, 2));
/// # Ok::<(), criba::Error>(())
/// ```
///
/// # Errors
/// Each method fails as the method of [`Db`](crate::Db) with its name.
#[expect(clippy::missing_errors_doc, reason = "said once, for the whole trait")]
pub trait Reader {
    /// As [`Db::get`](crate::Db::get).
    fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>>;

    /// As [`Db::get_many`](crate::Db::get_many).
    fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>>;

    /// As [`Db::explain`](crate::Db::explain).
    fn explain(&self, key: impl AsRef<[u8]>) -> Result<Explanation>;

    /// As [`Db::range`](crate::Db::range).
    fn range(&self, bounds: impl KeyRange) -> Result<Range>;

    /// As [`Db::contains`](crate::Db::contains).
    fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// As [`Db::prefix`](crate::Db::prefix).
    fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Range> {
        self.range(prefix_bounds(prefix.as_ref()))
    }

    /// As [`Db::iter`](crate::Db::iter).
    #[expect(clippy::iter_not_returning_iterator, reason = "fails on a closed store")]
    fn iter(&self) -> Result<Range> {
        self.range(..)
    }

    /// As [`Db::keys`](crate::Db::keys).
    fn keys(&self) -> Result<Keys> {
        Ok(Keys(self.range(..)?))
    }

    /// As [`Db::first`](crate::Db::first).
    fn first(&self) -> Result<Option<(Value, Value)>> {
        self.range(..)?.next().transpose()
    }

    /// As [`Db::last`](crate::Db::last).
    fn last(&self) -> Result<Option<(Value, Value)>> {
        self.range(..)?.next_back().transpose()
    }
}

/// Implements [`Reader`] by the methods that the types have: those come before the trait's. Used above this
/// module, which must not import its users.
macro_rules! implement_reader {
    ($($store:ty),*) => {$(
        impl Reader for $store {
            fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
                <$store>::get(self, key)
            }

            fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
                <$store>::get_many(self, keys)
            }

            fn explain(&self, key: impl AsRef<[u8]>) -> Result<Explanation> {
                <$store>::explain(self, key)
            }

            fn range(&self, bounds: impl KeyRange) -> Result<Range> {
                <$store>::range(self, bounds)
            }
        }
    )*};
}

/// Gives types the methods that [`Reader`] provides, so that a call needs no import of the trait.
macro_rules! inherit_reads {
    ($($store:ty),*) => {$(
        impl $store {
            /// As [`Db::contains`](crate::Db::contains).
            ///
            /// # Errors
            /// As [`Db::get`](crate::Db::get).
            pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
                Reader::contains(self, key)
            }

            /// As [`Db::prefix`](crate::Db::prefix).
            ///
            /// # Errors
            /// As [`Db::range`](crate::Db::range).
            pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Range> {
                Reader::prefix(self, prefix)
            }

            /// As [`Db::iter`](crate::Db::iter).
            ///
            /// # Errors
            /// As [`Db::range`](crate::Db::range).
            #[expect(clippy::iter_not_returning_iterator, reason = "as `Db::iter`")]
            pub fn iter(&self) -> Result<Range> {
                Reader::iter(self)
            }

            /// As [`Db::keys`](crate::Db::keys).
            ///
            /// # Errors
            /// As [`Db::range`](crate::Db::range).
            pub fn keys(&self) -> Result<Keys> {
                Reader::keys(self)
            }

            /// As [`Db::first`](crate::Db::first).
            ///
            /// # Errors
            /// As [`Db::get`](crate::Db::get).
            pub fn first(&self) -> Result<Option<(Value, Value)>> {
                Reader::first(self)
            }

            /// As [`Db::last`](crate::Db::last).
            ///
            /// # Errors
            /// As [`Db::get`](crate::Db::get).
            pub fn last(&self) -> Result<Option<(Value, Value)>> {
                Reader::last(self)
            }
        }
    )*};
}

pub(super) use {implement_reader, inherit_reads};
