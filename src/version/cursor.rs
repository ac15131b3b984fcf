//! Walking a level below L0 in either direction, opening one table after the other as it goes.

use std::ops::Bound;
use std::sync::Arc;

use super::LiveTable;
use crate::error::Result;
use crate::iter::{Cursor, Direction};
use crate::key::EntryRef;
use crate::table::{ReadPlan, Table, TableCursor};
use crate::value::Value;

/// A position in a sorted run of tables.
#[derive(Debug)]
pub(crate) struct LevelCursor {
    /// The tables still to come; the last one is next.
    rest: Vec<Arc<Table>>,
    current: Option<TableCursor>,
    direction: Direction,
    plan: ReadPlan,
}

impl LevelCursor {
    /// A cursor at the first entry, in `direction`, whose user key lies within `start`. The tables
    /// are in key order and disjoint.
    pub(crate) fn new(
        tables: &[LiveTable],
        direction: Direction,
        start: Bound<&[u8]>,
        plan: ReadPlan,
    ) -> Result<Self> {
        let mut rest: Vec<_> = match (direction, start) {
            (_, Bound::Unbounded) => tables,
            (Direction::Forward, Bound::Included(key) | Bound::Excluded(key)) => {
                let passed =
                    tables.partition_point(|live| live.table.meta().largest.as_slice() < key);
                &tables[passed..]
            }
            (Direction::Backward, Bound::Included(key) | Bound::Excluded(key)) => {
                let within =
                    tables.partition_point(|live| live.table.meta().smallest.as_slice() <= key);
                &tables[..within]
            }
        }
        .iter()
        .map(|live| Arc::clone(&live.table))
        .collect();
        if direction == Direction::Forward {
            rest.reverse();
        }
        let mut cursor = Self { rest, current: None, direction, plan };
        cursor.open_next(start)?;
        Ok(cursor)
    }

    fn open_next(&mut self, start: Bound<&[u8]>) -> Result<()> {
        self.current = None;
        while let Some(table) = self.rest.pop() {
            let cursor = TableCursor::new(table, self.direction, start, self.plan)?;
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
