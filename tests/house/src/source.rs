//! The tokens of a source file.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

pub(crate) fn parse(text: &str) -> Vec<TokenTree> {
    let tokens: TokenStream = text.parse().unwrap_or_else(|error| panic!("{error} in: {text}"));
    tokens.into_iter().collect()
}

/// The tokens in a group.
pub(crate) fn inside(token: &TokenTree) -> Vec<TokenTree> {
    match token {
        TokenTree::Group(group) => group.stream().into_iter().collect(),
        _ => Vec::new(),
    }
}

/// The shipped tokens: without doc comments, tests, and items under `#[cfg(test)]`.
pub(crate) fn shipped(tokens: &[TokenTree]) -> Vec<TokenTree> {
    let mut kept = Vec::new();
    let mut rest = tokens;
    while let [token, ..] = rest {
        let (length, attribute) = attribute(rest).unwrap_or_default();
        let taken = match attribute.as_str() {
            "test" | "cfg(test)" => item_length(rest),
            text if text.starts_with("doc=\"") => length,
            _ => {
                kept.push(match token {
                    TokenTree::Group(group) => {
                        let kept = shipped(&inside(token)).into_iter().collect();
                        let mut kept = Group::new(group.delimiter(), kept);
                        kept.set_span(group.span());
                        kept.into()
                    }
                    other => other.clone(),
                });
                1
            }
        };
        rest = &rest[taken..];
    }
    kept
}

/// The number of attributes `#[test]`.
pub(crate) fn count_tests(tokens: &[TokenTree]) -> usize {
    let here = (0..tokens.len()).filter_map(|at| attribute(&tokens[at..]));
    let here = here.filter(|(_, attribute)| attribute == "test").count();
    here + tokens.iter().map(|token| count_tests(&inside(token))).sum::<usize>()
}

/// The attribute at the start of these tokens: its length, and its text without spaces.
fn attribute(tokens: &[TokenTree]) -> Option<(usize, String)> {
    let (length, group) = match tokens {
        [hash, TokenTree::Group(group), ..] if is(hash, "#") => (2, group),
        [hash, not, TokenTree::Group(group), ..] if is(hash, "#") && is(not, "!") => (3, group),
        _ => return None,
    };
    let text = group.stream().to_string().split_whitespace().collect();
    (group.delimiter() == Delimiter::Bracket).then_some((length, text))
}

/// The number of tokens of the item, statement, field, variant or arm at the start of these, with its
/// attributes.
pub(crate) fn item_length(tokens: &[TokenTree]) -> usize {
    let keyword = after_modifiers(tokens).first().map(ToString::to_string).unwrap_or_default();
    let (ends_at_brace, ends_at_comma) = match keyword.as_str() {
        "use" | "let" | "const" | "static" | "type" => (false, false),
        "fn" | "struct" | "enum" | "union" | "trait" | "impl" | "mod" => (true, false),
        _ => (true, true),
    };
    let is_end = |token: &TokenTree| match token {
        TokenTree::Group(group) => ends_at_brace && group.delimiter() == Delimiter::Brace,
        token => is(token, ";") || ends_at_comma && is(token, ","),
    };
    tokens.iter().position(is_end).map_or(tokens.len(), |end| end + 1)
}

/// The file in the `path` attribute of a module.
pub(crate) fn path_attribute(item: &[TokenTree]) -> Option<String> {
    let (length, attribute) = attribute(item)?;
    match attribute.strip_prefix("path=") {
        Some(path) => Some(path.trim_matches('"').to_string()),
        None => path_attribute(&item[length..]),
    }
}

/// The first word after attributes, visibility and words such as `unsafe`: the keyword of an item.
pub(crate) fn after_modifiers(tokens: &[TokenTree]) -> &[TokenTree] {
    if let Some((length, _)) = attribute(tokens) {
        return after_modifiers(&tokens[length..]);
    }
    let skipped = match tokens {
        [word, next, ..] if is(word, "const") => is(next, "fn") || is(next, "unsafe"),
        [TokenTree::Group(group), ..] => group.delimiter() == Delimiter::Parenthesis,
        [TokenTree::Literal(_), ..] => true, // as in `extern "C"`
        [word, ..] => ["pub", "unsafe", "extern"].iter().any(|skipped| is(word, skipped)),
        [] => false,
    };
    if skipped { after_modifiers(&tokens[1..]) } else { tokens }
}

/// Whether a token is this word or mark.
pub(crate) fn is(token: &TokenTree, text: &str) -> bool {
    match token {
        TokenTree::Ident(word) => word == text,
        TokenTree::Punct(mark) => text.starts_with(mark.as_char()),
        _ => false,
    }
}
