//! The report in words, for terminal and page.

use super::report::{Level, PassReport, Report};
use crate::text::{counted, percent, ratio, thousands};

/// In place of a missing number.
pub(super) const NONE: &str = "–";

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
        READ_PASSES.map(|pass| match per_lookup[pass] {
            Some(reads) => format!("{reads:.4}"),
            None => NONE.to_owned(),
        })
    }

    pub(super) fn named_levels(&self) -> impl Iterator<Item = (String, Level)> {
        let levels = self.levels.iter().map(|level| (format!("L{}", level.level), level.clone()));
        levels.chain([("total".to_owned(), self.total())])
    }

    /// The results, in a sentence each.
    pub(super) fn headlines(&self) -> Vec<String> {
        let per_lookup = self.per_lookup(&self.total());
        let of = |(keys, with, without): (&str, usize, usize)| {
            let (with, without) = (per_lookup[with]?, per_lookup[without]?);
            let avoided = (without > 0.0).then(|| 1.0 - with / without);
            Some(format!(
                "Looking up {keys:<7} keys: {without:.4} disk reads each without filters, {with:.4} with \
                 them; {} avoided.",
                percent(avoided)
            ))
        };
        let lookups = [("absent", 0, 2), ("present", 1, 3)].into_iter().filter_map(of);
        let all = format!(
            "In all the filters avoided {} of {} disk reads ({}).",
            thousands(self.reads_avoided.max(0).unsigned_abs()),
            thousands(self.disk_reads_unfiltered),
            percent(ratio(self.reads_avoided as f64, self.disk_reads_unfiltered)),
        );
        lookups.chain([all]).collect()
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
            "{} and {}, with filters and without",
            counted(self.absent, "absent key"),
            counted(self.present, "present key"),
        );
        let mut lines = vec![
            ("loaded", loaded),
            ("looked up", looked_up),
            ("keys", keys.join("\n")),
            ("filters", setup.filter.clone()),
            ("store", format!("{cache}, {settled}, seed {}", setup.seed)),
        ];
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
            self.bits_per_key.map_or(NONE.to_owned(), |bits| format!("{bits:.2}")),
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
        match self.name.strip_suffix("_unfiltered") {
            Some(keys) => format!("{keys} keys, without filters"),
            None => format!("{} keys, with filters", self.name),
        }
    }
}
