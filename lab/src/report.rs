//! The report: one page with everything.

use criba_cli::page::{self, figure::Figure};
use criba_cli::text::counted;
use maud::{Markup, html};

use super::check::Check;
use super::experiment::{Notes, Size};
use super::run::{Outcome, Run};

/// The page of a run.
pub fn report(run: &Run) -> String {
    let body = html! {
        header {
            h1 { "criba lab" }
            p {
                "What a filter does, measured: experiments of the literature on Bloom filters, made \
                 again with criba's own filters and tables, theirs beside ours."
            }
            p { (summary(run)) }
            p.quiet {
                (if run.size == Size::Quick { "Quick sizes" } else { "Full sizes" })
                ", seed " (run.seed) ". A second run with this seed gives the same counts; times are \
                this machine's and decide nothing. All bounds together hold in 999 of 1,000 sound runs: \
                each check's in all but one of " (super::shown((1.0 / run.doubt()).round())) "."
            }
            nav {
                ul {
                    @for outcome in &run.outcomes {
                        li {
                            a href={ "#" (outcome.experiment.name) } { (outcome.experiment.title) }
                            " " (tally(run, &outcome.notes.checks))
                        }
                    }
                }
            }
        }
        main { @for outcome in &run.outcomes { (section(run, outcome)) } }
    };
    page::page("criba lab", &body)
}

fn summary(run: &Run) -> Markup {
    let failed = run.failed().count();
    html! {
        @if failed == 0 { strong.good { "Every check holds." } }
        @else { strong.bad { (counted(failed as u64, "check")) " out of bounds." } }
    }
}

fn tally(run: &Run, checks: &[Check]) -> Markup {
    let told = run.tally(checks);
    let class = if told.is_well() { "quiet" } else { "bad" };
    html! { span class=(class) { "(" (told) ")" } }
}

fn section(run: &Run, outcome: &Outcome) -> Markup {
    let (experiment, notes) = (outcome.experiment, &outcome.notes);
    html! {
        section id=(experiment.name) {
            h2 { (experiment.title) }
            p { (experiment.question) }
            p.quiet {
                code { (experiment.name) } ". From "
                @for (place, source) in experiment.sources.iter().enumerate() {
                    @if place > 0 { "; " }
                    (source.name()) " (" (source.reference()) ")"
                }
                "."
            }
            (comparison(notes))
            (corrections(notes))
            @for figure in &notes.figures { (shown_figure(run, experiment.name, notes, figure)) }
            (checks(run, "Further checks", notes.checks.iter().filter(|check| check.figure.is_empty())))
            @for remark in &notes.remarks { p { (remark) } }
        }
    }
}

fn comparison(notes: &Notes) -> Markup {
    let rows = notes.comparison.iter().map(|row| {
        [&row.quantity, &row.theirs, &row.ours, &row.note].map(|text| html! { (text) }).to_vec()
    });
    html! {
        @if !notes.comparison.is_empty() {
            (page::table("Theirs beside ours", &["quantity", "theirs", "ours", "note"], &[], rows))
        }
    }
}

fn corrections(notes: &Notes) -> Markup {
    html! {
        @if !notes.corrections.is_empty() {
            ul {
                @for correction in &notes.corrections {
                    li {
                        (capital(correction.source.name())) " says: " (correction.says)
                        " – Correct is: " (correction.correct)
                    }
                }
            }
        }
    }
}

fn capital(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map_or(String::new(), |first| first.to_uppercase().chain(rest).collect())
}

fn shown_figure(run: &Run, experiment: &str, notes: &Notes, figure: &Figure) -> Markup {
    let its_checks = notes.checks.iter().filter(|check| check.figure == figure.id);
    let checks = checks(run, "Within which bounds, and whether", its_checks);
    page::shown(figure, &figure.file_stem(experiment), &checks)
}

fn checks<'a>(run: &Run, caption: &str, checks: impl Iterator<Item = &'a Check>) -> Markup {
    let rows: Vec<_> = checks.map(|check| check_row(run, check)).collect();
    let head = ["quantity", "holds", "theory", "measured", "low", "high", "trials", "formula"];
    html! {
        @if !rows.is_empty() {
            (page::table(caption, &head, &["trials", "theory", "measured", "low", "high"], rows))
        }
    }
}

fn check_row(run: &Run, check: &Check) -> Vec<Markup> {
    let verdict = run.verdict(check);
    let number = |value: f64| html! { (super::shown(value)) };
    let bound = |value: f64| {
        if check.decides {
            number(value)
        } else {
            html! { "–" }
        }
    };
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
        bound(verdict.low),
        bound(verdict.high),
        number(check.law.trials() as f64),
        html! { (check.formula) },
    ]
}
