//! The report in words, for terminal and page.

use std::cmp::Ordering;

use super::checks::{Check, Checks, FalsePositives};
use super::pass::PassReport;
use super::report::{Level, Report};
use super::scans::ScanPass;
use super::state::State;
use crate::text::{counted, percent, ratio, thousands};

/// In place of a missing number.
pub(super) const NONE: &str = "–";

/// As a sentence begins.
pub(super) fn capitalised(text: &str) -> String {
    let (first, rest) = text.split_at(1);
    first.to_uppercase() + rest
}

fn or_none(number: Option<f64>, decimals: usize) -> String {
    number.map_or(NONE.to_owned(), |number| format!("{number:.decimals$}"))
}

/// A part in percent with so many decimals. It is 100 only if part and whole are equal.
fn share(part: u64, whole: u64, decimals: usize) -> String {
    let unit = 0.1_f64.powi(decimals as i32);
    let exact = 100.0 * part as f64 / whole as f64;
    let shown = match part.cmp(&whole) {
        Ordering::Less => exact.min(100.0 - unit),
        Ordering::Equal => 100.0,
        Ordering::Greater => exact.max(100.0 + unit),
    };
    format!("{shown:.decimals$} %")
}

/// The share of reads that filters avoided. It is 100 % only if they avoided all, and 0 only if none.
pub(super) fn avoided(avoided: i64, without: u64) -> String {
    match u64::try_from(avoided) {
        Ok(part) if part as f64 >= 0.99 * without as f64 && without > 0 => share(part, without, 1),
        _ => percent(ratio(avoided as f64, without)),
    }
}

/// The passes in the order of the tables of reads: absent keys without filters and with them, then present
/// ones.
const READ_PASSES: [usize; 4] = [2, 0, 3, 1];

impl Report {
    pub(super) fn per_lookup(&self, level: &Level) -> [Option<f64>; 4] {
        let lookups = [self.absent, self.present, self.absent, self.present];
        std::array::from_fn(|pass| ratio(level.pass_reads[pass] as f64, lookups[pass]))
    }

    /// The same in words, of [`READ_PASSES`].
    pub(super) fn reads_as_text(&self, level: &Level) -> [String; 4] {
        let per_lookup = self.per_lookup(level);
        READ_PASSES.map(|pass| or_none(per_lookup[pass], 4))
    }

    pub(super) fn named_levels(&self) -> impl Iterator<Item = (String, Level)> {
        let levels = self.levels.iter().map(|level| (format!("L{}", level.level), level.clone()));
        levels.chain([("total".to_owned(), self.total())])
    }

    /// The results: a name and a sentence each.
    pub(super) fn headlines(&self) -> Vec<(String, String)> {
        let total = self.total();
        let per_lookup = self.per_lookup(&total);
        let mut lines = Vec::new();
        for (name, with, without) in [("Absent key", 0, 2), ("Present key", 1, 3)] {
            if let (Some(each), Some(each_without)) = (per_lookup[with], per_lookup[without]) {
                let [with_all, without_all] = [with, without].map(|pass| total.pass_reads[pass]);
                let avoided = avoided(without_all as i64 - with_all as i64, without_all);
                let reads = format!("{each_without:.4} disk reads without filters, {each:.4} with");
                lines.push((name.to_owned(), format!("{reads}: {avoided} avoided")));
            }
        }
        if let Some(act) = &self.other_filters_loaded {
            let other = or_none(ratio(act.state.disk_reads as f64, act.state.absent), 4);
            let own = or_none(per_lookup[0], 4);
            let size = share(act.state.filter_bytes, act.filter_bytes_before, 1);
            let line =
                format!("in as many bytes ({size}), {other} reads per absent key, not {own}");
            lines.push((capitalised(&act.kind), line));
        }
        if let Some(scans) = &self.scans {
            let [with, _, without, _] = &scans.passes[..] else { return lines };
            let each = |reads| or_none(ratio(reads as f64, with.scans), 4);
            let avoided =
                avoided(without.disk_reads as i64 - with.disk_reads as i64, without.disk_reads);
            let (with, without) = (each(with.disk_reads), each(without.disk_reads));
            let reads = format!("{without} disk reads without filters, {with} with");
            lines.push(("Absent scan".to_owned(), format!("{reads}: {avoided} avoided")));
        }
        if let Some(act) = &self.compaction {
            let (before, after) = (act.before.filter_keys, act.after.filter_keys);
            let line = format!(
                "{} became {}; filters rebuilt of {}, not {}",
                counted(act.tables_in, "table"),
                thousands(act.tables_out),
                counted(after, "key"),
                thousands(before),
            );
            lines.push(("Compaction".to_owned(), line));
        }
        lines.push(("Checks".to_owned(), self.verdicts()));
        lines
    }

