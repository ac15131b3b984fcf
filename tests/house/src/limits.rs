//! The committed figures: a line for each, `name | baseline | <= limit`, or `>=`, or no limit.

use std::fmt::Write;

/// The counts: a name and a number for each.
pub(crate) type Figures = Vec<(String, usize)>;

struct Line<'a> {
    name: &'a str,
    baseline: &'a str,
    limit: Option<(&'a str, usize)>,
}

impl<'a> Line<'a> {
    /// A line of the file; `None` for a comment or an empty line.
    fn parse(text: &'a str) -> Option<Self> {
        if text.starts_with('#') {
            return None;
        }
        let mut columns = text.split('|').map(str::trim);
        let (name, baseline, limit) = (columns.next()?, columns.next()?, columns.next()?);
        let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("no limit: {limit}"));
        let limit = limit.split_once(' ').map(|(sign, text)| (sign, number(text)));
        Some(Self { name, baseline, limit })
    }
}

fn allows((sign, limit): (&str, usize), figure: usize) -> bool {
    match sign {
        "<=" => figure <= limit,
        ">=" => figure >= limit,
        _ => panic!("neither <= nor >=: {sign}"),
    }
}

/// The counts beside their baselines and limits, and whether all are within them.
pub(crate) fn compare(figures: &Figures, limits: &str) -> (String, bool) {
    let lines: Vec<_> = limits.lines().filter_map(Line::parse).collect();
    let known = |line: &Line| figures.iter().any(|(name, _)| name == line.name);
    let mut held = lines.iter().all(|line| line.limit.is_none() || known(line));
    let mut table = format!("{:30}{:>9}{:>9}{:>9}  limit\n", "", "baseline", "now", "change");
    for (name, now) in figures {
        let line = lines.iter().find(|line| line.name == name);
        let baseline = line.map_or("", |line| line.baseline);
        let change = match baseline.parse::<f64>() {
            Ok(baseline) if baseline > 0.0 => {
                format!("{:+.1} %", (*now as f64 / baseline - 1.0) * 100.0)
            }
            _ => String::new(),
        };
        let _ = write!(table, "{name:30}{baseline:>9}{now:>9}{change:>9}");
        if let Some(limit) = line.and_then(|line| line.limit) {
            let _ = write!(table, "  {} {}", limit.0, limit.1);
            if !allows(limit, *now) {
                held = false;
                table.push_str("  A STEP BACKWARDS");
            }
        }
        table.push('\n');
    }
    (table, held)
}

/// The file of limits with each limit moved to its count, unless that loosens it.
pub(crate) fn tighten(figures: &Figures, limits: &str) -> String {
    let tightened = limits.lines().map(|text| {
        let Some(Line { name, baseline, limit: Some((sign, limit)) }) = Line::parse(text) else {
            return format!("{text}\n");
        };
        let figure = figures.iter().find(|(of, _)| of == name).map_or(limit, |&(_, figure)| figure);
        let limit = if allows((sign, limit), figure) { figure } else { limit };
        format!("{name} | {baseline} | {sign} {limit}\n")
    });
    tightened.collect()
}
