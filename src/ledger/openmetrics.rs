//! Figures as text, for Prometheus and others: <https://prometheus.io/docs/specs/om/open_metrics_spec/>, version 1.0.

use std::fmt::Write;

use super::counters::Amounts;
use super::{Activity, Counts, Histogram, Io, LEVELS, PrefixCounts, Stats, Work, Writes};

/// A text that grows by one family of figures after the other.
#[derive(Debug, Default)]
pub(crate) struct Page(String);

impl Page {
    /// A family with its samples: labels without braces, and values.
    pub(crate) fn gauges(&mut self, name: &str, help: &str, samples: &[(String, u64)]) {
        self.family(name, "gauge", help);
        for (labels, value) in samples {
            self.sample(name, labels, value);
        }
    }

    /// A family for each field of some counts, with a sample for each row: its labels, and the values.
    fn counters<const N: usize>(
        &mut self,
        group: &str,
        fields: &[(&str, &str); N],
        rows: &[(String, [u64; N])],
    ) {
        for (at, (field, help)) in fields.iter().enumerate() {
            let in_nanoseconds = field.strip_suffix("nanos");
            let name = match in_nanoseconds {
                Some(of) => format!("criba_{group}{of}seconds"),
                None => format!("criba_{group}{field}"),
            };
            let help = match in_nanoseconds {
                Some(_) => help.replace("nanoseconds", "seconds"),
                None => (*help).to_owned(),
            };
            self.family(&name, "counter", &help);
            for (labels, values) in rows {
                let name = format!("{name}_total");
                match in_nanoseconds {
                    Some(_) => self.sample(&name, labels, values[at] as f64 / 1e9),
                    None => self.sample(&name, labels, values[at]),
                }
            }
        }
    }

    /// A histogram of times, with a bucket for each doubling.
    pub(crate) fn times(&mut self, name: &str, help: &str, times: &Histogram) {
        self.family(name, "histogram", help);
        for (end, count) in times.cumulative().skip(3).step_by(4) {
            let labels = format!("le=\"{}\"", end.as_secs_f64());
            self.sample(&format!("{name}_bucket"), &labels, count);
        }
        self.sample(&format!("{name}_bucket"), "le=\"+Inf\"", times.count());
        self.sample(&format!("{name}_count"), "", times.count());
        self.sample(&format!("{name}_sum"), "", times.sum().as_secs_f64());
    }

    /// The whole text.
    pub(crate) fn end(mut self) -> String {
        self.0.push_str("# EOF\n");
        self.0
    }

    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# TYPE {name} {kind}"));
        for unit in ["seconds", "bytes"] {
            // Some parsers refuse the unit of a histogram.
            if kind != "histogram" && name.ends_with(&format!("_{unit}")) {
                self.line(format_args!("# UNIT {name} {unit}"));
            }
        }
        self.line(format_args!("# HELP {name} {}", plain(help)));
    }

    fn sample(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        if labels.is_empty() {
            self.line(format_args!("{name} {value}"));
        } else {
            self.line(format_args!("{name}{{{labels}}} {value}"));
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{line}").expect("a string takes all");
    }

    pub(crate) fn stats(&mut self, stats: &Stats) {
        let one = String::new;
        self.counters("activity_", &Activity::DESCRIBED, &[(one(), stats.activity.cells())]);
        self.counters("writes_", &Writes::DESCRIBED, &[(one(), stats.writes.cells())]);
        self.counters("flush_work_", &Work::DESCRIBED, &[(one(), stats.flush_work.cells())]);
        self.counters(
            "compaction_work_",
            &Work::DESCRIBED,
            &[(one(), stats.compaction_work.cells())],
        );
        let rows: [(String, [u64; Counts::FIELDS]); LEVELS] =
            std::array::from_fn(|level| (of_level(level), stats.levels[level].cells()));
        self.counters("levels_", &Counts::DESCRIBED, &rows);
        self.counters("prefix_", &PrefixCounts::DESCRIBED, &[(one(), stats.prefix.cells())]);
        let io = [
            ("scan_reads", stats.scan_reads),
            ("compaction_reads", stats.compaction_reads),
            ("rebuild_reads", stats.rebuild_reads),
            ("check_reads", stats.check_reads),
            ("open_reads", stats.open_reads),
            ("table_writes", stats.table_writes),
            ("filter_writes", stats.filter_writes),
            ("wal_writes", stats.wal_writes),
        ];
        let rows = io.map(|(kind, io)| (format!("kind=\"{kind}\""), io.cells()));
        self.counters("io_", &Io::DESCRIBED, &rows);
    }
}

/// The label of a level.
pub(crate) fn of_level(level: usize) -> String {
    format!("level=\"{level}\"")
}

/// Documentation without links.
fn plain(doc: &str) -> String {
    let mut text = String::new();
    let mut rest = doc.trim();
    while let Some((before, link)) = rest.split_once('[') {
        let (name, after) = link.split_once(']').unwrap_or((link, ""));
        text += before;
        text += name;
        rest = match after.strip_prefix('(') {
            Some(target) => target.split_once(')').map_or("", |(_, after)| after),
            None => after,
        };
    }
    (text + rest).replace('`', "")
}

impl Stats {
    /// The counts in the text format of OpenMetrics. The names are those of the fields: `criba_activity_lookups_total`,
    /// `criba_levels_disk_reads_total{level="6"}`, `criba_io_bytes_total{kind="wal_writes"}`; `sync_nanos` becomes
    /// `criba_writes_sync_seconds_total`. [`Db::openmetrics`](crate::Db::openmetrics) has more.
    pub fn openmetrics(&self) -> String {
        let mut page = Page::default();
        page.stats(self);
        page.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_shown_by_their_names() {
        assert_eq!(plain(" As [`a`](crate::a), and [b]. [c](d) end"), "As a, and b. c end");
        assert_eq!(plain(" Calls."), "Calls.");
    }

    #[test]
    fn help_has_the_unit_of_the_values() {
        let text = Stats::default().openmetrics();
        let help = "# HELP criba_writes_sync_seconds Their time, in seconds.\n";
        assert!(text.contains(help) && !text.contains("nanoseconds"), "{text}");
    }

    #[test]
    fn no_family_comes_twice() {
        let text = Stats::default().openmetrics();
        let mut names: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
        assert!(all > 60 && text.ends_with("# EOF\n"));
    }
}
