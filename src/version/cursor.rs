//! Walks a level below L0 in both directions, one open table at a time.

use std::ops::Bound;
use std::sync::Arc;

use super::{LiveTable, PrefixProbe};
use crate::error::Result;
use crate::iter::{Cursor, Direction};
use crate::key::{EntryRef, Seq};
use crate::ledger::Verdict;
use crate::sstable::{OpenTable, ReadPlan, Table, TableCursor, TableFilter};
use crate::value::Value;

#[derive(Debug)]
pub(crate) struct LevelCursor {
    /// The tables to come; the last one is next.
    rest: Vec<OpenTable>,
    current: Option<TableCursor>,
    direction: Direction,
    plan: ReadPlan,
    prefix: Option<Arc<PrefixProbe>>,
}

impl LevelCursor {
    /// A cursor at the first entry, in `direction`, within the first bound. The tables are sorted and
    /// disjoint. Tables beyond the bounds, and those that `prefix` excludes, are not opened.
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
        let mut within = tables.get(first..after).unwrap_or_default();
        let start = match direction {
            Direction::Forward => bounds.0,
            Direction::Backward => bounds.1,
        };
        let prefix = prefix.map(Arc::clone);
        let mut cursor = Self { rest: Vec::new(), current: None, direction, plan, prefix };
        // Mostly all are passed over, and no list of them is made.
        while let Some((next, rest)) = match direction {
            Direction::Forward => within.split_first(),
            Direction::Backward => within.split_last(),
        } {
            within = rest;
            if cursor.enter(&next.table, &next.filter, start)? {
                break;
            }
        }
        cursor.rest = within.iter().map(LiveTable::open).collect();
        if direction == Direction::Forward {
            cursor.rest.reverse();
        }
        Ok(cursor)
    }

    /// Moves to the first entry of the next table. False if its filter excludes the prefix, or it has no entry
    /// within the bounds.
    fn enter(
        &mut self,
        table: &Arc<Table>,
        filter: &TableFilter,
        start: Bound<&[u8]>,
    ) -> Result<bool> {
        let verdict = self.prefix.as_ref().map(|prefix| prefix.probe(filter));
        if verdict == Some(Verdict::No) {
            return Ok(false);
        }
        let cursor = TableCursor::new(Arc::clone(table), self.direction, start, self.plan)?;
        if let (Some(prefix), Some(Verdict::Maybe)) = (&self.prefix, verdict) {
            prefix.opened(cursor.entry());
        }
        self.current = cursor.entry().is_some().then_some(cursor);
        Ok(self.current.is_some())
    }

    /// Enters the next table if the current one ended.
    fn go_on(&mut self) -> Result<()> {
        if self.current.as_ref().is_none_or(Cursor::at_end) {
            self.current = None;
            while let Some(OpenTable { table, filter }) = self.rest.pop() {
                if self.enter(&table, &filter, Bound::Unbounded)? {
                    break;
                }
            }
        }
        Ok(())
    }
}

impl Cursor for LevelCursor {
    fn entry(&self) -> Option<EntryRef<'_>> {
        self.current.as_ref()?.entry()
    }

    fn key(&self) -> Value {
        self.current.as_ref().map(Cursor::key).unwrap_or_default()
    }

    fn value(&self) -> Value {
        self.current.as_ref().map(Cursor::value).unwrap_or_default()
    }

    fn advance(&mut self) -> Result<()> {
        if let Some(current) = &mut self.current {
            current.advance()?;
        }
        self.go_on()
    }

    fn skip_versions(&mut self, seq: Seq) -> Result<()> {
        if let Some(current) = &mut self.current {
            current.skip_versions(seq)?;
        }
        self.go_on()
    }

    fn at_end(&self) -> bool {
        self.current.is_none()
    }
}
