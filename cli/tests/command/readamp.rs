//! `criba readamp`, as a process.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::PathBuf;

use crate::common::page::{assert_stands_alone, parsed, with_id};
use crate::common::terminal::terminal;
use crate::common::{criba, run};
use roxmltree::{Document, Node};
use serde_json::Value;

/// Sizes at which a few thousand keys make several tables on several levels.
const SMALL: &str = "--memtable-bytes 16000 --table-bytes 20000 --level-base-bytes 8000";

fn report(options: &str) -> Value {
    serde_json::from_str(&run(&format!("readamp --json {options}")).well()).expect("JSON")
}

fn sample(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data").join(name)
}

#[track_caller]
fn number(report: &Value, name: &str) -> u64 {
    report[name].as_u64().unwrap_or_else(|| panic!("{name} is {}", report[name]))
}

/// Asserts what holds for every report.
#[track_caller]
fn assert_sound(report: &Value) {
    let of = |name| number(report, name);
    assert_eq!(of("lookups"), of("present") + of("absent"));
    assert_eq!(
        of("probes"),
        of("true_negatives") + of("true_positives") + of("false_positives") + of("unfiltered")
    );
    let avoided = report["reads_avoided"].as_i64().expect("a number");
    assert_eq!(of("disk_reads_unfiltered") as i64 - of("disk_reads") as i64, avoided);
    for sum in [
        "tables",
        "filter_bytes",
        "probes",
        "range_pruned",
        "true_negatives",
        "true_positives",
        "false_positives",
        "disk_reads",
    ] {
        let levels = report["levels"].as_array().expect("a list");
        assert_eq!(levels.iter().map(|level| number(level, sum)).sum::<u64>(), of(sum), "{sum}");
    }
    let passes = report["passes"].as_array().expect("a list");
    assert_eq!(
        passes[..2].iter().map(|pass| number(pass, "disk_reads")).sum::<u64>(),
        of("disk_reads")
    );
    assert_state_is_sound(report, 6);
    if let act @ Value::Object(_) = &report["compaction"] {
        assert_state_is_sound(&act["before"], 6);
        assert_state_is_sound(&act["after"], 7);
    }
    for act in ["batches", "scans"] {
        if let act @ Value::Object(_) = &report[act] {
            assert_checks_hold(act, 4);
        }
    }
    for act in ["other_filters_loaded", "other_filters"] {
        if let act @ Value::Object(_) = &report[act] {
            assert_state_is_sound(&act["state"], 7);
        }
    }
}

