//! What the advisor predicts, against what `readamp` then counts.

#[allow(dead_code, reason = "used in part")]
#[path = "../../tests/common/sweeps.rs"]
mod sweeps;
#[path = "../../tests/common/tempdir.rs"]
mod tempdir;

use std::path::Path;

use criba::{Advice, Allocation, FilterKind, FilterPolicy, Options};
use criba_cli::readamp::input::Input;
use criba_cli::readamp::report::Report;
use criba_cli::readamp::run_in;
use criba_cli::readamp::settings::Settings;

const KEYS: u64 = 31_744;
const ABSENT: u64 = 100_000;
/// Filters count in the sizes that start compactions. Beside long values they hardly matter, so stores
/// under different policies have nearly the same tables.
const VALUE_BYTES: usize = 300;

/// 99.9 % on both sides, for a sum of rare events: the upper tail of Poisson's distribution is a little
/// heavier than the normal one's.
const DEVIATIONS: f64 = 3.5;
/// A store under another policy may have other table boundaries, and balanced filters keep the sizes that were
/// planned when they were written.
const OTHER_STORE: f64 = 0.10;
/// The same store: the shares of the key range are estimated from blocks.
const SAME_STORE: f64 = 0.03;

fn settings(filter: FilterPolicy) -> Settings {
    Settings {
        filter,
        lookups: None,
        memtable_bytes: 80_000,
        table_bytes: 80_000,
        level_base_bytes: 5_000,
        ..Settings::default()
    }
}

/// Measures a new store, and calls `advise`.
fn run(dir: &Path, input: &Input, filter: FilterPolicy) -> (Report, Advice) {
    let report = run_in(dir, input, &settings(filter)).expect("a measurement");
    assert_eq!(report.checks.failed().count(), 0);
    let db = Options::new().open_read_only(dir).expect("the store");
    (report, db.advise())
}

/// Compares the advice with the pass of absent keys.
fn check(what: &str, advised: f64, report: &Report, slack: f64) {
    let pass = &report.passes[0];
    assert_eq!((pass.name, pass.lookups), ("absent", ABSENT));
    let expected = advised * pass.lookups as f64;
    let off = pass.disk_reads as f64 - expected;
    let allowed = DEVIATIONS * expected.sqrt() + slack * expected;
    let levels: Vec<_> = report.levels.iter().map(|l| (l.level, l.tables, l.keys)).collect();
    println!(
        "{what}: {} reads of {} absent lookups, {expected:.0} advised: {:+.1} %, {:.1} % allowed; \
         (level, tables, keys) {levels:?}",
        pass.disk_reads,
        pass.lookups,
        100.0 * off / expected,
        100.0 * allowed / expected,
    );
    assert!(report.levels.len() >= 3, "{}", report.levels.len());
    assert!(off.abs() <= allowed, "{what}: {} reads, {expected:.1} advised", pass.disk_reads);
}

#[test]
fn readamp_counts_what_tune_predicts() {
    let mut input = Input::made_up(KEYS, ABSENT, 1);
    input.present.iter_mut().for_each(|(_, value)| value.resize(VALUE_BYTES, b'.'));
    let dir = tempdir::tempdir();
    let store = |name: &str| dir.path().join(name);
    let (report, advice) = run(&store("today"), &input, FilterPolicy::default());
    check("today, as it stands", advice.reads_per_absent_lookup, &report, SAME_STORE);
    assert_eq!((advice.tables, advice.filter_bytes), (report.tables, report.filter_bytes));

    let rows = [
        (-2, FilterKind::Bloom, Allocation::Uniform),
        (-1, FilterKind::Ribbon, Allocation::Uniform),
        (0, FilterKind::Ribbon, Allocation::Uniform),
        (0, FilterKind::Ribbon, Allocation::Balanced),
        (2, FilterKind::Ribbon, Allocation::Balanced),
    ];
    let step = if sweeps::is_full() { 1 } else { 2 };
    for (change, kind, allocation) in rows.into_iter().step_by(step) {
        let row = advice
            .estimates
            .iter()
            .find(|e| (e.change, e.kind, e.allocation) == (change, kind, allocation))
            .expect("a row");
        let policy = FilterPolicy::bits_per_key(row.bits_per_key);
        let policy = policy.with_kind(kind).with_allocation(allocation);
        let name = format!("{kind} {allocation:?} {change:+}");
        let (report, then) = run(&store(&name.replace(' ', "-")), &input, policy);
        check(&name, row.reads_per_absent_lookup, &report, OTHER_STORE);
        // The fresh store's own filters, asked for their part of the difference.
        let own = then.reads_per_absent_lookup / row.reads_per_absent_lookup - 1.0;
        let bytes = report.filter_bytes as f64 / row.filter_bytes as f64 - 1.0;
        println!(
            "    by the headers of its own filters {:+.1} %, bytes {:+.1} %",
            100.0 * own,
            100.0 * bytes
        );
        assert!(own.abs() < OTHER_STORE && bytes.abs() < 0.03, "{name}: {own}, {bytes}");
    }
}
