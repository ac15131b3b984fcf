//! The budget for filters in memory: who has how much of it, and what is let go or brought back.
//!
//! A filter changes how much of it is resident without a word in the manifest: the version in the
//! view is replaced by one that differs in that filter, and readers go on with what they began with.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::core::{Core, State, View};
use crate::compaction::Compaction;
use crate::event::Event;
use crate::filter::{Choice, Claim, Portion, loss, ration};
use crate::sync::{Instant, sleep};
use crate::table::{FilterState, TableFilter, resident_bytes};
use crate::version::{LiveTable, Version};

/// A table is taken to have met the absent probes of so many lookups before it was first asked: what
/// was not measured yet is expected to be as everywhere.
const PRIOR_LOOKUPS: f64 = 1000.0;
/// Filters that fit stay as they are until this factor in wasted reads can be saved: a filter costs
/// a read to come back.
const WORTH: f64 = 1.05;
/// How long whoever changes filters waits, all in all, for readers of what they were, so that the
/// memory is given back when it is said to be. A lookup takes less, unless its disk is slow.
const PATIENCE: Duration = Duration::from_millis(200);

/// The memory of the filters of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FilterMemory {
    /// What resident filters may take, in bytes; `None` for no budget.
    pub budget: Option<u64>,
    /// What they take, in bytes, in whole pages of memory: filters of live tables, of tables that
    /// are being written, and those that a reader has not let go yet.
    pub resident: u64,
    /// What the filters of all live tables would take if they were resident as a whole, degraded
    /// ones aside.
    pub stored: u64,
}

/// How much of a table's filter is to be resident, and how much was when that was decided.
struct Change {
    table: u64,
    from: Portion,
    to: Portion,
}

impl Core {
    pub(crate) fn filter_memory(&self) -> FilterMemory {
        let memory = &self.env.filter_memory;
        let view = self.view.load();
        let residences = view.version.tables().filter_map(|(_, live)| live.filter.residence());
        FilterMemory {
            budget: memory.budget(),
            resident: memory.resident(),
            stored: residences.map(|(stored, _)| resident_bytes(stored, Portion::Whole)).sum(),
        }
    }

    pub(crate) fn set_filter_memory(&self, budget: Option<u64>) {
        let memory = &self.env.filter_memory;
        memory.set_budget(budget);
        let mut patience = PATIENCE;
        // Again, should somebody have brought a filter back between the plan and now. The budget in
        // force counts: another caller's may have taken the place of this one.
        while memory.budget().is_some_and(|budget| self.live_filter_bytes() > budget) {
            for change in self.planned_changes().into_iter().filter(|c| c.to < c.from) {
                self.change_filter(&change, &mut patience);
            }
        }
        self.state.lock().filters_due = true;
        self.changed.notify_all();
        if self.is_inline() {
            while self.fit_filters_once() {}
        }
    }

    /// Brings into memory what the budget has room for, if the tables were opened without filters.
    pub(crate) fn load_filters_within_budget(&self) {
        if self.options.filter_memory.is_some() {
            self.state.lock().filters_due = true;
            self.fit_filters_once();
        }
    }

    /// What is resident of the filters of all live tables, in bytes.
    fn live_filter_bytes(&self) -> u64 {
        let view = self.view.load();
        let residences = view.version.tables().filter_map(|(_, live)| live.filter.residence());
        residences.map(|(stored, portion)| resident_bytes(stored, portion)).sum()
    }

    /// Lets go and brings back what the budget asks for, if it asks; false if it does not.
    pub(crate) fn fit_filters_once(&self) -> bool {
        let _at_work = {
            let mut state = self.state.lock();
            if !state.filters_due || state.stop {
                return false;
            }
            state.filters_due = false;
            AtWork::begin(self, &mut state)
        };
        let (less, more): (Vec<_>, Vec<_>) =
            self.planned_changes().into_iter().partition(|change| change.to < change.from);
        let mut patience = PATIENCE;
        for change in less.iter().chain(&more) {
            if self.state.lock().stop {
                break;
            }
            self.change_filter(change, &mut patience);
        }
        true
    }

    /// The changes that make the filters fit the budget with the fewest wasted reads; none if they
    /// fit, and are not much worse as they are.
    fn planned_changes(&self) -> Vec<Change> {
        let view = self.view.load();
        let mut lives = Vec::new();
        let mut claims = Vec::new();
        let mut has = Vec::new();
        for (level, live) in view.version.tables() {
            let Some((stored, now)) = live.filter.residence() else { continue };
            let damaged =
                matches!(&live.filter.state, FilterState::Active(f) if f.damage().is_some());
            // What is damaged in its file can be let go, but not brought back.
            let portions = stored.portions().take_while(|&portion| !damaged || portion <= now);
            let choices = portions.map(|portion| Choice {
                portion,
                bytes: resident_bytes(stored, portion),
                rate: stored.rate_of(portion),
            });
            let choices: Vec<_> = choices.collect();
            has.push(choices.iter().position(|choice| choice.portion == now).unwrap_or(0));
            claims.push(Claim { weight: self.absent_probes(&view.version, level, live), choices });
            lives.push((live.table.id(), now));
        }
        let budget = self.env.filter_memory.budget().unwrap_or(u64::MAX);
        let wanted = ration(&claims, budget);
        let bytes = |chosen: &[usize]| -> u64 {
            claims.iter().zip(chosen).map(|(claim, &i)| claim.choices[i].bytes).sum()
        };
        let all_fits = wanted.iter().zip(&claims).all(|(&i, claim)| i + 1 == claim.choices.len());
        let worth = loss(&claims, &has) > WORTH * loss(&claims, &wanted);
        if !all_fits && !worth && bytes(&has) <= budget {
            return Vec::new();
        }
        let changes = lives.into_iter().zip(claims.iter().zip(wanted));
        changes
            .map(|((table, from), (claim, i))| Change { table, from, to: claim.choices[i].portion })
            .filter(|change| change.from != change.to)
            .collect()
    }

