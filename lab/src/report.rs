//! The report: one page with everything. A summary comes first; texts and experiments are folded.

use criba_report::figure::Figure;
use criba_report::numbers::counted;
use maud::{Markup, html};

use super::check::{Check, Law};
use super::claims::{self, Claim};
use super::experiment::{Notes, Size};
use super::run::{Outcome, Run};
use super::source::Source;

/// The summary fits a phone, whatever the page's tables have.
const NARROW: &str = "min-width: 0; padding-right: 0.6rem";

/// The page of a run.
pub fn report(run: &Run) -> String {
    let claims = claims::all();
    let failed = run.failed().count() as u64;
    let body = html! {
        header {
            h1 { "criba lab" }
            p {
                "What five texts say of Bloom filters, tried with criba's filters and tables. "
                @if failed == 0 { strong.good { "Every check holds." } }
                @else { strong.bad { (counted(failed, "check")) " out of bounds." } }
            }
            (summary(&claims))
            p.quiet {
                code { (command(run)) } ", version " (env!("CARGO_PKG_VERSION")) ", seed " (run.seed) ". "
                "The same seed gives the same counts; times are this machine's and decide nothing. "
                "All checks together hold in 999 of 1,000 sound runs. "
                a href="checks.csv" { "checks.csv" }
            }
        }
        main {
            h2 { "The texts" }
            @for source in Source::TEXTS { (text(run, source, &claims)) }
            @for (title, beyond) in [("The experiments", false), ("Beyond the texts", true)] {
                h2 { (title) }
                @for outcome in &run.outcomes {
                    @if (outcome.experiment.sources == [Source::Beyond]) == beyond { (section(run, outcome)) }
                }
            }
        }
    };
    criba_report::page("criba lab", &body, &[])
}

fn command(run: &Run) -> String {
    let mut command = "cargo run --release -p criba-lab --".to_owned();
    if run.outcomes.len() < super::experiments::ALL.len() {
        for outcome in &run.outcomes {
            command += " ";
            command += outcome.experiment.name;
        }
    }
    if run.size == Size::Full {
        command += " --full";
    }
    format!("{command} --seed {}", run.seed)
}

fn summary(claims: &[Claim]) -> Markup {
    let head = ["text", "claims tried", "hold", "corrected"];
    html! {
        table {
            thead { tr { @for name in head { th.number[name != "text"] { (name) } } } }
            tbody {
                @for source in Source::TEXTS {
                    @let tried = claims.iter().filter(|claim| claim.is_of(source) && claim.is_tried());
                    @let holding = |holds| tried.clone().filter(move |claim| claim.holds == Some(holds));
                    tr {
                        td style=(NARROW) { a href={ "#" (id(source)) } { (source.name()) } }
                        @for number in [tried.clone().count(), holding(true).count(), holding(false).count()] {
                            td.number style=(NARROW) { (number) }
                        }
                    }
                    @for claim in tried.clone().filter(|claim| claim.headline) {
                        @let ours = claim.ours.trim_start_matches(['✓', '✗', ' ']);
                        @let ours = ours.split([';', ':']).next().unwrap_or_default();
                        tr {
                            td.quiet colspan="4" style=(NARROW) { (shown(&claim.says)) ": " (theirs(claim)) (ours) }
                        }
                    }
                }
            }
        }
    }
}

fn id(source: Source) -> String {
    source.name().replace(' ', "-")
}

fn shown(cell: &str) -> String {
    cell.replace('`', "")
}

fn theirs(claim: &Claim) -> Markup {
    html! { @if !claim.theirs.is_empty() { (claim.theirs) " → " } }
}

/// The figure of this run, if a check has it; if not, that of the document.
fn ours(run: &Run, claim: &Claim) -> String {
    let ours = shown(claim.ours.trim_start_matches(['✓', '✗', ' ']));
    match run.check_of(claim) {
        Some(check) if check.law != Law::Exact => {
            let (factor, unit) = if claim.is_in_percent() { (100.0, " %") } else { (1.0, "") };
            format!("{ours} (here {}{unit})", super::shown(factor * check.measured))
        }
        _ => ours,
    }
}

