//! The size of code: lines, functions, closures.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, TokenTree};

use crate::source::{inside, is};

const LONG: usize = 50;

#[derive(Default, Debug, PartialEq)]
pub(crate) struct Code {
    /// Lines that have a token.
    pub(crate) lines: usize,
    pub(crate) functions: usize,
    /// Functions of more than 50 lines, from `fn` to the closing brace.
    pub(crate) long: usize,
    pub(crate) closures: usize,
}

impl Code {
    /// Adds the shipped tokens of a file.
    pub(crate) fn add(&mut self, tokens: &[TokenTree]) {
        let mut lines = BTreeSet::new();
        self.visit(tokens, &mut lines);
        self.lines += lines.len();
    }

    fn visit(&mut self, tokens: &[TokenTree], lines: &mut BTreeSet<usize>) {
        let mut at = 0;
        while at < tokens.len() {
            let token = &tokens[at];
            match token {
                TokenTree::Group(group) => {
                    lines.insert(group.span_open().start().line);
                    lines.insert(group.span_close().start().line);
                    self.visit(&inside(token), lines);
                }
                other => lines.extend(other.span().start().line..=other.span().end().line),
            }
            if is(token, "fn") && matches!(tokens.get(at + 1), Some(TokenTree::Ident(_))) {
                self.functions += 1;
                self.long += usize::from(length(&tokens[at..]) > LONG);
            }
            if is(token, "|") && begins_closure(&tokens[..at]) {
                self.closures += 1;
                // To the end of the parameters.
                let end = tokens[at + 1..].iter().position(|token| is(token, "|"));
                at += end.map_or(0, |end| end + 1);
            }
            at += 1;
        }
    }

    /// A row of the table.
    pub(crate) fn row(&self, name: &str) -> String {
        let share = self.closures as f64 * 1000.0 / self.lines.max(1) as f64;
        format!("{name:24}{:>8}{:>11}{:>12}{share:>25.1}\n", self.lines, self.functions, self.long)
    }
}

/// The lines of the function at the start of these tokens.
fn length(tokens: &[TokenTree]) -> usize {
    for token in tokens {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                return group.span_close().end().line + 1 - tokens[0].span().start().line;
            }
            token if is(token, ";") => break,
            _ => {}
        }
    }
    0
}

/// Whether a bar after these tokens begins a closure: behind a value it is an operator, behind a pattern it
/// begins another.
fn begins_closure(before: &[TokenTree]) -> bool {
    match before.last() {
        None => true,
        Some(TokenTree::Ident(word)) => {
            ["move", "return", "else", "in", "break"].iter().any(|keyword| word == keyword)
        }
        Some(TokenTree::Punct(mark)) => "=>,;&".contains(mark.as_char()),
        Some(TokenTree::Group(_) | TokenTree::Literal(_)) => false,
    }
}
