//! Pages, figures and tables of the programs `criba` and `criba-lab`.
//!
//! A page is one HTML file, without external files, for phones and print, light and dark. It is well-formed
//! XML. A policy in its head has browsers refuse every request, and every script that is not its own.
//!
//! [`figure`] has the content of a figure, `draw`, `rows` and `ruler` draw it, and [`output`] writes page and figures
//! to a directory.

mod draw;
mod error;
pub mod figure;
mod ink;
pub mod numbers;
pub mod output;
mod rows;
mod ruler;

use maud::{Markup, PreEscaped, html};

pub use error::{Error, Result};

use self::figure::Figure;

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #222; --paper: #fefefe; --line: #ddd; --quiet: #5f666e;
        --good: #1e7d4f; --bad: #b01e2e; }
@media screen and (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --paper: #16181b; --line: #3a3e44; --quiet: #b4bcc6;
          --good: #6fd6a0; --bad: #ff8a94; }
}
body { margin: 0 auto; padding: 1rem; max-width: 52rem; color: var(--ink); background: var(--paper);
       font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1, h2, h3 { line-height: 1.25; }
h2 { margin-top: 3.5rem; border-top: 2px solid var(--line); padding-top: 1rem; }
a { color: inherit; }
code { font-family: ui-monospace, monospace; font-size: 0.92em; }
.quiet { color: var(--quiet); }
.good { color: var(--good); } .bad { color: var(--bad); font-weight: bold; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: 0.85rem; line-height: 1.35; }
caption { text-align: left; font-weight: bold; padding: 0.3rem 0; }
th, td { padding: 0.3rem 0.9rem 0.3rem 0; text-align: left; vertical-align: top;
         border-bottom: 1px solid var(--line); }
td { min-width: 5.5rem; } td:first-child { min-width: 8rem; } td:last-child { min-width: 13rem; }
td.number, td.number:last-child { min-width: 0; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
td.number { white-space: nowrap; }
figure { margin: 2.5rem 0; }
figure svg { display: block; width: 100%; max-width: 44rem; height: auto; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.2rem 1rem; margin: 0.5rem 0; }
dt { color: var(--quiet); } dd { margin: 0; }
@media (max-width: 30rem) { dl { display: block; } dd { margin-bottom: 0.4rem; } }
.controls > * { margin: 0 0.4rem 0.4rem 0; }
input, button, textarea { font: inherit; color: inherit; background: var(--paper);
                          border: 1px solid var(--quiet); border-radius: 0.25rem; padding: 0.3rem 0.6rem; }
button { cursor: pointer; }
input { max-width: 100%; box-sizing: border-box; font-family: ui-monospace, monospace; }
textarea { width: 100%; box-sizing: border-box; font: 0.75rem/1.4 ui-monospace, monospace; }
.bits { font-family: ui-monospace, monospace; white-space: nowrap; }
mark { color: var(--paper); background: var(--ink); }
@media print {
  button, textarea { display: none; }
  mark { color: inherit; background: none; font-weight: bold; text-decoration: underline; }
  body { max-width: none; font-size: 10pt; }
  figure svg { max-width: 14cm; }
  figure svg, tr { break-inside: avoid; }
  h2, h3, caption { break-after: avoid; }
  .scroll { overflow: visible; }
}
";

/// A whole page, with scripts at its end.
pub fn page(title: &str, body: &Markup, scripts: &[&str]) -> String {
    let style = PreEscaped(format!("<style>{STYLE}{}</style>", ink::dark_rules()));
    // Elements without an end are closed by hand, for XML's sake.
    let allowed = if scripts.is_empty() { "" } else { "; script-src 'unsafe-inline'" };
    let meta = PreEscaped(format!(
        "<meta charset=\"utf-8\"/>\
         <meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'{allowed}\"/>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>",
    ));
    // A comment of the script hides XML's brackets from it.
    let script = |script: &str| PreEscaped(format!("<script>//<![CDATA[\n{script}//]]></script>"));
    let page = html! {
        (PreEscaped("<!DOCTYPE html>\n"))
        html lang="en" {
            head { (meta) title { (title) } (style) }
            body { (body) @for text in scripts { (script(text)) } }
        }
    };
    page.into_string() + "\n"
}

/// A table that scrolls by itself if it is too wide; `numbers` are its numeric columns.
pub fn table(
    caption: &str,
    head: &[&str],
    numbers: &[&str],
    rows: impl IntoIterator<Item = Vec<Markup>>,
) -> Markup {
    let class = |name: &&str| numbers.contains(name).then_some("number");
    html! {
        div.scroll {
            table {
                @if !caption.is_empty() { caption { (caption) } }
                thead { tr { @for name in head { th class=[class(name)] { (name) } } } }
                tbody {
                    @for row in rows {
                        tr { @for (cell, name) in row.iter().zip(head) { td class=[class(name)] { (cell) } } }
                    }
                }
            }
        }
    }
}

/// A figure with its picture and texts; `more` comes below. `stem` is the name of its files.
pub fn shown(figure: &Figure, stem: &str, more: &Markup) -> Markup {
    html! {
        figure id=(stem) {
            h3 { (figure.title) }
            (PreEscaped(draw::titled(figure)))
            figcaption {
                dl {
                    dt { "Asked" } dd { (figure.asked) }
                    dt { "Theory" } dd { (figure.theory) }
                    dt { "Measured" } dd { (figure.measured) }
                    dt { "Points" } dd { a href={ (stem) ".csv" } { (stem) ".csv" } }
                }
                (more)
            }
        }
    }
}

/// The files of a figure: points and picture.
pub fn files(figure: &Figure, stem: &str) -> [(String, Vec<u8>); 2] {
    [
        (format!("{stem}.csv"), figure.csv()),
        (format!("{stem}.svg"), draw::standalone(figure).into_bytes()),
    ]
}
