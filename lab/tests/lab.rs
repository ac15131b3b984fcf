//! `criba-lab` as a process; and experiments in their quick form, run once for several tests: some by
//! default, or all:
//!
//! ```sh
//! CRIBA_LAB=all cargo test -p criba-lab --test lab -- --nocapture
//! ```

// As the tests of the command read them.
#[path = "../../cli/tests/command/common/page.rs"]
mod page;
#[path = "../../cli/tests/command/common/run.rs"]
mod run;

use std::collections::HashSet;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use criba_lab::check::{Check, Law};
use criba_lab::claims::all;
use criba_lab::experiment::{Experiment, Size};
use criba_lab::experiments::ALL;
use criba_lab::input::real_paths;
use criba_lab::report::report;
use criba_lab::run::{Outcome, Run};
use criba_report::figure::{Axis, Figure, Scale, Style};
use page::{assert_stands_alone, parsed, with_id};
use roxmltree::Node;

const SEED: u64 = 1;

/// Runs a command line without quoted parts.
fn run(line: &str) -> run::Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_criba-lab"));
    command.args(line.split_whitespace()).stdin(Stdio::null());
    run::Run::new(command.output().expect("the command starts"))
}

/// Experiments of a second or two, with all kinds of figures and checks.
const SHORT: [&str; 4] = ["small-filter", "hash-families", "variants", "toy"];

/// The experiments of this run, several at least.
fn experiments() -> Vec<&'static Experiment> {
    let all = match std::env::var("CRIBA_LAB").as_deref() {
        Err(_) => false,
        Ok("all") => true,
        Ok(other) => panic!("CRIBA_LAB is all, or not set, not {other:?}"),
    };
    let chosen: Vec<_> =
        ALL.iter().filter(|experiment| all || SHORT.contains(&experiment.name)).collect();
    assert!(chosen.len() >= SHORT.len());
    chosen
}

fn quick_run() -> &'static Run {
    static RUN: OnceLock<Run> = OnceLock::new();
    RUN.get_or_init(|| {
        Run::new(&experiments(), Size::Quick, SEED, real_paths()).expect("nothing fails")
    })
}

