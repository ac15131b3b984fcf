//! Forged values of a field.

/// Around the sound value, and at the ends of every range.
pub(crate) fn odd(sound: u64) -> Vec<u64> {
    let mut values = vec![0, 1, sound.wrapping_sub(1), sound.wrapping_add(1), sound << 1];
    for bits in [7, 8, 15, 16, 31, 32, 40, 43, 60, 61, 62, 63] {
        values.extend([(1 << bits) - 1, 1 << bits, (1 << bits) + 1]);
    }
    values.extend([
        u64::MAX - 511,
        u64::MAX - 127,
        u64::MAX - 5,
        u64::MAX - 4,
        u64::MAX - 1,
        u64::MAX,
    ]);
    values.retain(|&value| value != sound);
    values.sort_unstable();
    values.dedup();
    values
}