/// The four passes, and all checks; but that of the kernel where it has no count.
#[track_caller]
fn assert_state_is_sound(state: &Value, checks: usize) {
    let passes = state["passes"].as_array().expect("a list");
    let names: Vec<_> = passes.iter().map(|pass| pass["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["absent", "present", "absent_unfiltered", "present_unfiltered"]);
    for pass in passes {
        assert!(number(pass, "start_ns") <= number(pass, "end_ns"));
        assert_eq!(pass["disk_reads"], pass["file_reads"]);
        if !pass["kernel_reads"].is_null() {
            assert_eq!(pass["disk_reads"], pass["kernel_reads"]);
        }
    }
    assert_checks_hold(state, checks);
}

#[track_caller]
fn assert_checks_hold(state: &Value, checks: usize) {
    let made = state["checks"].as_object().expect("a map");
    assert_eq!(made.len(), checks);
    for (name, holds) in made {
        if name == "kernel_agrees" && holds.is_null() {
            crate::common::skip(state["check_reasons"][name].as_str().unwrap_or("no count"));
        } else {
            assert_eq!(holds.as_bool(), Some(true), "{name}");
        }
    }
}

#[test]
fn scans_and_batches_are_counted() {
    let options = format!(
        "--present {} --absent {}",
        sample("paths-present.tsv.gz").display(),
        sample("paths-absent.txt.gz").display()
    );
    let report = report(&format!(
        "{options} --memtable-bytes 5000 --table-bytes 5000 --level-base-bytes 5000"
    ));
    assert_sound(&report);
    let scans = &report["scans"];
    assert_eq!(scans["delimiter"], "/");
    assert!(number(scans, "filter_bytes") > number(scans, "filter_bytes_before"));
    let pass = |place: usize| &scans["passes"][place];
    let (absent, without) = (pass(0), pass(2));
    assert_eq!((number(absent, "items"), absent["scans"].clone()), (0, without["scans"].clone()));
    assert!(number(absent, "tables_denied") > 1000 && number(without, "tables_denied") == 0);
    assert!(10 * number(absent, "disk_reads") < number(without, "disk_reads"));
    assert!(number(pass(1), "items") > 1000);
    let batches = &report["batches"];
    assert_eq!(batches["pass"]["disk_reads"], report["passes"][1]["disk_reads"]);
    assert_eq!(number(batches, "announced_unread"), 0);
}

#[test]
fn without_a_cache_each_true_negative_is_a_read_avoided() {
    let report = report(&format!("--n 8000 {SMALL}"));
    assert_sound(&report);
    assert_eq!((number(&report, "present"), number(&report, "absent")), (8000, 8000));
    assert!(report["levels"].as_array().expect("a list").len() >= 2, "{}", report["levels"]);
    assert_eq!(number(&report, "reads_avoided"), number(&report, "true_negatives"));
    let measured = report["fpr_measured"].as_f64().expect("a rate");
    // Two levels, and bits where they avoid most: less than the 1 % of even filters.
    assert!((0.0005..0.01).contains(&measured), "{measured}");
}

/// All fields but the times.
fn counts(mut report: Value) -> Value {
    for state in [
        "",
        "/other_filters_loaded/state",
        "/compaction/before",
        "/compaction/after",
        "/other_filters/state",
    ] {
        let passes = report.pointer_mut(&format!("{state}/passes"));
        for pass in passes.and_then(Value::as_array_mut).expect("a list") {
            for time in ["start_ns", "end_ns"] {
                pass[time].take();
            }
        }
    }
    report["load_ns"].take();
    for varying in ["start_ns", "end_ns"] {
        report["batches"]["pass"][varying].take();
    }
    for varying in ["blocks_announced", "bytes_announced", "announced_unread"] {
        report["batches"][varying].take();
    }
    report
}

#[test]
fn two_runs_count_the_same_and_another_seed_does_not() {
    let line = format!("--n 3000 {SMALL} --cache-bytes 100000 --seed 5");
    let first = counts(report(&line));
    assert_eq!(first, counts(report(&line)));
    let other = counts(report(&line.replace("--seed 5", "--seed 6")));
    assert_ne!(first["disk_reads"], other["disk_reads"]);
}

#[test]
fn a_cache_takes_reads_over_and_the_checks_still_hold() {
    let report = report(&format!("--n 3000 {SMALL} --cache-bytes 100000"));
    assert_sound(&report);
    let blocks = number(&report, "disk_reads") + number(&report, "cache_hits");
    let passes = report["passes"].as_array().expect("a list");
    let unfiltered: u64 = passes[2..]
        .iter()
        .map(|pass| number(pass, "disk_reads") + number(pass, "cache_hits"))
        .sum();
    assert!(number(&report, "cache_hits") > 0);
    assert_eq!(unfiltered - blocks, number(&report, "true_negatives"));
}

#[test]
fn unsettled_keeps_every_table_on_l0() {
    let report = report(&format!("--n 3000 {SMALL} --unsettled"));
    assert_sound(&report);
    let levels = report["levels"].as_array().expect("a list");
    assert_eq!((levels.len(), number(&levels[0], "level")), (1, 0));
    assert!(number(&report, "tables") > 4);
}

#[test]
fn small_numbers() {
    let one = report("--n 1");
    assert_eq!((number(&one, "present"), number(&one, "tables")), (1, 1));
    assert_sound(&one);

    let fifty = report("--n 50");
    assert_sound(&fifty);

    let none = report("--n 50 --lookups 0");
    assert_eq!((number(&none, "lookups"), number(&none, "disk_reads")), (0, 0));
    assert_sound(&none);
    assert_eq!(number(&none["first_probes"], "probes"), 0);
}

/// Files come in pairs; a single one is an error, with all other options.
#[test]
fn an_absent_file_alone_is_wrong_usage() {
    let output = run("readamp --n 50 --absent nofile");
    assert_eq!(output.code, 2, "{}", output.err);
}

/// Several runs have filters of their own: an option that they would ignore is an error.
#[test]
fn options_that_several_runs_would_ignore_are_wrong_usage() {
    for ignored in
        ["--policy ribbon", "--hash murmurhash2", "--allocation uniform", "--filter none"]
    {
        let told = run(&format!("readamp --n 50 --sweep bits=8..8 {ignored}"));
        assert_eq!((told.code, told.out.as_str()), (2, ""), "{ignored}: {}", told.err);
    }
    let told = run("readamp --n 50 --compare --filter none").error(2);
    assert!(told.contains("--compare and --filter none contradict each other"), "{told}");
    run("readamp --n 50 --compare --filter ribbon").well();
}

/// More lookups than keys: the keys repeat.
#[test]
fn the_number_of_lookups_is_the_requested_one() {
    for lookups in [20, 130] {
        let report = report(&format!("--n 50 --lookups {lookups}"));
        assert_sound(&report);
        assert_eq!((number(&report, "present"), number(&report, "absent")), (lookups, lookups));
    }
}

#[test]
fn filters_of_the_requested_policy_and_none() {
    let bits = report(&format!("--n 3000 {SMALL} --policy classic --bits-per-key 4.5"));
    assert_sound(&bits);
    let rate = bits["fpr_measured"].as_f64().expect("a rate");
    assert!((0.08..0.2).contains(&rate), "{rate}");

    // Filters of so few bits are not worth their memory: the plan has none for one run.
    let few = report(&format!("--n 3000 {SMALL} --bits-per-key 0.5"));
    assert_sound(&few);
    assert_eq!(number(&few["compaction"], "filters_rebuilt"), 0);

    let none = report(&format!("--n 3000 {SMALL} --bits-per-key 0"));
    assert_sound(&none);
    assert_eq!(number(&none, "reads_avoided"), 0);
    assert_eq!(number(&none, "unfiltered"), number(&none, "probes"));
    assert_eq!((number(&none, "filter_bytes"), number(&none, "degraded")), (0, 0));
}

#[test]
fn sample_files_packed_and_plain() {
    let names = ["paths-present.tsv.gz", "paths-absent.txt.gz"].map(sample);
    let line = |[present, absent]: [PathBuf; 2]| {
        format!("--present {} --absent {} {SMALL}", present.display(), absent.display())
    };
    let packed = report(&line(names.clone()));
    assert_sound(&packed);
    assert_eq!((number(&packed, "present"), number(&packed, "absent")), (1000, 1000));

    // Plain, with the first present key among the absent ones.
    let dir = tempfile::tempdir().expect("a temporary directory");
    let [present, absent] = names.map(|name| {
        let mut text = String::new();
        let file = fs::File::open(name).expect("the sample");
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("gzip");
        text
    });
    let first = present.split('\t').next().expect("a key");
    let plain = ["p", "a"].map(|name| dir.path().join(name));
    fs::write(&plain[0], &present).expect("a file");
    fs::write(&plain[1], format!("{absent}{first}\n")).expect("a file");
    let plain_report = report(&line(plain.clone()));
    assert_eq!(number(&plain_report["setup"], "absent_present"), 1);
    for name in ["absent", "disk_reads", "true_negatives", "false_positives"] {
        assert_eq!(plain_report[name], packed[name], "{name}");
    }
    let told = run(&format!("readamp {}", line(plain))).well();
    assert!(told.contains("1 line of the absent file left out: the key is present"), "{told}");
}

#[test]
fn files_that_do_not_fit() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (empty, key) = (dir.path().join("empty"), dir.path().join("key"));
    fs::write(&empty, "").expect("a file");
    fs::write(&key, "k\n").expect("a file");
    let line = |present: &PathBuf, absent: &PathBuf| {
        format!("readamp --json --present {} --absent {}", present.display(), absent.display())
    };
    let told = run(&line(&empty, &key)).error(3);
    assert!(told.contains("empty: expected at least one key"), "{told}");
    let told = run(&line(&key, &dir.path().join("none"))).error(3);
    assert!(told.contains("none: cannot open"), "{told}");
    // An empty set of absent keys is an error only with `--lookups`.
    run(&line(&key, &key)).well();
    run(&(line(&key, &key) + " --lookups 3")).error(2);
}

#[test]
fn a_directory_in_use_is_refused_and_a_requested_one_is_kept() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = dir.path().join("deep/store");
    let line = format!("readamp --n 50 --dir {}", store.display());
    run(&line).well();
    let scanned = run(&format!("scan {}", store.display())).well();
    assert_eq!(scanned.lines().count(), 48, "two of fifty were deleted");
    let error = run(&line).error(3);
    assert_eq!(
        error,
        format!("criba: {}: expected an empty directory or none, found a store\n", store.display())
    );
    let error = run(&format!("readamp --n 50 --dir {}", dir.path().display())).error(3);
    assert!(error.contains("found files"), "{error}");
}

