//! The fields of a struct.

use std::collections::HashMap;

use proc_macro2::{Delimiter, Spacing, TokenTree};

use crate::modules::Crate;
use crate::source::{inside, is};

/// A type's file and name.
type Key = (usize, String);

struct Struct {
    /// Whether it is public outside the crate.
    public: bool,
    fields: Vec<Field>,
}

#[derive(Default)]
struct Field {
    /// Whether other files see it.
    visible: bool,
    is_collection: bool,
    /// The names in its type that are of this crate.
    types: Vec<Key>,
}

/// The fields of a struct. A field whose type is a struct counts as many as that has, if that struct serves
/// this one alone: no other struct contains it, it is not public, and its fields are visible here. Elements
/// of collections do not count.
pub(crate) fn count_fields(name: &str, this: &Crate) -> Option<usize> {
    let structs: HashMap<Key, Struct> =
        (0..this.files.len()).flat_map(|file| structs(file, this)).collect();
    let key = structs.keys().find(|key| key.1 == name)?;
    Some(count(key, &structs))
}

fn count(key: &Key, structs: &HashMap<Key, Struct>) -> usize {
    let users = |part: &Key| {
        let contains =
            |whole: &&Struct| whole.fields.iter().any(|field| field.types.contains(part));
        structs.values().filter(contains).count()
    };
    let is_own = |part: &&Key| match structs.get(*part) {
        Some(inner) if !inner.public && *part != key => {
            let open = part.0 == key.0 || inner.fields.iter().any(|field| field.visible);
            open && users(part) == 1
        }
        _ => false,
    };
    let size = |field: &Field| match field.types.iter().find(is_own) {
        Some(part) if !field.is_collection => count(part, structs),
        _ => 1,
    };
    structs[key].fields.iter().map(size).sum()
}

/// The structs at the top of a file.
fn structs(file: usize, this: &Crate) -> impl Iterator<Item = (Key, Struct)> {
    let tokens = &this.files[file].tokens;
    let at = (0..tokens.len()).filter(|&at| is(&tokens[at], "struct"));
    at.filter_map(move |at| {
        let name = tokens.get(at + 1)?.to_string();
        let public = at > 0 && is(&tokens[at - 1], "pub");
        let is_body = |token: &&TokenTree| match token {
            TokenTree::Group(group) => group.delimiter() != Delimiter::Bracket,
            token => is(token, ";"),
        };
        let body = inside(tokens[at..].iter().find(is_body)?);
        Some(((file, name), Struct { public, fields: fields(&body, file, this) }))
    })
}

/// The fields in the body of a struct. Each begins with its visibility, a name and a single colon.
fn fields(body: &[TokenTree], file: usize, this: &Crate) -> Vec<Field> {
    let collections = ["Vec", "VecDeque", "HashMap", "HashSet", "BTreeMap", "BTreeSet"];
    let mut fields: Vec<Field> = Vec::new();
    for (at, token) in body.iter().enumerate() {
        let TokenTree::Ident(word) = token else { continue };
        let is_name = match body.get(at + 1) {
            Some(TokenTree::Punct(mark)) => {
                mark.as_char() == ':' && mark.spacing() == Spacing::Alone
            }
            _ => false,
        };
        if is_name {
            let visible = body[at.saturating_sub(2)..at].iter().any(|token| is(token, "pub"));
            fields.push(Field { visible, ..Field::default() });
        } else if let Some(field) = fields.last_mut() {
            let word = word.to_string();
            field.is_collection |= collections.contains(&word.as_str());
            field.types.extend(this.declared(file, &word).map(|file| (file, word)));
        }
    }
    fields
}
