//! Sentences of the documents with measured figures.

use crate::compare::{best, group};
use crate::digits::digits;
use crate::lines::{Line, median};
use crate::rows::ROWS;

/// Document and sentence. `{STORE WORKLOAD FIGURE [KEYS]}` is a median, of a million keys unless said otherwise, and
/// of the better of two settings. `{STORE / STORE WORKLOAD FIGURE [KEYS]}` is a quotient. `{µ …}` is divided by a
/// thousand.
const SENTENCES: &[(&str, &str)] = &[];

/// Document and text of each sentence.
///
/// # Errors
/// A figure was not measured; the text names it.
pub fn sentences(lines: &[Line]) -> Result<Vec<(&'static str, String)>, String> {
    SENTENCES.iter().map(|(document, template)| Ok((*document, filled(template, lines)?))).collect()
}

/// The template with its figures.
fn filled(template: &str, lines: &[Line]) -> Result<String, String> {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let (asked, after) =
            after.split_once('}').ok_or_else(|| format!("no brace ends {after}"))?;
        text += before;
        text += &figure(asked, lines).ok_or_else(|| format!("not measured: {asked}"))?;
        rest = after;
    }
    Ok(text + rest)
}

fn figure(asked: &str, lines: &[Line]) -> Option<String> {
    let (per_thousand, asked) = match asked.strip_prefix("µ ") {
        Some(asked) => (true, asked),
        None => (false, asked),
    };
    let value = match asked.split(' ').collect::<Vec<_>>()[..] {
        [store, "/", other, workload, figure, ref n @ ..] => {
            value(lines, store, workload, figure, n)? / value(lines, other, workload, figure, n)?
        }
        [store, workload, figure, ref n @ ..] => value(lines, store, workload, figure, n)?,
        _ => return None,
    };
    Some(digits(if per_thousand { value / 1000.0 } else { value }))
}

fn value(lines: &[Line], store: &str, workload: &str, figure: &str, n: &[&str]) -> Option<f64> {
    let n = match n {
        [] => 1_000_000,
        [n, ..] => n.parse().ok()?,
    };
    let group = group(lines, n, "names");
    if let Some(row) = ROWS.iter().find(|row| (row.workload, row.figure) == (workload, figure)) {
        return Some(best(&group, row, store)?.0);
    }
    let (store, setting) = store.split_once(':').unwrap_or((store, "alike"));
    let settings = [setting, ""];
    let found = settings.iter().find_map(|setting| group.get(&(workload, store, setting)));
    Some(median(found?, figure)?[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::tests::line;

    #[test]
    fn a_sentence_has_the_better_setting_and_quotients() {
        let of = |store, setting, workload, figure, value| {
            let mut line = line(store, setting, workload, &[(figure, value)]);
            line.job.n = 1_000_000;
            line
        };
        let mut large = of("criba", "alike", "w13", "open_ms", 1234.0);
        large.job.n = 100_000_000;
        let lines = [
            of("criba", "alike", "w3", "present_ns", 5000.0),
            of("rocksdb", "alike", "w3", "present_ns", 7000.0),
            of("rocksdb", "best", "w3", "present_ns", 6000.0),
            large,
        ];
        let filled = |template| filled(template, &lines);
        let text = "{µ criba w3 present_ns} and {rocksdb w3 present_ns} ns, {criba / rocksdb w3 present_ns} times";
        assert_eq!(filled(text).unwrap(), "5.00 and 6000 ns, 0.8333 times");
        assert_eq!(filled("{criba w13 open_ms 100000000} ms").unwrap(), "1234 ms");
        assert_eq!(
            filled("{fjall w3 present_ns}").unwrap_err(),
            "not measured: fjall w3 present_ns"
        );
    }
}
