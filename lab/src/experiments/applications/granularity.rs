//! One filter per block, per table, or for everything; and filters of paths, of blocks or of lines.

use criba_cli::Result;
use criba_report::figure::{Axis, Series};

use crate::check::{Check, Sample};
use crate::experiment::{Notes, Setting, drawn, key};
use crate::trial::{FORMULA, asked, bloom};
use crate::{shown, theory};

const BITS: u64 = 6;
const PROBES: u32 = 4;
/// Of a filter's bytes, in bits.
const HEADER: f64 = 1024.0;

pub(super) fn run(setting: &Setting, notes: &mut Notes) -> Result<()> {
    let keys: u64 = 1 << setting.pick(18, 21);
    let lookups: u64 = setting.pick(300_000, 4_000_000);
    let sizes: [(&str, u64); 4] = [
        ("a block of 256 keys", 256),
        ("8 blocks", 2048),
        ("a table of 16,384 keys", 1 << 14),
        ("everything", keys),
    ];
    let measured = setting.each("filters for more or less", &sizes, |&(_, of_keys)| {
        let (filters, m) = (keys / of_keys, BITS * of_keys);
        let (mut samples, mut bytes) = (Vec::new(), 0);
        for number in 0..filters {
            let hashing = setting.hashing("granularity", of_keys << 32 | number);
            let filter = bloom(hashing, (m, PROBES), of_keys)?;
            // An index says in which block or table a key would be: one filter is asked.
            let lookups = number * lookups / filters..(number + 1) * lookups / filters;
            samples.push(asked(&filter, of_keys, lookups));
            bytes += filter.to_bytes().len();
        }
        Ok((samples.into_iter().sum::<Sample>(), bytes))
    })?;
    let mut marks = Vec::new();
    for ((name, of_keys), (sample, bytes)) in sizes.iter().zip(measured) {
        let quantity = format!("FPR, {BITS} bits a key, a filter for {name}");
        notes.check(Check::share(quantity, FORMULA, sample).at("granularity").if_enough());
        marks.push((*of_keys as f64, 8.0 * bytes as f64 / keys as f64));
    }
    let line = (8..=21).map(|power| 1_u64 << power);
    let line = line.map(|n| (n as f64, BITS as f64 + HEADER / n as f64));
    notes.figure(drawn(
        "granularity",
        [
            "What a filter takes, by how many keys it is for",
            "Is one filter wanted for a block, for a table, or for everything?",
            "At the same bits a key the rate is the same whatever the number of keys, but for what \
             double hashing adds to very small filters; each filter has a header of 1024 bits \
             beside.",
            &format!(
                "{} keys in filters of {BITS} bits a key, asked {} absent keys; each in one \
                 filter, as an index would choose it.",
                shown(keys as f64),
                shown(lookups as f64)
            ),
        ],
        [Axis::log("keys in a filter", ""), Axis::linear("filter, header included", "bits a key")],
        vec![Series::line("theory", 0, line.collect()), Series::marks("measured", 0, marks)],
    ));
    paths_blocks_lines(setting, notes)
}

/// Files of 16 blocks of 32 lines, without an index: what passes is read, and a search for a line reads the
/// blocks that may have it, in order.
fn paths_blocks_lines(setting: &Setting, notes: &mut Notes) -> Result<()> {
    const BLOCKS: u64 = 16;
    const LINES: u64 = 32;
    let files: u64 = setting.pick(4000, 20_000);
    let lines = BLOCKS * LINES;
    let hashing = |purpose, number| setting.hashing(purpose, number);
    let of_paths = bloom(hashing("paths", 0), (BITS * files, PROBES), files)?;
    let of_lines = bloom(hashing("lines", 0), (BITS * files * lines, PROBES), files * lines)?;
    let paths = asked(&of_paths, files, 0..400_000);
    let no_line = asked(&of_lines, files * lines, 0..400_000);
    let (block, mut present, mut absent) = ((BITS * LINES, PROBES), Vec::new(), Vec::new());
    for file in 0..files {
        let mut filters = Vec::new();
        for number in 0..BLOCKS {
            let mut filter = bloom(hashing("blocks", file * BLOCKS + number), block, 0)?;
            filter.extend((0..LINES).map(|i| key(0, file * lines + number * LINES + i)));
            filters.push(filter);
        }
        let line = file * lines + file % lines;
        let own = (file % lines / LINES) as usize;
        let may = |filters: &[criba_filter::Bloom], key: [u8; 12]| {
            filters.iter().filter(|filter| filter.contains(key)).count() as f64
        };
        present.push(may(&filters[..=own], key(0, line)));
        absent.push(may(&filters, key(1, file)));
    }
    let p = theory::exact_rate(block.0, block.1, LINES);
    for (quantity, sample) in
        [("FPR of a filter of paths", paths), ("FPR of one filter of all lines", no_line)]
    {
        notes.check(Check::share(quantity, FORMULA, sample));
    }
    let blocks = BLOCKS as f64;
    for (quantity, formula, expected, draws) in [
        ("blocks read for an absent line, filters of blocks", "16 p", blocks * p, absent),
        (
            "blocks read for a line, filters of blocks",
            "1 + 7.5 p: half of the others come before",
            1.0 + (blocks - 1.0) / 2.0 * p,
            present,
        ),
    ] {
        notes.check(Check::mean(quantity, formula, expected, &draws));
    }
    notes.remark(
        "A filter of paths takes six bits a file and saves whole files, but passes every line of a file that \
         is there: 16 blocks read for an absent line, and 8.5 for another. A filter of all lines takes 512 \
         times as many bits, saves the file for absent lines, and says nothing of where a line is. One for \
         each block of lines takes those bits and a header each, and says it. An index makes the last \
         needless: with it one filter for a table, asked before the index, is enough, and so criba has it.",
    );
    Ok(())
}
