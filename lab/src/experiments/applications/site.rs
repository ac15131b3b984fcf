//! A crawler on whole sites, on many domains, and on several nodes.

use std::collections::HashSet;

use criba_cli::Result;
use criba_filter::Bloom;
use criba_report::figure::{Axis, Series};
use rand::RngExt;

use crate::check::{Check, mean_and_sd};
use crate::experiment::{Notes, Setting, drawn, key};
use crate::trial::{asked, bloom};
use crate::{shown, theory};

pub(super) fn run(setting: &Setting, notes: &mut Notes) -> Result<()> {
    sites(setting, notes)?;
    domains(setting, notes)?;
    cluster(setting, notes);
    Ok(())
}

/// A site is a tree of pages with links down, to the parent and to the first page.
const LINKS: u64 = 3;
const DEPTH: u32 = 5;

fn pages() -> f64 {
    (0..=DEPTH).map(|level| LINKS.pow(level) as f64).sum()
}

/// The pages fetched. One that the filter passes is taken for seen, with its links.
fn crawl(seen: &mut Bloom, site: u32) -> u64 {
    let (mut fetched, mut waiting) = (0, vec![(0_u64, 0)]);
    seen.insert(key(site, 0));
    while let Some((page, level)) = waiting.pop() {
        fetched += 1;
        if level == DEPTH {
            continue;
        }
        let children = (1..=LINKS).map(|i| (LINKS * page + i, level + 1));
        let back = [(page.saturating_sub(1) / LINKS, 0), (0, 0)];
        for (linked, level) in children.chain(back) {
            if seen.insert(key(site, linked)) {
                waiting.push((linked, level));
            }
        }
    }
    fetched
}

fn sites(setting: &Setting, notes: &mut Notes) -> Result<()> {
    let known = 20_000;
    let numbers: Vec<u32> = (2..setting.pick(2000, 20_000)).collect();
    let (mut theory, mut marks) = (Vec::new(), Vec::new());
    for percent in [1_u32, 2, 5, 10] {
        let (m, k) = theory::classic_shape(known, f64::from(percent) / 100.0);
        let before = bloom(setting.hashing("sites", u64::from(percent)), (m, k), known)?;
        let shares = setting.each("sites", &numbers, |&site| {
            Ok(crawl(&mut before.clone(), site) as f64 / pages())
        })?;
        // The filter fills a little while the site is crawled.
        let rate = theory::rate(m, k, known + pages() as u64 / 2);
        let reached = |level: u32| (LINKS as f64 * (1.0 - rate)).powi(level as i32);
        let expected = (0..=DEPTH).map(reached).sum::<f64>() / pages();
        let quantity = format!("share of a site lost to a filter of {percent} %");
        let lost: Vec<f64> = shares.iter().map(|share| 1.0 - share).collect();
        let formula = "1 − Σ (b(1 − p))^d / Σ b^d, over the levels d";
        notes.check(Check::mean(quantity, formula, 1.0 - expected, &lost).at("sites"));
        theory.push((f64::from(percent), 100.0 * (1.0 - expected)));
        marks.push((f64::from(percent), 100.0 * mean_and_sd(&lost).0));
    }
    notes.figure(drawn(
        "sites",
        [
            "Pages of a site that a crawler loses to false positives",
            "What does a page that is taken for seen cost the rest of the site?",
            "A page is reached if none of the pages above it was a false positive: (1 − p)^d on \
             level d. Links back to seen pages end there, so that no crawl runs in a circle.",
            &format!(
                "{} sites of {} pages on {} levels, each with a filter of {} other addresses.",
                shown(numbers.len() as f64),
                pages(),
                DEPTH + 1,
                shown(known as f64)
            ),
        ],
        [Axis::linear("false-positive rate", "%"), Axis::linear("pages lost", "%")],
        vec![Series::line("theory", 0, theory), Series::marks("measured", 0, marks)],
    ));
    Ok(())
}

/// Domains of sizes by Zipf's law.
fn domains(setting: &Setting, notes: &mut Notes) -> Result<()> {
    const DOMAINS: u64 = 200;
    let pages: u64 = setting.pick(100_000, 1_000_000);
    let harmonic: f64 = (1..=DOMAINS).map(|rank| 1.0 / rank as f64).sum();
    let sizes: Vec<(u64, u64)> = (1..=DOMAINS)
        .map(|rank| (rank, (pages as f64 / harmonic / rank as f64).round() as u64))
        .collect();
    let total: u64 = sizes.iter().map(|(_, size)| size).sum();
    let (m, k) = theory::classic_shape(total, 0.01);
    let ways = [("one filter", 0), ("one sized for each", 1), ("equal ones", 2)];
    for (name, way) in ways {
        let all = if way == 0 { vec![(0, total)] } else { sizes.clone() };
        let samples = setting.each("domains", &all, |&(domain, size)| {
            let bits = if way == 2 { m / DOMAINS } else { m * size / total };
            let filter = bloom(setting.hashing(name, domain), (bits, k), size)?;
            Ok(asked(&filter, size, 0..3 * size))
        })?;
        let quantity = format!("FPR over {DOMAINS} domains, {name}");
        let formula = "Σ share · (1 − e^(−kn/m))^k over the domains";
        notes.check(Check::share(quantity, formula, samples.into_iter().sum()));
    }
    Ok(())
}

fn cluster(setting: &Setting, notes: &mut Notes) {
    const NODES: u64 = 8;
    const LINKS: u64 = 3;
    let pages: u64 = setting.pick(30_000, 300_000);
    let mut random = setting.random("cluster");
    let copies = |node_of: &mut dyn FnMut(u64) -> u64| -> Vec<f64> {
        let fetches = |page| (0..LINKS).map(|_| node_of(page)).collect::<HashSet<_>>().len() as f64;
        (0..pages).map(fetches).collect()
    };
    let anywhere = copies(&mut |_| random.random_range(0..NODES));
    let expected = NODES as f64 * (1.0 - (1.0 - 1.0 / NODES as f64).powi(LINKS as i32));
    let quantity = "fetches of a page by 8 nodes, each with a filter of its own";
    notes.check(Check::mean(quantity, "s(1 − (1 − 1/s)^l), l links", expected, &anywhere));
    let by_domain: f64 = copies(&mut |page| page % 1000 % NODES).iter().sum();
    let quantity = "fetches by 8 nodes, each with its own domains";
    notes.check(Check::exact(quantity, "one a page", pages as f64, by_domain));
}
