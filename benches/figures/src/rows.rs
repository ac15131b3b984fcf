//! The figures that tables compare.

/// Which of two figures is the better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    Less,
    More,
}
use Better::{Less, More};

impl Better {
    /// The better of two values.
    pub(crate) fn is_better(self, value: f64, than: f64) -> bool {
        match self {
            Less => value < than,
            More => value > than,
        }
    }

    /// How many times better a value is than another.
    pub(crate) fn ratio(self, value: f64, than: f64) -> f64 {
        match self {
            Less => than / value,
            More => value / than,
        }
    }
}

/// A row of a table.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) workload: &'static str,
    pub(crate) figure: &'static str,
    pub(crate) words: &'static str,
    pub(crate) better: Better,
}

const fn row(
    workload: &'static str,
    figure: &'static str,
    words: &'static str,
    better: Better,
) -> Row {
    Row { workload, figure, words, better }
}

pub(crate) const ROWS: &[Row] = &[
    row("w1", "puts_per_s", "load until flushed, puts/s", More),
    row("w1", "settled_s", "load until settled, s", Less),
    row("w1", "peak_mib", "load: peak memory, MiB", Less),
    row("w1", "write_amp", "load: bytes written a byte", Less),
    row("w2", "absent_ns", "absent keys, ns", Less),
    row("w2", "absent_p99_ns", "absent keys, p99, ns", Less),
    row("w2", "absent_2_threads_ns", "absent keys, two threads, ns", Less),
    row("w2", "threads_gain", "two threads, times one", More),
    row("w2c", "absent_ns", "absent keys, one run, ns", Less),
    row("w2u", "absent_ns", "absent keys, L0 full, ns", Less),
    row("w2u", "absent_p99_ns", "absent keys, L0 full, p99, ns", Less),
    row("w2m", "batch_ns", "absent keys, batches of 16, ns", Less),
    row("w2m", "batch_gain", "batches, times single", More),
    row("w2r", "reads", "reads per absent key, four levels", Less),
    row("w2rc", "reads", "reads per absent key, one run", Less),
    row("w2ru", "reads", "reads per absent key, L0 full", Less),
    row("w3", "present_ns", "present keys, ns", Less),
    row("w3", "present_p99_ns", "present keys, p99, ns", Less),
    row("w3", "peak_mib", "present keys, peak memory, MiB", Less),
    row("w4", "zipfian_ns", "present keys, zipfian, ns", Less),
    row("w5", "half_ns", "half absent, ns", Less),
    row("w6", "open_ms", "cold: open and 1,000 absent keys, ms", Less),
    row("w6", "absent_ns", "cold: absent keys, ns", Less),
    row("w6", "present_ns", "cold: present keys, ns", Less),
    row("w6m", "batch_ns", "cold: present keys, batches of 64, ns", Less),
    row("w7", "one_us", "synced put, one thread, µs", Less),
    row("w7", "eight_us", "synced put, eight threads, µs", Less),
    row("w7", "threads_gain", "eight threads, times one", More),
    row("w8", "full_ns", "full scan, ns a pair", Less),
    row("w8", "short_us", "50-key scan, µs", Less),
    row("w8", "prefix_us", "empty prefix scan, µs", Less),
    row("w9", "puts_per_s", "overwrite half, puts/s", More),
    row("w9", "write_amp", "overwrite half: bytes written a byte", Less),
    row("w9", "space_settled", "space, settled", Less),
    row("w9", "space_compacted", "space, compacted", Less),
    row("w9", "absent_settled_ns", "then absent keys, ns", Less),
    row("w9", "present_settled_ns", "then present keys, ns", Less),
    row("w10", "absent_p99_ns", "beside a writer: absent, p99, ns", Less),
    row("w10", "absent_p999_ns", "beside a writer: absent, p99.9, ns", Less),
    row("w10", "present_p99_ns", "beside a writer: present, p99, ns", Less),
    row("w10", "present_p999_ns", "beside a writer: present, p99.9, ns", Less),
    row("w11", "threads_1_per_s", "any accounts, one thread, transfers/s", More),
    row("w11", "threads_2_per_s", "any accounts, two threads, transfers/s", More),
    row("w11", "threads_4_per_s", "any accounts, four threads, transfers/s", More),
    row("w11", "threads_8_per_s", "any accounts, eight threads, transfers/s", More),
    row("w11c", "threads_1_per_s", "ten accounts, one thread, transfers/s", More),
    row("w11c", "threads_2_per_s", "ten accounts, two threads, transfers/s", More),
    row("w11c", "threads_4_per_s", "ten accounts, four threads, transfers/s", More),
    row("w11c", "threads_8_per_s", "ten accounts, eight threads, transfers/s", More),
    row("w12", "settled_ns", "ingest, empty store, ns a key", Less),
    row("w12", "write_amp", "ingest, empty store: bytes written a byte", Less),
    row("w12", "peak_mib", "ingest, empty store: peak memory, MiB", Less),
    row("w12p", "settled_ns", "the same keys put, ns a key", Less),
    row("w12p", "write_amp", "the same keys put: bytes written a byte", Less),
    row("w12f", "settled_ns", "ingest, free range, ns a key", Less),
    row("w12f", "write_amp", "ingest, free range: bytes written a byte", Less),
    row("w12f", "peak_mib", "ingest, free range: peak memory, MiB", Less),
    row("w12fp", "settled_ns", "the same keys put, ns a key", Less),
    row("w12fp", "write_amp", "the same keys put: bytes written a byte", Less),
    row("w12o", "settled_ns", "ingest, between keys, ns a key", Less),
    row("w12o", "write_amp", "ingest, between keys: bytes written a byte", Less),
    row("w12o", "peak_mib", "ingest, between keys: peak memory, MiB", Less),
    row("w12op", "settled_ns", "the same keys put, ns a key", Less),
    row("w12op", "write_amp", "the same keys put: bytes written a byte", Less),
];
