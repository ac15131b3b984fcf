//! Little-endian fields of bytes; `None` where the bytes are too short.

/// Takes fields off the front.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        self.0.split_off(..length)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn i16(&mut self) -> Option<i16> {
        self.array().map(i16::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A length in one byte, then the bytes.
    pub(crate) fn prefixed(&mut self) -> Option<&'a [u8]> {
        let length = self.u8()?;
        self.bytes(usize::from(length))
    }
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Fields(bytes.get(at..)?).array().map(u32::from_le_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Fields(bytes.get(at..)?).u64()
}
