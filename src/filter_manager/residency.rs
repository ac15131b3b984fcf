//! Chooses the portion of each filter that is resident within the memory budget.

use super::budget::{Candidate, FilterCandidates, fit_budget, wasted_reads};
use crate::sstable::Portion;
use crate::sstable::{FilterState, TableEnv, TableFilter, resident_bytes};
use crate::version::{LiveTable, Version};

use super::levels::expected_load;
use super::load::Loads;

/// Filters that fit change only if the wasted reads fall by this factor, because to load a filter costs a
/// disk read.
const WORTH: f64 = 1.05;

/// A change of the resident portion of a filter: from the one at the decision to the wanted one.
pub(crate) struct ResidencyChange {
    pub(crate) table: u64,
    pub(crate) from: Portion,
    pub(crate) to: Portion,
}

impl ResidencyChange {
    /// The filter after the change. `None` if there is another filter or portion by now, or if the filter
    /// keeps its portion because its file is damaged.
    pub(crate) fn apply(&self, live: &LiveTable) -> Option<TableFilter> {
        let (stored, now) = live.filter.residency()?;
        if now != self.from {
            return None;
        }
        if self.to < now {
            return Some(live.filter.reduced_to(self.to));
        }
        let loaded = live.table.load_portion(&live.filter, stored, self.to);
        Some(live.filter.in_state(match (loaded, &live.filter.state) {
            (Ok(filter), _) => FilterState::Active(filter),
            (Err(reason), FilterState::Active(filter)) => {
                filter.stored_is_damaged(reason);
                return None;
            }
            (Err(reason), _) => FilterState::Degraded(reason),
        }))
    }
}

/// The releases and the loads after which the filters are within the budget with the fewest wasted reads.
/// No changes if the filters are within it and nearly as good.
pub(crate) fn residency_changes(
    version: &Version,
    env: &TableEnv,
) -> (Vec<ResidencyChange>, Vec<ResidencyChange>) {
    let Filters { resident, candidates, chosen } = filters(version, env);
    let budget = env.filter_memory.budget().unwrap_or(u64::MAX);
    let wanted = fit_budget(&candidates, budget);
    let (mut bytes, mut all_fits) = (0, true);
    let (mut less, mut more) = (Vec::new(), Vec::new());
    for (i, filter) in candidates.iter().enumerate() {
        let (table, from) = resident[i];
        let to = filter.candidates[wanted[i]].portion;
        bytes += filter.candidates[chosen[i]].bytes;
        all_fits &= wanted[i] + 1 == filter.candidates.len();
        if to < from {
            less.push(ResidencyChange { table, from, to });
        } else if to > from {
            more.push(ResidencyChange { table, from, to });
        }
    }
    let worth = wasted_reads(&candidates, &chosen) > WORTH * wasted_reads(&candidates, &wanted);
    if !all_fits && !worth && bytes <= budget {
        return (Vec::new(), Vec::new());
    }
    (less, more)
}

/// The filters of a version, in one order.
#[derive(Default)]
struct Filters {
    /// The tables, with the resident portions of their filters.
    resident: Vec<(u64, Portion)>,
    candidates: Vec<FilterCandidates>,
    /// The resident portion's index among the candidates of each filter.
    chosen: Vec<usize>,
}

fn filters(version: &Version, env: &TableEnv) -> Filters {
    let expected_load = expected_load(version);
    let loads = Loads::of(&env.ledger);
    let mut filters = Filters::default();
    for (level, live) in version.tables() {
        let Some((stored, now)) = live.filter.residency() else { continue };
        let damaged =
            matches!(&live.filter.state, FilterState::Active(filter) if filter.damage().is_some());
        let mut candidates = Vec::new();
        let mut index_now = 0;
        for portion in stored.portions() {
            // A filter that is damaged in its file can be released, but not loaded.
            if damaged && portion > now {
                break;
            }
            if portion == now {
                index_now = candidates.len();
            }
            let (bytes, rate) = (resident_bytes(stored, portion), stored.rate_of(portion));
            candidates.push(Candidate { portion, bytes, rate });
        }
        let weight = loads.load(level, live, expected_load(level, live));
        filters.resident.push((live.table.id(), now));
        filters.candidates.push(FilterCandidates { weight, candidates });
        filters.chosen.push(index_now);
    }
    filters
}
