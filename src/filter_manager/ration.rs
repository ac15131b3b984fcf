//! Distributes memory over filters so that they avoid the most disk reads. Each portion of a filter has its
//! bytes and rate. The chosen portions have nearly the least sum of weight · rate, the wasted reads, of all
//! within the budget.

use crate::sstable::Portion;

#[derive(Debug, Clone)]
pub(crate) struct Claim {
    /// Absent probes of the filter, in a unit that all claims share.
    pub(crate) weight: f64,
    /// From nothing to the whole filter, with ascending bytes and falling rates.
    pub(crate) choices: Vec<Choice>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Choice {
    pub(crate) portion: Portion,
    pub(crate) bytes: u64,
    pub(crate) rate: f64,
}

pub(crate) fn loss(claims: &[Claim], chosen: &[usize]) -> f64 {
    let one = |(claim, &choice): (&Claim, &usize)| {
        claim.choices.get(choice).map_or(0.0, |choice| claim.weight * choice.rate)
    };
    claims.iter().zip(chosen).map(one).sum()
}

struct Step {
    claim: usize,
    from: usize,
    to: usize,
    bytes: u64,
    saved_per_byte: f64,
}

/// The index of the choice for each claim; together they take at most `budget` bytes.
///
/// Takes the steps in the order of saved reads per byte. The steps of a claim lie on the lower convex hull of
/// its choices, so each saves less per byte than the one before. The rest of the budget goes to larger
/// choices that fit, those of the most wasted reads first.
pub(crate) fn ration(claims: &[Claim], budget: u64) -> Vec<usize> {
    let mut steps: Vec<Step> =
        claims.iter().enumerate().flat_map(|(number, claim)| hull_steps(number, claim)).collect();
    steps.sort_by(|a, b| b.saved_per_byte.total_cmp(&a.saved_per_byte).then(a.from.cmp(&b.from)));
    let mut chosen = vec![0; claims.len()];
    let mut left = budget;
    for step in &steps {
        if chosen[step.claim] == step.from && step.bytes <= left {
            chosen[step.claim] = step.to;
            left -= step.bytes;
        }
    }
    let mut wishes: Vec<usize> = (0..claims.len()).collect();
    let wasted = |claim: usize| claims[claim].weight * claims[claim].choices[chosen[claim]].rate;
    wishes.sort_by(|&a, &b| wasted(b).total_cmp(&wasted(a)));
    for claim in wishes {
        let choices = &claims[claim].choices;
        let has = choices[chosen[claim]].bytes;
        let fits = |choice: &Choice| choice.bytes - has <= left;
        let more = choices[chosen[claim]..].iter().take_while(|choice| fits(choice)).count() - 1;
        chosen[claim] += more;
        left -= choices[chosen[claim]].bytes - has;
    }
    chosen
}

/// The steps on the lower convex hull of the choices, in (bytes, rate).
fn hull_steps(number: usize, claim: &Claim) -> Vec<Step> {
    let step = |from: usize, to: usize| {
        let (a, b) = (&claim.choices[from], &claim.choices[to]);
        let bytes = b.bytes - a.bytes;
        let saved = claim.weight * (a.rate - b.rate);
        // Memory comes in pages, so a step within the last page is free.
        let saved_per_byte = if bytes == 0 { f64::INFINITY } else { saved / bytes as f64 };
        Step { claim: number, from, to, bytes, saved_per_byte }
    };
    let mut hull: Vec<usize> = Vec::new();
    for next in 0..claim.choices.len() {
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

    fn claim(weight: f64, choices: impl IntoIterator<Item = (u64, f64)>) -> Claim {
        let all = std::iter::once((0, 1.0)).chain(choices);
        let portion = |i| if i == 0 { Portion::Nothing } else { Portion::Columns(i as u32) };
        let choices = all
            .enumerate()
            .map(|(i, (bytes, rate))| Choice { portion: portion(i), bytes, rate })
            .collect();
        Claim { weight, choices }
    }

    fn columns(weight: f64, bytes: u64, columns: u32) -> Claim {
        claim(weight, (1..=columns).map(|c| (u64::from(c) * bytes, (-f64::from(c)).exp2())))
    }

    fn taken(claims: &[Claim], chosen: &[usize]) -> u64 {
        claims.iter().zip(chosen).map(|(claim, &choice)| claim.choices[choice].bytes).sum()
    }

    fn best(claims: &[Claim], budget: u64) -> f64 {
        let Some((first, rest)) = claims.split_first() else { return 0.0 };
        let fits = first.choices.iter().filter(|choice| choice.bytes <= budget);
        fits.map(|choice| first.weight * choice.rate + best(rest, budget - choice.bytes))
            .fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn a_column_more_goes_where_it_avoids_the_most() {
        // With twice the keys and four times the probes, one column more is right.
        let claims = [columns(1.0, 100, 9), columns(4.0, 200, 9)];
        assert_eq!(ration(&claims, 0), [0, 0]);
        assert_eq!(ration(&claims, 200), [0, 1]);
        assert_eq!(ration(&claims, 1100), [3, 4]);
        assert_eq!(ration(&claims, 1099), [4, 3], "the rest goes to a filter with room");
        assert_eq!(ration(&claims, 1200), [4, 4]);
        assert_eq!(ration(&claims, 2700), [9, 9]);
        assert_eq!(ration(&claims, u64::MAX), [9, 9]);
    }

    #[test]
    fn the_step_that_saves_the_most_comes_first() {
        let claims = [claim(1.0, [(100, 0.9)]), claim(1.0, [(100, 0.5)])];
        assert_eq!(ration(&claims, 100), [0, 1]);
    }

    #[test]
    fn what_is_left_goes_where_the_most_is_wasted() {
        let seldom = claim(1.0, [(10, 0.9995), (1000, 0.0)]);
        let often = claim(4.0, [(100, 0.1), (110, 0.0999), (1100, 0.0)]);
        assert_eq!(ration(&[seldom.clone(), often.clone()], 110), [1, 1]);
        assert_eq!(ration(&[often, seldom], 110), [1, 1]);
    }

    #[test]
    fn never_more_than_there_is_and_near_the_best_that_can_be() {
        let mut worst: f64 = 1.0;
        let mut cases = 0;
        for seed in 0..400_u64 {
            let random = |i: u64, n: u64| mix(mix(seed) ^ i) % n;
            let claims: Vec<Claim> = (0..4)
                .map(|i| {
                    let weight = random(4 * i, 50) as f64;
                    match random(4 * i + 1, 3) {
                        0 => claim(weight, [(100 + random(4 * i + 2, 900), 0.01)]),
                        // Columns within one page of memory cost nothing.
                        1 => claim(weight, [(100, 0.5), (100, 0.25), (100, 0.125), (200, 0.0625)]),
                        _ => columns(weight, 20 + random(4 * i + 2, 100), 6),
                    }
                })
                .collect();
            let whole: u64 = claims.iter().map(|claim| claim.choices.last().unwrap().bytes).sum();
            for part in 0..=10 {
                let budget = whole * part / 10;
                let chosen = ration(&claims, budget);
                assert!(taken(&claims, &chosen) <= budget, "seed {seed}, {part} tenths");
                let (found, best) = (loss(&claims, &chosen), best(&claims, budget));
                assert!(found >= best - 1e-9);
                // The greedy result wastes more than the best by at most one step of one claim.
                let largest = claims.iter().map(|claim| claim.weight).fold(0.0, f64::max);
                assert!(found <= best + largest, "seed {seed}, {part} tenths: {found} {best}");
                if best > 0.0 {
                    worst = worst.max(found / best);
                }
                cases += 1;
            }
            assert_eq!(taken(&claims, &ration(&claims, whole)), whole);
        }
        println!("{cases} cases, at worst {worst:.2} times the fewest wasted reads");
    }
}
