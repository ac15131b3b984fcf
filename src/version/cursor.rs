//! Walking a level below L0 in either direction, opening one table after the other as it goes.

use std::ops::Bound;
use std::sync::Arc;

use super::{LiveTable, PrefixProbe};
use crate::error::Result;
use crate::iter::{Cursor, Direction};
use crate::key::EntryRef;
use crate::ledger::Verdict;
use crate::table::{OpenTable, ReadPlan, TableCursor};
use crate::value::Value;

/// A position in a sorted run of tables.
#[derive(Debug)]
pub(crate) struct LevelCursor {
    /// The tables still to come; the last one is next.
    rest: Vec<OpenTable>,
    current: Option<TableCursor>,
    direction: Direction,
    plan: ReadPlan,
    prefix: Option<Arc<PrefixProbe>>,
}

impl LevelCursor {
    /// A cursor at the first entry, in `direction`, whose user key lies within the bound from which
    /// the direction comes. The tables are in key order and disjoint; those that lie beyond either
    /// bound are not opened, and neither are those that `prefix` passes over.
    pub(crate) fn new(
        tables: &[LiveTable],
        direction: Direction,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        plan: ReadPlan,
        prefix: Option<&Arc<PrefixProbe>>,
    ) -> Result<Self> {
        let first = tables.partition_point(|live| {
            let largest = live.table.meta().largest.as_slice();
            match bounds.0 {
                Bound::Unbounded => false,
                Bound::Included(start) => largest < start,
                Bound::Excluded(start) => largest <= start,
            }
        });
        let after = tables.partition_point(|live| {
            let smallest = live.table.meta().smallest.as_slice();
            match bounds.1 {
                Bound::Unbounded => true,
                Bound::Included(end) => smallest <= end,
                Bound::Excluded(end) => smallest < end,
            }
        });
        let within = tables.get(first..after).unwrap_or_default();
        let mut rest: Vec<_> = within.iter().map(LiveTable::open).collect();
        let start = match direction {
            Direction::Forward => {
                rest.reverse();
                bounds.0
            }
            Direction::Backward => bounds.1,
        };
        let prefix = prefix.map(Arc::clone);
        let mut cursor = Self { rest, current: None, direction, plan, prefix };
        cursor.open_next(start)?;
        Ok(cursor)
    }

    fn open_next(&mut self, start: Bound<&[u8]>) -> Result<()> {
        self.current = None;
        while let Some(OpenTable { table, filter }) = self.rest.pop() {
            let verdict = self.prefix.as_ref().map(|prefix| prefix.ask(&filter));
            if verdict == Some(Verdict::No) {
                continue;
            }
            let cursor = TableCursor::new(table, self.direction, start, self.plan)?;
            if let (Some(prefix), Some(Verdict::Maybe)) = (&self.prefix, verdict) {
                prefix.opened(cursor.entry());
            }
            if cursor.entry().is_some() {
                self.current = Some(cursor);
                break;
            }
        }
        Ok(())
    }
}

impl Cursor for LevelCursor {
    fn entry(&self) -> Option<EntryRef<'_>> {
        self.current.as_ref()?.entry()
    }

    fn value(&self) -> Value {
        self.current.as_ref().map(Cursor::value).unwrap_or_default()
    }

    fn advance(&mut self) -> Result<()> {
        let Some(current) = &mut self.current else { return Ok(()) };
        current.advance()?;
        if current.entry().is_none() {
            self.open_next(Bound::Unbounded)?;
        }
        Ok(())
    }
}
