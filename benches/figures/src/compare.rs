//! Medians of stores, and the better of some.

use std::collections::BTreeMap;

use crate::digits::digits;
use crate::lines::{Line, median, newest};
use crate::rows::Row;

/// The stores that criba is compared with first. Only they have more than one setting.
pub(crate) const PEERS: [&str; 2] = ["rocksdb", "fjall"];

/// All repetitions of each measurement, by workload, store and setting.
pub(crate) type Group<'l> = BTreeMap<(&'l str, &'l str, &'l str), Vec<&'l Line>>;

/// The measurements of one number and kind of keys.
pub(crate) fn group<'l>(lines: &'l [Line], n: u64, keys: &str) -> Group<'l> {
    let mut group = Group::new();
    for line in lines {
        let job = &line.job;
        if (job.n, job.keys.as_str()) == (n, keys) {
            group.entry((&job.workload, &job.store, &job.setting)).or_default().push(line);
        }
    }
    group.into_iter().map(|(job, lines)| (job, newest(lines))).collect()
}

/// The median of a store in the better of its settings, and that setting.
pub(crate) fn best<'l>(group: &Group<'l>, row: &Row, store: &str) -> Option<(f64, &'l str)> {
    let of_store = group.iter().filter(|((workload, name, _), lines)| {
        *workload == row.workload
            && *name == store
            && !(PEERS.contains(name) && has_larger_filters(group, row, lines))
    });
    let medians = of_store
        .filter_map(|((.., setting), lines)| Some((median(lines, row.figure)?[0], *setting)));
    medians.reduce(|a, b| if row.better.is_better(b.0, a.0) { b } else { a })
}

/// A median; with a star if the store is set as its documentation recommends.
pub(crate) fn marked((value, setting): (f64, &str)) -> String {
    digits(value) + if setting == "best" { "\\*" } else { "" }
}

/// Whether disk reads are counted of a store that has over 2 % more filter bytes than criba, which explains fewer.
fn has_larger_filters(group: &Group<'_>, row: &Row, lines: &[&Line]) -> bool {
    let bytes = |lines: &[&Line]| lines.last()?.findings.filter_bytes;
    let ours = group.get(&(row.workload, "criba", "alike"));
    match (ours.and_then(|lines| bytes(lines)), bytes(lines)) {
        (Some(ours), Some(theirs)) => row.figure == "reads" && theirs as f64 > ours as f64 * 1.02,
        _ => false,
    }
}

/// The better of the peers, with its setting.
pub(crate) fn better_peer<'l>(
    group: &Group<'l>,
    row: &Row,
    peers: &[&'static str],
) -> Option<(&'static str, (f64, &'l str))> {
    let found = peers.iter().filter_map(|peer| Some((*peer, best(group, row, peer)?)));
    found.reduce(|a, b| if row.better.is_better(b.1.0, a.1.0) { b } else { a })
}

/// How many times better a store is than the better of the peers.
pub(crate) fn ratio(group: &Group<'_>, row: &Row, store: &str) -> Option<f64> {
    let (_, (peer, _)) = better_peer(group, row, &PEERS)?;
    Some(row.better.ratio(best(group, row, store)?.0, peer))
}