#[test]
fn the_output_fits_in_80_columns_and_begins_with_the_answer() {
    let line = format!("readamp --n 3000 {SMALL} --filter bloom --cache-bytes 100000");
    let told = run(&line).well();
    for line in told.lines() {
        assert!(line.chars().count() <= 80 && line.trim_end() == line, "{line}");
    }
    let names: Vec<_> =
        told.lines().take(6).map(|line| line.split_once(':').expect("a name").0).collect();
    let expected = ["Absent key", "Present key", "Ribbon", "Absent scan", "Compaction", "Checks"];
    assert_eq!(names, expected);
    assert!(told.contains("\ntotal "), "{told}");
    let (before, table) = told.split_once("\nchecks ").expect("the table of checks");
    let made = |text: &str, holds: &str, not_checked: &str| {
        text.matches(holds).count() + text.matches(not_checked).count()
    };
    assert_eq!(made(before, " holds", " NOT CHECKED"), 8, "{told}");
    assert_eq!(made(table, "  holds", "  NOT CHECKED"), 33, "{told}");
}

fn said(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn texts(page: &Document) -> Vec<String> {
    let texts = page.descendants().filter(Node::is_text);
    texts.filter_map(|node| node.text()).map(said).collect()
}

#[test]
fn the_page_says_where_it_comes_from_and_shows_only_levels_with_tables() {
    let dir = tempfile::tempdir().expect("a directory");
    let line = format!("readamp --n 3000 {SMALL} --seed 7 --report {}", dir.path().display());
    let printed = run(&line).well();
    let text = fs::read_to_string(dir.path().join("report.html")).expect("a page");
    let words = texts(&parsed(&text));
    let stated = |name: &str| {
        let place = words.iter().position(|word| word == name).expect("a name");
        &words[place + 1]
    };
    assert_eq!(stated("command"), &format!("criba {line}"));
    assert_eq!(stated("version"), &format!("criba {}", env!("CARGO_PKG_VERSION")));
    assert_eq!(stated("seed"), "7");
    assert!(stated("machine").contains(std::env::consts::OS), "{}", stated("machine"));
    assert!(stated("date").starts_with("20") && stated("date").ends_with(" UTC"));
    let levels = |words: &mut dyn Iterator<Item = &str>| {
        let level = |word: &&str| word.len() == 2 && word.starts_with('L');
        words.filter(level).map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let with_tables = levels(&mut printed.lines().filter_map(|line| line.get(..2)));
    assert!((1..7).contains(&with_tables.len()), "{printed}");
    assert_eq!(levels(&mut words.iter().map(String::as_str)), with_tables);
}

#[test]
fn the_page_has_what_was_printed_and_its_figures() {
    let parent = tempfile::tempdir().expect("a directory");
    let dir = parent.path().join("report");
    for filters in ["", "--filter none"] {
        let line = format!("readamp --n 3000 {SMALL} {filters} --report {}", dir.display());
        let printed = run(&line).well();
        let text = fs::read_to_string(dir.join("report.html")).expect("a page");
        assert_stands_alone(&text);
        let page = parsed(&text);
        let words = texts(&page);
        for line in printed.lines().take(5).filter(|line| !line.is_empty()) {
            assert!(words.contains(&said(line)), "{line}");
        }
        let figures: Vec<_> =
            page.descendants().filter(|node| node.has_tag_name("figure")).collect();
        // Without filters there are no rates.
        assert_eq!(figures.len(), if filters.is_empty() { 6 } else { 5 });
        for figure in figures {
            let stem = figure.attribute("id").expect("a name");
            with_id(&page, stem);
            let of_figure =
                |name| figure.descendants().filter(move |node| node.has_tag_name(name)).count();
            assert_eq!((of_figure("title"), of_figure("figcaption")), (1, 1), "{stem}");
            for kind in ["svg", "csv"] {
                assert!(dir.join(format!("{stem}.{kind}")).exists(), "{stem}.{kind}");
            }
        }
        for link in page.descendants().filter_map(|node| node.attribute("href")) {
            assert!(dir.join(link).exists(), "{link}");
        }
        let checks = fs::read_to_string(dir.join("checks.csv")).expect("a table");
        let all = if filters.is_empty() { 41 } else { 23 }; // there are no other filters without filters
        assert_eq!(checks.lines().count(), 1 + all, "{checks}");
    }
    // What an earlier run left, and this one has no points for, is gone.
    assert!(!dir.join("readamp-rates-by-level.svg").exists());
    let line = format!("readamp --n 100 --report {}", parent.path().display());
    run(&line).error(3);
}

#[test]
fn a_comparison_runs_every_kind_over_as_many_bytes() {
    let sizes = "--memtable-bytes 100000 --table-bytes 200000 --level-base-bytes 50000";
    let line = format!("readamp --json --compare --n 20000 {sizes}");
    let comparison: Value = serde_json::from_str(&run(&line).well()).expect("JSON");
    let printed = run(&line.replace("--json", "")).well();
    assert!(printed.lines().all(|line| line.chars().count() <= 80), "{printed}");
    let rows = comparison["rows"].as_array().expect("a list");
    let names: Vec<_> = rows.iter().map(|row| row["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["classic", "bloom balanced (default)", "ribbon uniform", "ribbon balanced"]);
    assert_eq!(comparison["same_size"].as_bool(), Some(true), "{comparison:#}");
    assert_eq!(comparison["checks_hold"].as_bool(), Some(true));
    let classic = number(&rows[0], "filter_bytes");
    for row in rows {
        assert_eq!(number(row, "absent"), 20_000);
        assert!(number(row, "filter_bytes").abs_diff(classic) * 100 <= classic, "{row:#}");
    }
}

#[test]
fn a_sweep_names_the_sorted_runs_of_its_stores() {
    let dir = tempfile::tempdir().expect("a directory");
    for shape in ["--unsettled", "--one-run"] {
        let line = format!("readamp --json --n 3000 --sweep bits=8..8 {SMALL} {shape}");
        let printed = run(&format!("{line} --report {}", dir.path().display())).well();
        let sweep: Value = serde_json::from_str(&printed).expect("JSON");
        let text = fs::read_to_string(dir.path().join("report.html")).expect("a page");
        let words = texts(&parsed(&text));
        assert!(words.iter().any(|word| word == "sorted runs"), "{text}");
        for row in sweep["runs"].as_array().expect("a list") {
            let tables = number(row, "tables");
            assert!(tables > 1, "{row}");
            let runs = if shape == "--unsettled" { tables } else { 1 };
            assert_eq!(number(row, "sorted_runs"), runs, "{row}");
        }
    }
}

/// Small filters are far apart in size: 12 tables have 25,856 to 26,592 bytes of them.
#[test]
fn filters_of_few_keys_are_of_one_size() {
    for keys in ["20000 --zipf 0.99", "300"] {
        let told = run(&format!("readamp --n {keys} --compare")).well();
        assert!(told.contains("holds    all filters take the same bytes, within 2 %\n"), "{told}");
        assert!(told.lines().all(|line| line.chars().count() <= 80), "{told}");
    }
}

#[test]
fn a_comparison_draws_which_policy_of_how_many_is_running() {
    let (screen, drawn) = terminal();
    let mut command = criba(["readamp", "--n", "2000", "--compare"]);
    let end = command.stderr(screen).output().expect("it starts");
    drop(command); // and its end of the terminal
    assert!(end.status.success(), "{end:?}");
    let drawn = drawn.join().expect("no panic");
    for policy in
        ["1 of 4, classic loading", "2 of 4, bloom balanced (default) ", "4 of 4, ribbon balanced "]
    {
        assert!(drawn.contains(policy), "{policy}: {drawn:?}");
    }
}

/// 0.9999 of all reads is not all: with 20 bits, 2 of 19,984 are left.
#[test]
fn a_share_of_reads_is_100_percent_only_if_no_read_is_left() {
    for (filters, share) in
        [("bloom --bits-per-key 20", "99.9 %"), ("ribbon --bits-per-key 24", "100.0 %")]
    {
        let line = format!("readamp --n 20000 --filter {filters} --only-lookups");
        let told = run(&line).well();
        let first = told.lines().next().expect("a line");
        assert!(first.ends_with(&format!(" {share} avoided")), "{first}");
        let report = report(&line["readamp ".len()..]);
        assert_eq!(number(&report["passes"][0], "disk_reads") == 0, share == "100.0 %");
    }
}

#[test]
fn a_budget_leaves_filters_on_disk() {
    let line =
        format!("--n 20000 {SMALL} --lookups 20000 --zipf 0.99 --policy classic --bits-per-key 4");
    let without = report(&line);
    assert_sound(&without);
    // Fields of earlier versions, which programs may read.
    assert_eq!((number(&without, "remembered"), &without["setup"]["memo"]), (0, &Value::from(0)));

    let half = number(&without, "filter_bytes") / 2;
    let budget = report(&format!("{line} --filter-memory {half}"));
    assert_sound(&budget);
    assert!(number(&budget, "filter_bytes") <= half);
}

#[test]
fn absent_keys_of_a_zipf_distribution_come_round_again() {
    let zipf = report(&format!("--n 3000 {SMALL} --lookups 6000 --zipf 0.99 --history 100"));
    assert_sound(&zipf);
    assert_eq!(number(&zipf["setup"], "history"), 100);
    assert_eq!(number(&zipf, "absent"), 6000);
    assert!(number(&zipf["first_probes"], "probes") > 0);
}

/// The check of the rate covers each distinct absent key, and each once: 60,000 draws from 60,000 keys miss
/// 1/e of them. In one run, a key probes one table.
#[test]
fn the_rate_is_checked_with_every_distinct_absent_key() {
    let drawn = report("--n 3000 --one-run --lookups 60000 --zipf 0");
    assert_sound(&drawn);
    let probes = number(&drawn["first_probes"], "probes");
    assert!((37_500..38_300).contains(&probes), "{probes}");
    assert!(number(&drawn, "false_positives") > number(&drawn["first_probes"], "found"));
}

#[test]
fn a_compaction_rebuilds_filters_of_the_keys_that_are_left() {
    let report = report(&format!("--n 8000 {SMALL}"));
    assert_sound(&report);
    let act = &report["compaction"];
    let (before, after) = (&act["before"], &act["after"]);
    let changed = ["overwritten", "deleted", "expired"].map(|field| number(act, field));
    assert_eq!(changed, [800, 200, 200]);
    // The entry that has expired, and none of the values that it hides.
    assert_eq!(number(act, "expired_dropped"), 200);
    // The changes are one table more.
    assert_eq!(number(act, "tables_in"), number(&report, "tables") + 1);
    assert_eq!(number(act, "tables_in"), number(before, "tables"));
    assert_eq!(number(act, "tables_out"), number(after, "tables"));
    assert_eq!(number(act, "filters_rebuilt"), number(after, "tables"));
    let keys = [before, after].map(|state| number(state, "filter_keys"));
    assert_eq!(keys, [8000 + 800 + 400, 8000 - 400]);
    // Each tombstone and expired entry costs a read; after the compaction, only a mistake does.
    assert_eq!(number(before, "absent"), 8400);
    assert_eq!(number(before, "found_in_tables"), 400);
    assert_eq!(number(after, "found_in_tables"), 0);
    assert!(number(before, "deleted_blocks") >= 400);
    assert!(number(after, "deleted_blocks") < 20, "{after:#}");
    assert!(number(before, "disk_reads") > number(after, "disk_reads") + 300);
}

#[test]
fn other_filters_take_the_same_bytes_and_touch_no_table() {
    for (filter, other) in [("bloom", "ribbon"), ("ribbon", "bloom")] {
        // In tables of some thousand keys each, as the default is.
        let report = report(&format!("--n 40000 --filter {filter} --level-base-bytes 100000"));
        assert_sound(&report);
        let (act, own) = (&report["other_filters"], &report["compaction"]["after"]);
        assert_eq!(act["kind"].as_str(), Some(other));
        assert_eq!(number(act, "rebuilt"), number(own, "tables"));
        assert_eq!(number(act, "table_files"), number(own, "tables"));
        let [bytes, before] =
            [number(&act["state"], "filter_bytes"), number(act, "filter_bytes_before")];
        assert_eq!(before, number(own, "filter_bytes"));
        assert!(bytes.abs_diff(before) * 100 <= before, "{bytes}, {before}");
        let reads = |state: &Value| number(state, "disk_reads");
        let (ribbon, bloom) =
            if other == "ribbon" { (&act["state"], own) } else { (own, &act["state"]) };
        assert!(3 * reads(ribbon) < 2 * reads(bloom), "{} and {}", reads(ribbon), reads(bloom));
        // And beside the tables of the loaded store, whose own reads they leave as they were.
        let (loaded, own) = (&report["other_filters_loaded"], &report["passes"]);
        assert_eq!(number(loaded, "rebuilt"), number(&report, "tables"));
        let other = &loaded["state"]["passes"];
        let reads = |passes: &Value, pass: usize| number(&passes[pass], "disk_reads");
        assert_eq!((reads(other, 2), reads(other, 3)), (reads(own, 2), reads(own, 3)));
        let (ribbon, bloom) = if filter == "bloom" { (other, own) } else { (own, other) };
        assert!(3 * reads(ribbon, 0) < 2 * reads(bloom, 0), "{loaded:#}");
    }
}

#[test]
fn only_lookups_is_the_first_act() {
    let [all, only] =
        ["", "--only-lookups"].map(|more| report(&format!("--n 3000 {SMALL} {more}")));
    assert_sound(&only);
    assert!(only["compaction"].is_null() && only["other_filters"].is_null());
    for field in ["levels", "disk_reads", "false_positives", "first_probes", "checks", "setup"] {
        assert_eq!(all[field], only[field], "{field}");
    }
}