    /// The absent probes that a table has met, and those of [`PRIOR_LOOKUPS`] lookups that are spread
    /// evenly over the keys of each level: Monkey's assumption, and all there is without history.
    fn absent_probes(&self, version: &Version, level: usize, live: &LiveTable) -> f64 {
        let counts = self.env.ledger.table_counts(live.table.id());
        let met = counts.true_negatives + counts.false_positives + counts.unfiltered_not_found;
        let share = if level == 0 {
            1.0
        } else {
            let keys = version.level(level).iter().map(|live| live.table.meta().keys);
            live.table.meta().keys as f64 / keys.sum::<u64>().max(1) as f64
        };
        met as f64 + share * PRIOR_LOOKUPS
    }

    /// Lets go, or brings back, what a change says of one filter, unless the table is gone, or has
    /// another filter, or is as it should not be any more, or there is no room.
    fn change_filter(&self, change: &Change, patience: &mut Duration) {
        if let Some(degraded) = self.try_change(change, patience) {
            self.options.listener.tell(&degraded);
        }
    }

    /// The same; gives what is to be told once no lock is held: that the filter turned out bad.
    fn try_change(&self, change: &Change, patience: &mut Duration) -> Option<Event> {
        let memory = &self.env.filter_memory;
        let _taking = memory.taking();
        let live = {
            let view = self.view.load();
            let found = view.version.tables().find(|(_, live)| live.table.id() == change.table);
            found?.1.clone()
        };
        let (stored, now) = live.filter.residence()?;
        if now != change.from {
            return None;
        }
        let next = if change.to < now {
            live.filter.reduced_to(change.to)
        } else {
            let bytes = |portion| resident_bytes(stored, portion);
            if !memory.has_room(bytes(now), bytes(change.to)) {
                return None;
            }
            match (live.table.load_portion(&live.filter, stored, change.to), &live.filter.state) {
                (Ok(filter), _) => live.filter.in_state(FilterState::Active(filter)),
                (Err(reason), FilterState::Active(filter)) => {
                    filter.stored_is_damaged(reason);
                    return None;
                }
                (Err(reason), _) => live.filter.in_state(FilterState::Degraded(reason)),
            }
        };
        let degraded = match &next.state {
            FilterState::Degraded(reason) => {
                let (path, offset) = live.open().filter_place();
                let (table, reason) = (change.table, reason.clone());
                Some(Event::FilterDegraded { table, path, offset, reason })
            }
            _ => None,
        };
        if !self.replace_filter(change.table, &live.filter, next) {
            return None;
        }
        wait_for_readers(&live.filter, patience);
        degraded
    }

    /// Puts a filter in place of another, if that is still the one of its table.
    fn replace_filter(&self, table: u64, old: &Arc<TableFilter>, new: TableFilter) -> bool {
        let _state = self.state.lock();
        let mut view = View::clone(&self.view.load());
        let mut tables = view.version.tables();
        if !tables.any(|(_, live)| live.table.id() == table && Arc::ptr_eq(&live.filter, old)) {
            return false;
        }
        drop(tables);
        let new = HashMap::from([(table, Arc::new(new))]);
        view.version = Arc::new(view.version.with_filters(&new));
        self.view.store(Arc::new(view));
        self.changed.notify_all();
        true
    }

    /// A compaction runs for long, and would keep every filter in memory that is let go meanwhile.
    /// Within a budget it goes without them.
    pub(crate) fn without_pinned_filters(
        &self,
        mut compaction: Compaction,
        version: Arc<Version>,
    ) -> (Compaction, Arc<Version>) {
        if self.env.filter_memory.budget().is_some() {
            for (_, live) in &mut compaction.inputs {
                *live = live.without_filter();
            }
        }
        (compaction, self.without_pinned(version))
    }

    /// A version for whoever holds it long: within a budget, one without filters.
    pub(crate) fn without_pinned(&self, version: Arc<Version>) -> Arc<Version> {
        match self.env.filter_memory.budget() {
            Some(_) => Arc::new(version.without_filters()),
            None => version,
        }
    }
}

/// Waits until nobody else holds a filter that was replaced, but no longer than there is patience.
fn wait_for_readers(replaced: &Arc<TableFilter>, patience: &mut Duration) {
    let start = Instant::now();
    while Arc::strong_count(replaced) > 1 && start.elapsed() < *patience {
        sleep(Duration::from_micros(50));
    }
    *patience = patience.saturating_sub(start.elapsed());
}

/// Somebody is at work on filters, or flushes; dropped, not any more, and holds no filter.
pub(super) struct AtWork<'a>(&'a Core);

impl<'a> AtWork<'a> {
    pub(super) fn begin(core: &'a Core, state: &mut State) -> Self {
        state.at_work += 1;
        Self(core)
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.state.lock().at_work -= 1;
        self.0.changed.notify_all();
    }
}
