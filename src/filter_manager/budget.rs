//! Distributes memory over filters so that they avoid the most disk reads. Each portion of a filter has its
//! bytes and rate. The chosen portions have nearly the least sum of weight · rate, the wasted reads, of all
//! within the budget.

use crate::sstable::Portion;

#[derive(Debug, Clone)]
pub(crate) struct FilterCandidates {
    /// Absent probes of the filter, in a unit that all filters share.
    pub(crate) weight: f64,
    /// Portions from nothing to the whole filter, with ascending bytes and falling rates.
    pub(crate) candidates: Vec<Candidate>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) portion: Portion,
    pub(crate) bytes: u64,
    pub(crate) rate: f64,
}

pub(crate) fn wasted_reads(filters: &[FilterCandidates], chosen: &[usize]) -> f64 {
    let one = |(filter, &candidate): (&FilterCandidates, &usize)| {
        filter.candidates.get(candidate).map_or(0.0, |candidate| filter.weight * candidate.rate)
    };
    filters.iter().zip(chosen).map(one).sum()
}

struct Step {
    filter: usize,
    from: usize,
    to: usize,
    bytes: u64,
    saved_per_byte: f64,
}

/// The index of the candidate for each filter; together they take at most `budget` bytes.
///
/// Takes the steps in the order of saved reads per byte. The steps of a filter lie on the lower convex hull of
/// its candidates, so each saves less per byte than the one before. The rest of the budget goes to larger
/// candidates that fit, those of the most wasted reads first.
pub(crate) fn fit_budget(filters: &[FilterCandidates], budget: u64) -> Vec<usize> {
    let mut steps: Vec<Step> = filters
        .iter()
        .enumerate()
        .flat_map(|(number, filter)| hull_steps(number, filter))
        .collect();
    steps.sort_by(|a, b| b.saved_per_byte.total_cmp(&a.saved_per_byte).then(a.from.cmp(&b.from)));
    let mut chosen = vec![0; filters.len()];
    let mut left = budget;
    for step in &steps {
        if chosen[step.filter] == step.from && step.bytes <= left {
            chosen[step.filter] = step.to;
            left -= step.bytes;
        }
    }
    let mut by_waste: Vec<usize> = (0..filters.len()).collect();
    let wasted =
        |filter: usize| filters[filter].weight * filters[filter].candidates[chosen[filter]].rate;
    by_waste.sort_by(|&a, &b| wasted(b).total_cmp(&wasted(a)));
    for filter in by_waste {
        let candidates = &filters[filter].candidates;
        let has = candidates[chosen[filter]].bytes;
        let fits = |candidate: &Candidate| candidate.bytes - has <= left;
        let more =
            candidates[chosen[filter]..].iter().take_while(|candidate| fits(candidate)).count() - 1;
        chosen[filter] += more;
        left -= candidates[chosen[filter]].bytes - has;
    }
    chosen
}

