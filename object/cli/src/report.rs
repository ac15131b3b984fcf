//! The counts of a run.

use std::time::Duration;

use serde::Serialize;

pub use crate::metered::Requests;

/// The prices of an object store, in dollars.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Prices {
    /// A thousand GETs or HEADs.
    pub thousand_gets: f64,
    /// A thousand PUTs or listings.
    pub thousand_puts: f64,
}

impl Prices {
    /// The price of requests.
    pub fn of(self, requests: Requests) -> f64 {
        let gets = (requests.gets + requests.heads) as f64 * self.thousand_gets;
        let puts = (requests.puts + requests.lists) as f64 * self.thousand_puts;
        (gets + puts) / 1000.0
    }
}

/// A month of 30 days, in seconds.
pub(crate) const MONTH: f64 = 30.0 * 86_400.0;

/// The settings of a run, and its counts.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Keys in the store.
    pub keys: u64,
    /// SSTables.
    pub tables: u64,
    /// Their bytes, filters and indexes included.
    pub table_bytes: u64,
    /// Sorted runs: levels in use, and each table of L0.
    pub sorted_runs: u64,
    /// What each request takes longer, in milliseconds.
    pub delay_ms: f64,
    /// Threads that make lookups.
    pub threads: u64,
    /// The lookups a second that the money of a month is for.
    pub lookups_a_second: f64,
    /// The prices.
    pub prices: Prices,
    /// Loading, compactions and publishing.
    pub loading: Requests,
    /// The price of `loading`, in dollars.
    pub loading_dollars: f64,
    /// Rebuilding the filters as ribbon filters: tables are read, filters are published.
    pub rebuilding: Requests,
    /// The same tables without filters, with Bloom filters, and with ribbon filters.
    pub runs: Vec<Run>,
    /// Whether every answer and count of every run is as expected.
    pub checks_hold: bool,
}

/// The counts of a reader on an empty local directory.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Run {
    /// "without filters", "Bloom" or "ribbon".
    pub name: &'static str,
    /// Bytes of filters in memory.
    pub filter_bytes: u64,
    /// Requests of the opening.
    pub opening: Requests,
    /// Its time, in milliseconds.
    pub opening_ms: f64,
    /// Lookups of absent keys.
    pub absent: Pass,
    /// Lookups of present keys.
    pub present: Pass,
    /// What does not hold.
    pub failed_checks: Vec<String>,
}

/// The counts of lookups of one kind.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Pass {
    /// Lookups.
    pub lookups: u64,
    /// Disk reads by the store's ledger. Each is a request here.
    pub disk_reads: u64,
    /// Requests for data blocks as the bucket's client counts them, repeated ones left out.
    pub block_requests: u64,
    /// Requests that repeated a failed one.
    pub repeated: u64,
    /// Requests as they went to the bucket.
    pub requests: Requests,
    /// GETs per lookup.
    pub gets_each: f64,
    /// The time of a lookup that half of them do not exceed, in milliseconds.
    pub p50_ms: f64,
    /// The time that 99 of 100 do not exceed.
    pub p99_ms: f64,
    /// The price of a month of such lookups, in dollars.
    pub dollars_a_month: f64,
    /// Lookups with a wrong answer.
    #[serde(skip)]
    pub(crate) wrong: u64,
}

impl Pass {
    /// What does not hold of `name`.
    pub(crate) fn failed_checks(&self, name: &str) -> Vec<String> {
        let mut failed = Vec::new();
        if self.wrong > 0 {
            failed.push(format!(
                "{} of {} {name} lookups have a wrong answer",
                self.wrong, self.lookups
            ));
        }
        let gets = self.requests.gets - self.repeated.min(self.requests.gets);
        if gets != self.disk_reads || self.block_requests != self.disk_reads {
            failed.push(format!(
                "{name} lookups: {gets} GETs and {} requests for blocks instead of {} disk reads",
                self.block_requests, self.disk_reads
            ));
        }
        failed
    }
}

/// The time that this share of lookups does not exceed, in milliseconds; 0 without lookups.
pub(crate) fn percentile(sorted: &[Duration], share: f64) -> f64 {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    let time = rank.checked_sub(1).and_then(|place| sorted.get(place));
    time.map_or(0.0, |time| time.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_requests_times_prices() {
        let prices = Prices { thousand_gets: 0.0004, thousand_puts: 0.005 };
        let requests =
            Requests { gets: 9000, heads: 1000, puts: 1500, lists: 500, ..Requests::default() };
        assert!((prices.of(requests) - 0.014).abs() < 1e-12);
    }

    #[test]
    fn a_percentile_is_a_time_that_was_measured() {
        let times: Vec<_> = (1..=200).map(Duration::from_millis).collect();
        assert!((percentile(&times, 0.5) - 100.0).abs() < 1e-9);
        assert!((percentile(&times, 0.99) - 198.0).abs() < 1e-9);
        assert!((percentile(&times[..1], 0.99) - 1.0).abs() < 1e-9);
        assert!(percentile(&[], 0.99).abs() < 1e-9);
    }

    #[test]
    fn a_request_that_the_ledger_does_not_have_and_a_wrong_answer_fail() {
        let requests = Requests { gets: 12, ..Requests::default() };
        let sound = Pass {
            lookups: 100,
            disk_reads: 10,
            block_requests: 10,
            repeated: 2,
            requests,
            gets_each: 0.12,
            p50_ms: 0.0,
            p99_ms: 0.0,
            dollars_a_month: 0.0,
            wrong: 0,
        };
        assert_eq!(sound.failed_checks("absent"), [] as [&str; 0]);
        for pass in [
            Pass { requests: Requests { gets: 13, ..requests }, ..sound.clone() },
            Pass { disk_reads: 9, ..sound.clone() },
            Pass { block_requests: 11, ..sound.clone() },
            Pass { wrong: 1, ..sound.clone() },
        ] {
            assert_eq!(pass.failed_checks("absent").len(), 1, "{pass:?}");
        }
    }
}
