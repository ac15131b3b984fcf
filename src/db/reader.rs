use super::Db;
use super::keys::Keys;
use super::scan::{Range, prefix_bounds};
use super::snapshot::Snapshot;
use crate::error::Result;
use crate::key_range::KeyRange;
use crate::ledger::Explanation;
use crate::value::Value;

/// The reads that [`Db`] and [`Snapshot`] have in common. Each has these methods of its own; the trait is for
/// code that takes either.
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
/// Each method fails as the method of [`Db`] with its name.
#[expect(clippy::missing_errors_doc, reason = "said once, for the whole trait")]
pub trait Reader {
    /// As [`Db::get`].
    fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>>;

    /// As [`Db::get_many`].
    fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>>;

    /// As [`Db::explain`].
    fn explain(&self, key: impl AsRef<[u8]>) -> Result<Explanation>;

    /// As [`Db::range`].
    fn range(&self, bounds: impl KeyRange) -> Result<Range>;

    /// As [`Db::contains`].
    fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// As [`Db::prefix`].
    fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Range> {
        self.range(prefix_bounds(prefix.as_ref()))
    }

    /// As [`Db::iter`].
    #[expect(clippy::iter_not_returning_iterator, reason = "fails on a closed store")]
    fn iter(&self) -> Result<Range> {
        self.range(..)
    }

    /// As [`Db::keys`].
    fn keys(&self) -> Result<Keys> {
        Ok(Keys(self.range(..)?))
    }

    /// As [`Db::first`].
    fn first(&self) -> Result<Option<(Value, Value)>> {
        self.range(..)?.next().transpose()
    }

    /// As [`Db::last`].
    fn last(&self) -> Result<Option<(Value, Value)>> {
        self.range(..)?.next_back().transpose()
    }
}

/// An inherent method comes before the trait's method of the same name.
macro_rules! readers {
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

readers!(Db, Snapshot);