/// The steps on the lower convex hull of the candidates, in (bytes, rate).
fn hull_steps(number: usize, filter: &FilterCandidates) -> Vec<Step> {
    let step = |from: usize, to: usize| {
        let (a, b) = (&filter.candidates[from], &filter.candidates[to]);
        let bytes = b.bytes - a.bytes;
        let saved = filter.weight * (a.rate - b.rate);
        // Memory comes in pages, so a step within the last page is free.
        let saved_per_byte = if bytes == 0 { f64::INFINITY } else { saved / bytes as f64 };
        Step { filter: number, from, to, bytes, saved_per_byte }
    };
    let mut hull: Vec<usize> = Vec::new();
    for next in 0..filter.candidates.len() {
        while let [.., before, last] = hull[..]
            && step(last, next).saved_per_byte >= step(before, last).saved_per_byte
        {
            hull.pop();
        }
        hull.push(next);
    }
    hull.windows(2).map(|pair| step(pair[0], pair[1])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use criba_filter::store::mix;

    fn filter(weight: f64, candidates: impl IntoIterator<Item = (u64, f64)>) -> FilterCandidates {
        let all = std::iter::once((0, 1.0)).chain(candidates);
        let portion = |i| if i == 0 { Portion::Nothing } else { Portion::Columns(i as u32) };
        let candidates = all
            .enumerate()
            .map(|(i, (bytes, rate))| Candidate { portion: portion(i), bytes, rate })
            .collect();
        FilterCandidates { weight, candidates }
    }

    fn columns(weight: f64, bytes: u64, columns: u32) -> FilterCandidates {
        filter(weight, (1..=columns).map(|c| (u64::from(c) * bytes, (-f64::from(c)).exp2())))
    }

    fn taken(filters: &[FilterCandidates], chosen: &[usize]) -> u64 {
        filters
            .iter()
            .zip(chosen)
            .map(|(filter, &candidate)| filter.candidates[candidate].bytes)
            .sum()
    }

    fn best(filters: &[FilterCandidates], budget: u64) -> f64 {
        let Some((first, rest)) = filters.split_first() else { return 0.0 };
        let fits = first.candidates.iter().filter(|candidate| candidate.bytes <= budget);
        fits.map(|candidate| first.weight * candidate.rate + best(rest, budget - candidate.bytes))
            .fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn a_column_more_goes_where_it_avoids_the_most() {
        // With twice the keys and four times the probes, one column more is right.
        let filters = [columns(1.0, 100, 9), columns(4.0, 200, 9)];
        assert_eq!(fit_budget(&filters, 0), [0, 0]);
        assert_eq!(fit_budget(&filters, 200), [0, 1]);
        assert_eq!(fit_budget(&filters, 1100), [3, 4]);
        assert_eq!(fit_budget(&filters, 1099), [4, 3], "the rest goes to a filter with room");
        assert_eq!(fit_budget(&filters, 1200), [4, 4]);
        assert_eq!(fit_budget(&filters, 2700), [9, 9]);
        assert_eq!(fit_budget(&filters, u64::MAX), [9, 9]);
    }

    #[test]
    fn the_step_that_saves_the_most_comes_first() {
        let filters = [filter(1.0, [(100, 0.9)]), filter(1.0, [(100, 0.5)])];
        assert_eq!(fit_budget(&filters, 100), [0, 1]);
    }

    #[test]
    fn what_is_left_goes_where_the_most_is_wasted() {
        let seldom = filter(1.0, [(10, 0.9995), (1000, 0.0)]);
        let often = filter(4.0, [(100, 0.1), (110, 0.0999), (1100, 0.0)]);
        assert_eq!(fit_budget(&[seldom.clone(), often.clone()], 110), [1, 1]);
        assert_eq!(fit_budget(&[often, seldom], 110), [1, 1]);
    }

    #[test]
    fn never_more_than_there_is_and_near_the_best_that_can_be() {
        let mut worst: f64 = 1.0;
        let mut cases = 0;
        for seed in 0..400_u64 {
            let random = |i: u64, n: u64| mix(mix(seed) ^ i) % n;
            let filters: Vec<FilterCandidates> = (0..4)
                .map(|i| {
                    let weight = random(4 * i, 50) as f64;
                    match random(4 * i + 1, 3) {
                        0 => filter(weight, [(100 + random(4 * i + 2, 900), 0.01)]),
                        // Columns within one page of memory cost nothing.
                        1 => filter(weight, [(100, 0.5), (100, 0.25), (100, 0.125), (200, 0.0625)]),
                        _ => columns(weight, 20 + random(4 * i + 2, 100), 6),
                    }
                })
                .collect();
            let whole: u64 =
                filters.iter().map(|filter| filter.candidates.last().unwrap().bytes).sum();
            for part in 0..=10 {
                let budget = whole * part / 10;
                let chosen = fit_budget(&filters, budget);
                assert!(taken(&filters, &chosen) <= budget, "seed {seed}, {part} tenths");
                let (found, best) = (wasted_reads(&filters, &chosen), best(&filters, budget));
                assert!(found >= best - 1e-9);
                // The greedy result wastes more than the best by at most one step of one filter.
                let largest = filters.iter().map(|filter| filter.weight).fold(0.0, f64::max);
                assert!(found <= best + largest, "seed {seed}, {part} tenths: {found} {best}");
                if best > 0.0 {
                    worst = worst.max(found / best);
                }
                cases += 1;
            }
            assert_eq!(taken(&filters, &fit_budget(&filters, whole)), whole);
        }
        println!("{cases} cases, at worst {worst:.2} times the fewest wasted reads");
    }
}
