//! criba beside its peers, row by row: where it wins, and where it loses.

use std::fmt::Write;

use crate::compare::{Group, PEERS, best, better_peer, group, marked, ratio};
use crate::lines::Line;
use crate::rows::{ROWS, Row};

/// The stores beside RocksDB and fjall.
const OTHERS: [&str; 5] = ["leveldb", "lsm-db", "coordinode", "redb", "lmdb"];

/// For each number of keys: criba with both filters, the better of RocksDB and fjall, how many times better criba's
/// default is, and the best of the other stores. Rows without a peer are left out.
///
/// # Panics
/// Never: a string can be written to.
pub(crate) fn wins(lines: &[Line], numbers: &[u64]) -> String {
    let sets: Vec<_> = numbers.iter().map(|&n| group(lines, n, "names")).collect();
    let mut parts = [String::new(), String::new()];
    // Transfers and ingests have tables of their own.
    for row in
        ROWS.iter().filter(|row| !["w11", "w12"].iter().any(|of| row.workload.starts_with(of)))
    {
        let ratios: Vec<_> = sets.iter().map(|group| ratio(group, row, "criba")).collect();
        if ratios.iter().all(Option::is_none) {
            continue;
        }
        let loses = ratios.iter().flatten().any(|ratio| *ratio < 1.0);
        let text = &mut parts[usize::from(loses)];
        write!(text, "|{} {}|", row.workload.to_uppercase(), row.words).expect("a string");
        for (group, ratio) in sets.iter().zip(ratios) {
            text.push_str(&cells(group, row, ratio));
        }
        text.push('\n');
    }
    let mut head = "||".to_owned();
    for n in numbers {
        let millions = n / 1_000_000;
        write!(head, "criba, {millions}M|ribbon|peer|ratio|other|").expect("a string");
    }
    let columns = 5 * numbers.len();
    let empty = "|".repeat(columns);
    let [won, lost] = parts;
    format!(
        "{head}\n|---|{}\n|**criba wins**|{empty}\n{won}|**criba loses at least once**|{empty}\n{lost}",
        "--:|".repeat(columns)
    )
}

fn cells(group: &Group<'_>, row: &Row, ratio: Option<f64>) -> String {
    let none = || "–".to_owned();
    let ours = |store| best(group, row, store).map_or_else(none, marked);
    let named = |stores: &[&'static str]| {
        let found = better_peer(group, row, stores);
        found.map_or_else(none, |(name, median)| format!("{} {name}", marked(median)))
    };
    let ratio = match ratio {
        Some(ratio) if ratio < 1.0 => format!("**{ratio:.2}**"),
        Some(ratio) => format!("{ratio:.2}"),
        None => none(),
    };
    let [criba, ribbon] = [ours("criba"), ours("criba-ribbon")];
    format!("{criba}|{ribbon}|{}|{ratio}|{}|", named(&PEERS), named(&OTHERS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::tests::line;

    #[test]
    fn rows_are_where_criba_wins_or_loses_once() {
        let of = |store, n, workload, figure, value| {
            let mut line = line(store, "alike", workload, &[(figure, value)]);
            line.job.n = n;
            line
        };
        let (small, large) = (1_000_000, 10_000_000);
        let lines = [
            of("criba", small, "w2", "absent_ns", 80.0),
            of("criba-ribbon", small, "w2", "absent_ns", 60.0),
            of("rocksdb", small, "w2", "absent_ns", 300.0),
            of("fjall", small, "w2", "absent_ns", 200.0),
            of("lmdb", small, "w2", "absent_ns", 400.0),
            of("lsm-db", small, "w2", "absent_ns", 70.0),
            of("criba", small, "w1", "puts_per_s", 50_000.0),
            of("rocksdb", small, "w1", "puts_per_s", 40_000.0),
            of("criba", large, "w1", "puts_per_s", 30_000.0),
            of("rocksdb", large, "w1", "puts_per_s", 40_000.0),
            of("criba", small, "w3", "present_ns", 1.0),
        ];
        let text = wins(&lines, &[small, large]);
        let expected = "\
||criba, 1M|ribbon|peer|ratio|other|criba, 10M|ribbon|peer|ratio|other|
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|
|**criba wins**|||||||||||
|W2 absent keys, ns|80.0|60.0|200 fjall|2.50|70.0 lsm-db|–|–|–|–|–|
|**criba loses at least once**|||||||||||
|W1 load until flushed, puts/s|50,000|–|40,000 rocksdb|1.25|–|30,000|–|40,000 rocksdb|**0.75**|–|
";
        assert_eq!(text, expected);
    }
}