    /// How many checks hold, fail, and were not made.
    fn verdicts(&self) -> String {
        let count =
            |holds| self.all_checks().filter(|(_, (_, check))| check.holds == holds).count();
        let all = if count(Some(true)) == self.all_checks().count() { "all " } else { "" };
        let others = [(count(Some(false)), "FAIL"), (count(None), "NOT CHECKED")];
        let others = others.into_iter().filter(|(count, _)| *count > 0);
        let others = others.map(|(count, what)| format!("{count} {what}"));
        let parts = [format!("{all}{} hold", count(Some(true)))].into_iter().chain(others);
        parts.collect::<Vec<_>>().join(", ")
    }

    /// What the second and the third act did, in lines.
    pub(super) fn act_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(act) = &self.compaction {
            lines.push(format!(
                "changed:   {} overwritten, {} deleted, {} expired",
                counted(act.overwritten, "key"),
                thousands(act.deleted),
                thousands(act.expired),
            ));
            lines.push(format!(
                "compacted: {} in, {} out, {} rebuilt",
                counted(act.tables_in, "table"),
                thousands(act.tables_out),
                counted(act.filters_rebuilt, "filter"),
            ));
        }
        if let Some(act) = &self.other_filters {
            lines.push(format!(
                "{:<10} {} beside the same tables, in {} of the bytes",
                format!("{}:", act.kind),
                counted(act.rebuilt, "filter"),
                share(act.state.filter_bytes, act.filter_bytes_before, 2),
            ));
        }
        lines
    }

    /// The second and the third act: a row for each count, a column for each state of the store.
    pub(super) fn state_rows(&self) -> Vec<(String, Vec<String>)> {
        let Some(act) = &self.compaction else { return Vec::new() };
        let mut states = vec![("changed", &act.before), ("compacted", &act.after)];
        states.extend(self.other_filters.iter().map(|act| (&*act.kind, &act.state)));
        let per_lookup = |reads: u64, state: &State| or_none(ratio(reads as f64, state.absent), 4);
        let row = |name: &str, cell: &dyn Fn(&State) -> String| {
            (name.to_owned(), states.iter().map(|(_, state)| cell(state)).collect::<Vec<_>>())
        };
        vec![
            (
                format!("{} lookups of absent keys", thousands(act.after.absent)),
                states.iter().map(|(name, _)| (*name).to_owned()).collect(),
            ),
            row("tables", &|state| thousands(state.tables)),
            row("keys in their filters", &|state| thousands(state.filter_keys)),
            row("bytes of filters", &|state| thousands(state.filter_bytes)),
            row("false-positive rate, predicted", &|state| percent(state.fpr_predicted)),
            row("false-positive rate, measured", &|state| percent(state.fpr_measured)),
            row("reads a lookup, without filters", &|state| {
                per_lookup(state.disk_reads_unfiltered, state)
            }),
            row("reads a lookup, with filters", &|state| per_lookup(state.disk_reads, state)),
            row("reads avoided", &|state| {
                let sign = if state.reads_avoided < 0 { "-" } else { "" };
                format!("{sign}{}", thousands(state.reads_avoided.unsigned_abs()))
            }),
            row(
                &format!("reads for {} deleted or expired", thousands(act.deleted + act.expired)),
                &|state| thousands(state.deleted_blocks),
            ),
        ]
    }

    /// The checks: a row for each, with the number of false positives and its bounds; a column for each state.
    pub(super) fn check_rows(&self) -> Vec<(&'static str, Vec<String>)> {
        let states = self.states();
        let mut names: Vec<&'static str> = Vec::new();
        for (name, _) in states.iter().flat_map(|(.., checks)| &checks.0) {
            if !names.contains(name) {
                names.push(name);
            }
        }
        let mut rows = Vec::new();
        for name in names {
            let verdict = |checks: &Checks| checks.get(name).map_or("", Check::verdict).to_owned();
            rows.push((name, states.iter().map(|(.., checks)| verdict(checks)).collect()));
            if name == "fpr_within_bounds" {
                let mut row = |name, number: fn(&FalsePositives) -> u64| {
                    let cell =
                        |(_, of, _): &(&str, &FalsePositives, &Checks)| thousands(number(of));
                    rows.push((name, states.iter().map(cell).collect()));
                };
                row("  false positives", |of| of.found);
                row("  99.9 % lower bound", |of| of.low);
                row("  99.9 % upper bound", |of| of.high);
            }
        }
        rows
    }

    /// What batches announced, in a line.
    pub(super) fn batches_line(&self) -> Option<String> {
        self.batches.as_ref().map(|batches| {
            let [blocks, unread] =
                [batches.blocks_announced, batches.announced_unread].map(thousands);
            format!(
                "batches of {}: of {}, {blocks} were announced in advance after slow reads, and {unread} of \
                 them not read",
                batches.batch,
                counted(batches.pass.disk_reads, "block"),
            )
        })
    }

    /// What the filters of the scans hold, or why there are none, in a line; `None` with the first act alone.
    pub(super) fn scans_line(&self) -> Option<String> {
        let Some(scans) = &self.scans else {
            let none =
                "no scans: no filters, or no absent key has a prefix that no present key has";
            return self.batches.as_ref().map(|_| none.to_owned());
        };
        Some(format!(
            "with {} up to each {:?}, filters have {} of the bytes of filters without them",
            counted(scans.prefixes, "prefix"),
            scans.delimiter,
            percent(ratio(scans.filter_bytes as f64, scans.filter_bytes_before)),
        ))
    }

    /// What the checks of the acts compared, and why others fail or were not made: name and text, each once.
    pub(super) fn check_notes(&self) -> Vec<(&'static str, &str)> {
        let mut notes = Vec::new();
        for (_, (name, check)) in self.all_checks() {
            let of_act = ["filters_rebuilt", "tables_untouched"].contains(name);
            let note = (*name, &*check.said);
            if (of_act || check.holds != Some(true)) && !notes.contains(&note) {
                notes.push(note);
            }
        }
        notes
    }

    /// The setup: names, and lines of text.
    pub(super) fn setup_lines(&self) -> Vec<(&'static str, String)> {
        let setup = &self.setup;
        let mut keys = match &setup.files {
            Some((present, absent)) => {
                vec![format!("present {present}"), format!("absent  {absent}")]
            }
            None => vec!["made-up user names, with e-mail addresses as values".to_owned()],
        };
        for (lines, why) in [
            (
                setup.present_repeated,
                "of the present file overruled by a later line of the same key",
            ),
            (setup.absent_repeated, "of the absent file left out: repeated"),
            (setup.absent_present, "of the absent file left out: the key is present"),
        ] {
            if lines > 0 {
                keys.push(format!("{} {why}", counted(lines, "line")));
            }
        }
        let cache = match setup.cache_bytes {
            0 => "no block cache".to_owned(),
            bytes => format!("a block cache of {}", counted(bytes, "byte")),
        };
        let settled = match (setup.unsettled, setup.one_run) {
            (true, _) => "unsettled",
            (_, true) => "one run",
            _ => "settled",
        };
        let loaded = format!(
            "{} into {} on {}",
            counted(self.keys, "key"),
            counted(self.tables, "table"),
            counted(self.levels.len() as u64, "level"),
        );
        let looked_up = format!(
            "{} absent and {}, with filters and without",
            thousands(self.absent),
            counted(self.present, "present key"),
        );
        let mut lines = vec![
            ("loaded", loaded),
            ("looked up", looked_up),
            ("keys", keys.join("\n")),
            ("filters", setup.filter.clone()),
            ("store", format!("{cache}, {settled}, seed {}", setup.seed)),
        ];
        if setup.compression != "none" {
            lines.push(("data", format!("compressed by {}", setup.compression)));
        }
        if setup.history > 0 {
            lines.push(("history", format!("{} of absent keys", counted(setup.history, "lookup"))));
        }
        if let Some(bytes) = setup.filter_memory {
            lines.push(("memory", format!("{} for filters at most", counted(bytes, "byte"))));
        }
        if let Some(theta) = setup.zipf {
            let lookups = format!("absent keys by a Zipf distribution of exponent {theta}");
            lines.push(("lookups", lookups));
        }
        lines
    }
}