#[test]
fn every_check_of_a_quick_run_holds() {
    let run = quick_run();
    println!("seed {SEED}: {} checks, {} of them decide", run.checks().count(), decided().count());
    let failed: Vec<_> = run.failed().map(|(name, check)| (name, &check.quantity)).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

fn decided() -> impl Iterator<Item = (&'static str, &'static Check)> {
    quick_run().checks().filter(|(_, check)| check.decides)
}

/// Each expectation is shifted by 20 %, down and up; a rate above 1 is left out.
#[test]
fn a_check_whose_theory_is_shifted_by_a_fifth_fails() {
    let (mut shifted, mut passed) = (0, Vec::new());
    for (experiment, check) in decided() {
        for factor in [0.8, 1.2] {
            let wrong = check.shifted(factor);
            if matches!(wrong.law, Law::Share { .. }) && wrong.theory > 1.0 {
                continue;
            }
            shifted += 1;
            if quick_run().verdict(&wrong).ok {
                passed.push(format!("{experiment}: {} × {factor}", check.quantity));
            }
        }
    }
    println!("seed {SEED}: {} checks shifted in {shifted} ways", decided().count());
    assert!(passed.is_empty(), "not noticed: {passed:#?}");
    assert!(shifted >= decided().count());
}

#[test]
fn the_quantities_of_an_experiment_differ() {
    let mut seen = HashSet::new();
    for (experiment, check) in quick_run().checks() {
        assert!(seen.insert((experiment, &check.quantity)), "{experiment}: {}", check.quantity);
    }
}

/// But for links to the data that is written beside it.
#[test]
fn the_page_stands_alone() {
    let run = quick_run();
    let mut text = report(run);
    let stems = run.outcomes.iter().flat_map(|outcome| {
        outcome.notes.figures.iter().map(|figure| figure.file_stem(outcome.experiment.name))
    });
    for stem in stems.chain(["checks".into()]) {
        let link = format!(" href=\"{stem}.csv\"");
        assert_eq!(text.matches(&link).count(), 1, "{stem}");
        text = text.replace(&link, "");
    }
    assert_stands_alone(&text);
}

/// The rows of docs/lab.md whose checks were made here agree with them; one that is a fifth off does not.
#[test]
fn the_document_has_what_the_checks_measure() {
    let run = quick_run();
    let stale = run.stale(&all());
    assert!(stale.is_empty(), "{stale:#?}");
    let mut wrong: Vec<_> = all().into_iter().filter(|row| run.check_of(row).is_some()).collect();
    println!("{} rows have a check in this run", wrong.len());
    assert!(wrong.len() > 20);
    for row in &mut wrong {
        let theory = run.check_of(row).expect("just filtered").theory;
        row.ours = format!("{}", 1.2 * theory);
    }
    assert_eq!(run.stale(&wrong).len(), wrong.len());
    wrong[0].answer = "`toy: no such check`".into();
    assert!(run.stale(&wrong)[0].contains("there is no check"));
}

#[test]
fn each_experiment_has_its_figures_and_each_check_its_place() {
    let text = report(quick_run());
    let page = parsed(&text);
    for outcome in &quick_run().outcomes {
        let section = with_id(&page, outcome.experiment.name);
        let figures = section.descendants().filter(|node| node.has_tag_name("figure")).count();
        assert!(figures > 0, "{}", outcome.experiment.name);
        assert_eq!(figures, outcome.notes.figures.len());
        let ids: Vec<_> = outcome.notes.figures.iter().map(|figure| figure.id).collect();
        for check in &outcome.notes.checks {
            let place = check.figure;
            assert!(place.is_empty() || ids.contains(&place), "{}: {place}", check.quantity);
            let shown = |node: Node| node.text() == Some(&check.quantity);
            assert!(section.descendants().any(shown), "{}", check.quantity);
        }
    }
}

/// The drawn points are those of the CSV, in order: each coordinate is the same linear function of the
/// value, or of its logarithm.
#[test]
fn every_plotted_point_is_in_the_csv() {
    let text = report(quick_run());
    let page = parsed(&text);
    let (mut figures, mut points) = (0, 0);
    for outcome in &quick_run().outcomes {
        for figure in &outcome.notes.figures {
            let id = figure.file_stem(outcome.experiment.name);
            let drawn = drawn_points(with_id(&page, &id), figure);
            let csv = String::from_utf8(figure.csv()).expect("text");
            let mut rows = csv::Reader::from_reader(csv.as_bytes());
            let rows: Vec<(String, f64, f64)> = rows
                .records()
                .map(|row| {
                    let row = row.expect("a record");
                    let number = |column: usize| row[column].parse().expect("a number");
                    (row[0].to_owned(), number(row.len() - 2), number(row.len() - 1))
                })
                .collect();
            let mut of_csv = Vec::new();
            for series in &figure.series {
                let of_series = rows.iter().filter(|row| row.0 == series.name);
                let of_series: Vec<_> = of_series.map(|(_, x, y)| (*x, *y)).collect();
                let times = if series.style == Style::Marked { 2 } else { 1 };
                of_csv.extend(of_series.repeat(times));
            }
            assert_eq!(of_csv.len(), drawn.len(), "{id}");
            let (values, places): (Vec<_>, Vec<_>) =
                of_csv.iter().zip(&drawn).map(|(value, place)| (value.0, place.0)).unzip();
            assert_linear(&id, &figure.x, &values, &places);
            let (values, places): (Vec<_>, Vec<_>) =
                of_csv.iter().zip(&drawn).map(|(value, place)| (value.1, place.1)).unzip();
            assert_linear(&id, &figure.y, &values, &places);
            figures += 1;
            points += drawn.len();
        }
    }
    println!("seed {SEED}: {points} points in {figures} figures");
}

/// The legend is below this.
const PLOT_HEIGHT: f64 = 1000.0;

/// The points of a figure, in the order of its series.
fn drawn_points(figure: Node, of: &Figure) -> Vec<(f64, f64)> {
    let number = |node: Node, name: &str| -> f64 {
        node.attribute(name).and_then(|text| text.parse().ok()).expect("a number")
    };
    let corners = |node: Node| -> Vec<(f64, f64)> {
        let text = node.attribute("points").expect("points");
        let pairs = text.split_whitespace().map(|pair| pair.split_once(',').expect("a pair"));
        pairs.map(|(x, y)| (x.parse().expect("x"), y.parse().expect("y"))).collect()
    };
    let (mut lines, mut marks, mut bars) = (Vec::new(), Vec::new(), Vec::new());
    for node in figure.descendants() {
        match node.tag_name().name() {
            "polyline" if node.attribute("stroke-width") == Some("6") => lines.push(corners(node)),
            "polygon" => {
                let corners = corners(node);
                let n = corners.len() as f64;
                let sum = corners.iter().fold((0.0, 0.0), |(x, y), p| (x + p.0 / n, y + p.1 / n));
                marks.push(sum);
            }
            "rect" if node.attribute("opacity") != Some("1") => {
                let middle = number(node, "x") + number(node, "width") / 2.0;
                bars.push((middle, number(node, "y")));
            }
            _ => {}
        }
    }
    lines.retain(|line| line[0].1 < PLOT_HEIGHT);
    marks.retain(|mark| mark.1 < PLOT_HEIGHT);
    bars.retain(|bar| bar.1 < PLOT_HEIGHT);
    let (mut lines, mut marks, mut bars) = (lines.into_iter(), marks.into_iter(), bars.into_iter());
    let mut drawn = Vec::new();
    for series in &of.series {
        let n = series.points.len();
        if matches!(series.style, Style::Line | Style::Marked) {
            drawn.extend(lines.next().expect("a line"));
        }
        if series.style == Style::Stems {
            assert_eq!(lines.by_ref().take(n).count(), n);
        }
        match series.style {
            Style::Marks | Style::Marked | Style::Stems => drawn.extend(marks.by_ref().take(n)),
            Style::Bars => drawn.extend(bars.by_ref().take(n)),
            Style::Line => {}
            Style::Rows => unreachable!("the lab has no such figure"),
        }
    }
    let left = lines.count() + marks.count() + bars.count();
    assert_eq!(left, 0, "nothing is drawn beside the series");
    drawn
}

fn assert_linear(id: &str, axis: &Axis, values: &[f64], places: &[f64]) {
    let scaled = |value: f64| if axis.scale == Scale::Log { value.ln() } else { value };
    let points: Vec<_> = values.iter().map(|v| scaled(*v)).zip(places.iter().copied()).collect();
    let by_value = |a: &&(f64, f64), b: &&(f64, f64)| a.0.total_cmp(&b.0);
    let low = points.iter().min_by(by_value).expect("a point");
    let high = points.iter().max_by(by_value).expect("a point");
    if high.0 - low.0 < 1e-12 {
        return;
    }
    let slope = (high.1 - low.1) / (high.0 - low.0);
    for point in &points {
        let off = point.1 - (low.1 + slope * (point.0 - low.0));
        assert!(off.abs() < 3.0, "{id}, {}: {point:?} is {off} off", axis.label);
    }
}

#[test]
fn two_runs_count_the_same_and_another_seed_does_not() {
    let dir = tempfile::tempdir().expect("a directory");
    let checks = |name: &str, seed: u64| {
        let out = dir.path().join(name);
        let line = format!("variants toy --seed {seed} --out {}", out.display());
        let said = run(&line).well();
        assert!(said.contains("report.html"), "{said}");
        fs::read_to_string(out.join("checks.csv")).expect("the checks")
    };
    let first = checks("a", 5);
    assert_eq!(first, checks("a", 5), "in the directory of the first run");
    assert_ne!(first, checks("b", 6));
    assert!(first.starts_with("experiment,quantity,trials,theory,measured,low,high,ok\n"));
}

/// Its random draws do not depend on earlier experiments; only the bounds do.
#[test]
fn an_experiment_alone_counts_what_it_counts_among_others() {
    let among = |outcome: &&Outcome| outcome.experiment.name == SHORT[2];
    let among = quick_run().outcomes.iter().find(among).expect("made in every run");
    let alone =
        Run::new(&[among.experiment], Size::Quick, SEED, real_paths()).expect("nothing fails");
    let counts = |outcome: &Outcome| -> Vec<f64> {
        outcome.notes.checks.iter().map(|check| check.measured).collect()
    };
    assert_eq!(counts(&alone.outcomes[0]), counts(among));
}

/// The sample's present keys, with other absent ones: counts of other keys do not change.
#[test]
fn real_keys_are_those_of_the_files_that_are_brought() {
    let dir = tempfile::tempdir().expect("a directory");
    let present = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/paths-present.tsv.gz");
    let (absent, out) = (dir.path().join("absent"), dir.path().join("out"));
    let command = format!(
        "hash-families --out {} --present {present} --absent {}",
        out.display(),
        absent.display()
    );
    run(&command).error(3);
    let others: Vec<String> = (0..1000).map(|i| format!("/no/such/path/{i}")).collect();
    fs::write(&absent, others[1..].join("\n")).expect("a file");
    let few = run(&command).error(3);
    assert!(few.contains("1000 distinct keys") && few.contains("999"), "{few}");
    assert!(!out.exists(), "made before the keys were read");
    fs::write(&absent, others.join("\n")).expect("a file");
    run(&command).well();
    let brought = fs::read_to_string(out.join("checks.csv")).expect("the checks");
    let sample = String::from_utf8(quick_run().csv()).expect("text");
    let rows = |checks: &str, keys: &str| {
        let rows = checks.lines().filter(|row| row.starts_with("hash-families,"));
        // But for the bounds, which depend on how many checks a run decides.
        let measured = |row: &str| row.rsplitn(4, ',').last().expect("a column").to_owned();
        let rows: Vec<_> = rows.filter(|row| row.contains(keys)).map(measured).collect();
        assert!(!rows.is_empty(), "no row of {keys}");
        rows
    };
    assert_eq!(rows(&brought, "random names"), rows(&sample, "random names"));
    let brought = rows(&brought.replace("keys of files", "real paths"), "real paths");
    assert_ne!(brought, rows(&sample, "real paths"));
}

#[test]
fn wrong_lines_are_refused_before_anything_is_made() {
    let refusal = run("tou").error(2);
    assert!(refusal.contains("toy"), "{refusal}");
    assert_eq!(run("toy --quick --full").code, 2);
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("mine"), "kept").expect("a file");
    run(&format!("toy --out {}", dir.path().display())).error(3);
    assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), 1);
}

#[test]
fn the_list_names_every_experiment() {
    let list = run("--list").well();
    assert_eq!(list.lines().count(), ALL.len());
    assert!(ALL.iter().all(|experiment| list.contains(experiment.title)));
}
