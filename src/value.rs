use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use bytes::Bytes;

/// The bytes of a key or value; dereferences to `[u8]`. A clone shares the bytes. A value may keep a whole
/// block in memory: to keep it long, copy it with `to_vec`. To and from [`Bytes`] no byte is copied.
#[derive(Clone, Eq, PartialOrd, Ord, Default)]
pub struct Value(Bytes);

impl Value {
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self(bytes)
    }

    pub(crate) fn copied(bytes: &[u8]) -> Self {
        Self(Bytes::copy_from_slice(bytes))
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for Value {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Value {
    fn eq(&self, other: &T) -> bool {
        self.0 == other.as_ref()
    }
}

macro_rules! equal_to_values {
    ($([$($generic:tt)*] $bytes:ty),*) => {$(
        impl<$($generic)*> PartialEq<Value> for $bytes {
            fn eq(&self, other: &Value) -> bool {
                other == self
            }
        }
    )*};
}

equal_to_values!(
    [] [u8], [] &[u8], [] str, [] &str, [] Vec<u8>, [] String, [] Bytes,
    [const N: usize] [u8; N], [const N: usize] &[u8; N]
);

impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state); // `Borrow` requires the hash of `[u8]`, which this is
    }
}

impl From<Value> for Vec<u8> {
    fn from(value: Value) -> Self {
        value.0.into()
    }
}

impl From<Value> for Bytes {
    fn from(value: Value) -> Self {
        value.0
    }
}

impl From<Bytes> for Value {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Self::copied(bytes)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::copied(text.as_bytes())
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.0.escape_ascii())
    }
}