fn text(run: &Run, source: Source, claims: &[Claim]) -> Markup {
    let of = |exercises: bool| {
        let of = claims.iter().filter(move |claim| claim.is_of(source));
        of.filter(move |claim| claim.is_exercise() == exercises)
    };
    let row = |claim: &Claim| {
        let verdict = match claim.holds {
            Some(true) => html! { span.good { "holds" } },
            Some(false) => html! { span.bad { "corrected" } },
            None => html! { "" },
        };
        let says = html! { (claim.place) ": " (shown(&claim.says)) };
        vec![
            says,
            verdict,
            html! { (theirs(claim)) (ours(run, claim)) },
            html! { (shown(&claim.answer)) },
        ]
    };
    let exercise = |claim: &Claim| {
        let mut row = row(claim);
        row.remove(1);
        row
    };
    html! {
        details {
            summary { b { (source.name()) } ": " (source.reference()) }
            div id=(id(source)) { // a link to what is folded unfolds it
                (criba_report::table("", &["line", "verdict", "theirs → ours", "by"], &[], of(false).map(row)))
                @if of(true).count() > 0 {
                    (criba_report::table("Exercises", &["exercise", "answer", "by"], &[], of(true).map(exercise)))
                }
            }
        }
    }
}

fn section(run: &Run, outcome: &Outcome) -> Markup {
    let (experiment, notes) = (outcome.experiment, &outcome.notes);
    let tally = run.tally(&notes.checks);
    html! {
        details id=(experiment.name) open=[(!tally.is_well()).then_some("open")] {
            summary {
                b { (experiment.title) }
                " " span class=(if tally.is_well() { "quiet" } else { "bad" }) { "(" (tally) ")" }
            }
            p { (experiment.question) }
            p.quiet {
                code { (experiment.name) } ". From "
                (experiment.sources.iter().map(|source| source.name()).collect::<Vec<_>>().join(", ")) "."
            }
            @for figure in &notes.figures { (shown_figure(run, experiment.name, notes, figure)) }
            (checks(run, "Further checks", notes.checks.iter().filter(|check| check.figure.is_empty())))
            (measured(notes))
            @for remark in &notes.remarks { p { (remark) } }
        }
    }
}

fn measured(notes: &Notes) -> Markup {
    let rows = notes.measured.iter().map(|[quantity, value, note]| {
        let note = html! { @if !note.is_empty() { span.quiet { "; " (note) } } };
        vec![html! { (quantity) }, html! { (value) (note) }]
    });
    html! {
        @if !notes.measured.is_empty() {
            (criba_report::table("Also measured", &["quantity", "in this run"], &[], rows))
        }
    }
}

fn shown_figure(run: &Run, experiment: &str, notes: &Notes, figure: &Figure) -> Markup {
    let its_checks = notes.checks.iter().filter(|check| check.figure == figure.id);
    let stem = figure.file_stem(experiment);
    criba_report::shown(figure, &stem, &checks(run, "Its checks", its_checks))
}

fn checks<'a>(run: &Run, caption: &str, checks: impl Iterator<Item = &'a Check>) -> Markup {
    let rows: Vec<_> = checks.map(|check| check_row(run, check)).collect();
    let head = ["quantity", "holds", "theory", "measured", "bounds", "trials", "formula"];
    html! {
        @if !rows.is_empty() {
            details {
                summary { (caption) ": " (rows.len()) }
                (criba_report::table("", &head, &["trials", "theory", "measured"], rows))
            }
        }
    }
}

fn check_row(run: &Run, check: &Check) -> Vec<Markup> {
    let verdict = run.verdict(check);
    let number = |value: f64| html! { (super::shown(value)) };
    vec![
        html! { (check.quantity) },
        html! {
            @match (check.decides, verdict.ok) {
                (false, _) => span.quiet { "illustration" },
                (true, true) => span.good { "yes" },
                (true, false) => span.bad { "no" },
            }
        },
        number(check.theory),
        number(check.measured),
        html! { @if check.decides { (number(verdict.low)) " to " (number(verdict.high)) } @else { "–" } },
        number(check.law.trials() as f64),
        html! { (check.formula) },
    ]
}
