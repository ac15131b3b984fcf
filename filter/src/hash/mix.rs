//! Arithmetic on 64-bit hashes.

/// 2^64 times the fraction of the golden ratio: an odd number without a pattern.
pub const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The finalizer of SplitMix64 (Steele, Lea and Flood, 2014): a permutation of the 64-bit integers.
/// Each bit of the result depends on each bit of `z`.
#[inline]
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Maps a hash to 0 … n−1 by its high bits, without a division (Lemire, *Fast Random Integer Generation in
/// an Interval*, 2019).
#[inline]
pub fn fast_range(hash: u64, n: u64) -> u64 {
    ((u128::from(hash) * u128::from(n)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mix_is_that_of_splitmix64() {
        let state = |i: u64| i.wrapping_mul(GOLDEN);
        assert_eq!(
            [mix(state(1)), mix(state(2)), mix(state(3))],
            [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4, 0x06C4_5D18_8009_454F]
        );
    }
}
