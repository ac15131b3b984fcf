use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use bytes::Bytes;

/// The bytes of a key or value; dereferences to `[u8]`. A clone shares the bytes. It may keep a whole block
/// in memory: to keep it long, copy it with `to_vec`. From [`Bytes`] no byte is copied, and back only few.
#[derive(Clone)]
pub struct Value(Repr);

/// The most bytes that fit beside the length in the memory of [`Bytes`].
const MOST_INLINE: usize = 23;

/// Short copies take neither an allocation nor a reference count.
#[derive(Clone)]
enum Repr {
    Inline { length: u8, bytes: [u8; MOST_INLINE] },
    Shared(Bytes),
}

impl Value {
    #[inline]
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self(Repr::Shared(bytes))
    }

    #[inline]
    pub(crate) fn copied(bytes: &[u8]) -> Self {
        Self::inline(bytes).unwrap_or_else(|| Self::new(Bytes::copy_from_slice(bytes)))
    }

    /// A value within the handle; `None` if it is too long.
    #[inline]
    pub(crate) fn inline(bytes: &[u8]) -> Option<Self> {
        let mut copy = [0; MOST_INLINE];
        copy.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self(Repr::Inline { length: bytes.len() as u8, bytes: copy }))
    }

    /// What follows the first `count` bytes.
    pub(crate) fn without(self, count: usize) -> Self {
        let count = count.min(self.len());
        match self.0 {
            Repr::Inline { .. } => Self::copied(&self[count..]),
            Repr::Shared(bytes) => Self::new(bytes.slice(count..)),
        }
    }
}

impl Deref for Value {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Repr::Shared(bytes) => bytes,
        }
    }
}

impl Default for Value {
    fn default() -> Self {
        Self::new(Bytes::new())
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Borrow<[u8]> for Value {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Value {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

impl Eq for Value {}

impl<T: AsRef<[u8]> + ?Sized> PartialOrd<T> for Value {
    fn partial_cmp(&self, other: &T) -> Option<Ordering> {
        Some((**self).cmp(other.as_ref()))
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

macro_rules! comparable_with_values {
    ($([$($generic:tt)*] $bytes:ty),*) => {$(
        impl<$($generic)*> PartialEq<Value> for $bytes {
            fn eq(&self, other: &Value) -> bool {
                other == self
            }
        }

        impl<$($generic)*> PartialOrd<Value> for $bytes {
            fn partial_cmp(&self, other: &Value) -> Option<Ordering> {
                other.partial_cmp(self).map(Ordering::reverse)
            }
        }
    )*};
}

comparable_with_values!(
    [] [u8], [] &[u8], [] str, [] &str, [] Vec<u8>, [] String, [] Bytes,
    [const N: usize] [u8; N], [const N: usize] &[u8; N]
);

impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state); // `Borrow` requires the hash of `[u8]`, which this is
    }
}

impl From<Value> for Vec<u8> {
    fn from(value: Value) -> Self {
        Bytes::from(value).into()
    }
}

impl From<Value> for Bytes {
    fn from(value: Value) -> Self {
        match value.0 {
            Repr::Inline { .. } => Self::copy_from_slice(&value),
            Repr::Shared(bytes) => bytes,
        }
    }
}

impl From<Bytes> for Value {
    fn from(bytes: Bytes) -> Self {
        Self::new(bytes)
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self::new(bytes.into())
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
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Value {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_copies_are_those_of_any_bytes_in_no_more_memory() {
        assert_eq!(size_of::<Value>(), size_of::<Bytes>());
        let all: Vec<u8> = (0..60).collect();
        for length in 0..all.len() {
            let bytes = &all[..length];
            let (copy, shared) = (Value::copied(bytes), Value::new(bytes.to_vec().into()));
            assert_eq!(Value::inline(bytes).is_some(), length <= MOST_INLINE);
            assert_eq!((&*copy, &copy), (bytes, &shared));
            assert_eq!(copy.cmp(&shared), Ordering::Equal);
            assert!(copy < Value::copied(&all[..=length]));
            assert_eq!(
                (Vec::from(copy.clone()), Bytes::from(copy)),
                (bytes.to_vec(), shared.into())
            );
        }
    }
}
