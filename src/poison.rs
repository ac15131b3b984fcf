//! The failure after which a store refuses writes.

use crate::error::{Error, Result};
use crate::sync::{Arc, OnceLock};

/// The first such failure, if there was one. A store and its directory share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Poison(Arc<OnceLock<Arc<Error>>>);

impl Poison {
    pub(crate) fn check(&self) -> Result<()> {
        match self.0.get() {
            Some(cause) => Err(Error::Poisoned { cause: Arc::clone(cause) }),
            None => Ok(()),
        }
    }

    /// Refuses all writes from now on. Returns [`Error::Poisoned`] with the first cause.
    pub(crate) fn set(&self, cause: Error) -> Error {
        let cause = self.0.get_or_init(|| Arc::new(cause));
        Error::Poisoned { cause: Arc::clone(cause) }
    }
}
