use std::iter::FusedIterator;

use crate::engine::scan::Range;
use crate::error::Result;
use crate::value::Value;

/// A double-ended iterator over keys, from [`Db::keys`](crate::Db::keys). It reads the blocks that a
/// [`Range`] reads.
#[derive(Debug)]
pub struct Keys(pub(super) Range);

fn key_of((key, _): (Value, Value)) -> Value {
    key
}

impl Iterator for Keys {
    type Item = Result<Value>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|item| item.map(key_of))
    }
}

impl DoubleEndedIterator for Keys {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back().map(|item| item.map(key_of))
    }
}

impl FusedIterator for Keys {}