impl Level {
    /// Its tables, their keys, bits per key; probes, range-pruned, true negatives, false positives; the
    /// false-positive rate measured, and predicted.
    pub(super) fn as_text(&self) -> [String; 9] {
        [
            thousands(self.tables),
            thousands(self.keys),
            or_none(self.bits_per_key, 2),
            thousands(self.probes),
            thousands(self.range_pruned),
            thousands(self.true_negatives),
            thousands(self.false_positives),
            percent(self.fpr_measured),
            percent(self.fpr_predicted),
        ]
    }
}

impl PassReport {
    /// Its lookups, cache hits, and disk reads as engine, file layer and kernel count them.
    pub(super) fn as_text(&self) -> [String; 5] {
        [
            thousands(self.lookups),
            thousands(self.cache_hits),
            thousands(self.disk_reads),
            thousands(self.file_reads),
            self.kernel_reads.map_or(NONE.to_owned(), thousands),
        ]
    }

    pub(super) fn title(&self) -> String {
        title(self.name, "keys")
    }
}

impl ScanPass {
    /// Its scans, the keys they found, the tables that filters denied, and disk reads as engine, file layer and
    /// kernel count them.
    pub(super) fn as_text(&self) -> [String; 6] {
        [
            thousands(self.scans),
            thousands(self.items),
            thousands(self.tables_denied),
            thousands(self.disk_reads),
            thousands(self.file_reads),
            self.kernel_reads.map_or(NONE.to_owned(), thousands),
        ]
    }

    pub(super) fn title(&self) -> String {
        title(self.name, "prefixes")
    }
}

fn title(pass: &str, what: &str) -> String {
    if pass == "present_batches" {
        return "present keys, in batches".into();
    }
    match pass.strip_suffix("_unfiltered") {
        Some(kind) => format!("{kind} {what}, without filters"),
        None => format!("{pass} {what}, with filters"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_whole_or_nothing_only_if_it_is_exactly_that() {
        for (saved, without, expected) in [
            (0, 0, "–"),
            (0, 346_821, "0.0 %"),
            (1, 346_821, "0.00029 %"),
            (500, 1000, "50.0 %"),
            (996, 1000, "99.6 %"),
            (999_747, 1_000_000, "99.9 %"), // beside 253 reads
            (1_000_000, 1_000_000, "100.0 %"),
            (-30, 1000, "-3.0 %"),
        ] {
            assert_eq!(avoided(saved, without), expected, "{saved} of {without}");
        }
        let shares = [99_999, 100_000, 100_001, 98_765].map(|part| share(part, 100_000, 2));
        assert_eq!(shares, ["99.99 %", "100.00 %", "100.01 %", "98.77 %"]);
    }
}
