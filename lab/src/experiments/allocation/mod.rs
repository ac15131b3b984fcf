//! Allocation of bits: the same for every key, or where they avoid the most reads.

mod figures;

use std::path::Path;

use criba::{Allocation, FilterKind, FilterPolicy};
use criba_cli::Result;

use crate::check::{Check, Sample};
use crate::experiment::{Experiment, Notes, Setting};
use crate::kinds::{self, Share};
use crate::layered::{Layered, filter_of, levels, loaded};
use crate::shown;
use crate::source::Source;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "allocation",
    title: "Where a store's filter bits avoid the most reads",
    question: "How many reads does an absent lookup waste, by bits a key, if every table has as many \
               bits a key as any other, and if those that are small for what they are asked have more?",
    sources: &[Source::Beyond],
    run,
};

const KINDS: [FilterKind; 2] = [FilterKind::Bloom, FilterKind::Ribbon];
/// The wasted reads to measure for each mark.
const AIM: f64 = 3000.0;

struct Line {
    kind: FilterKind,
    allocation: Allocation,
    cells: Vec<Cell>,
    reads: u64,
    file_reads: u64,
}

struct Cell {
    /// Requested; and of all finished filters, with headers.
    bits_per_key: f64,
    bits_taken: f64,
    wasted: f64,
    lookups: u64,
    /// The probes of all tables, with the expectation of their finished filters.
    sample: Sample,
}

fn run(setting: &Setting, notes: &mut Notes) -> Result<()> {
    let loaded = loaded(setting, setting.pick(200_000, 2_000_000))?;
    let store = Layered::open(setting, &loaded, "a look")?;
    let (shares, levels) = (shares(&store), levels(&store.db));
    drop(store);

    let both = [Allocation::Uniform, Allocation::Balanced];
    let lines: Vec<(FilterKind, Allocation)> =
        KINDS.into_iter().flat_map(|kind| both.map(|allocation| (kind, allocation))).collect();
    let lines = setting.each("filters of every size", &lines, |&(kind, allocation)| {
        measure(setting, &loaded, kind, allocation, &shares)
    })?;
    for line in &lines {
        checks(notes, line);
    }
    for kind in KINDS {
        notes.figure(figures::by_kind(kind, &lines, &shares));
    }
    compare(notes, &lines);
    remarks(notes, &lines, &shares, &levels);
    Ok(())
}

/// The keys of each table, and its share of the key range.
fn shares(store: &Layered) -> Vec<Share> {
    let number =
        |key: &[u8]| key.first_chunk().map_or(0.0, |first| u64::from_be_bytes(*first) as f64);
    let tables = store.db.tables();
    let range = tables.iter().map(|t| (number(&t.largest) - number(&t.smallest)) / 2_f64.powi(64));
    tables.iter().zip(range).map(|(table, load)| (table.keys as f64, load)).collect()
}

fn theory(kind: FilterKind, allocation: Allocation, shares: &[Share], bits: f64) -> f64 {
    match allocation {
        Allocation::Balanced => kinds::balanced(kind, shares, bits),
        _ => kinds::uniform(kind, shares, bits),
    }
}

fn measure(
    setting: &Setting,
    loaded: &Path,
    kind: FilterKind,
    allocation: Allocation,
    shares: &[Share],
) -> Result<Line> {
    let mut store = Layered::open(setting, loaded, "absent keys")?;
    let mut line = Line { kind, allocation, cells: Vec::new(), reads: 0, file_reads: 0 };
    for bits_per_key in (2..=16).step_by(setting.pick(2, 1)).map(f64::from) {
        let policy = FilterPolicy::bits_per_key(bits_per_key).with_kind(kind);
        store.db.rebuild_filters(&policy.with_allocation(allocation))?;
        let theory = theory(kind, allocation, shares, bits_per_key);
        let lookups = ((AIM / theory) as u64).clamp(10_000, setting.pick(200_000, 4_000_000));
        let met = store.ask(lookups)?;
        line.reads += met.reads;
        line.file_reads += met.file_reads;

        let tables = store.db.tables();
        let keys: u64 = tables.iter().map(|table| table.keys).sum();
        let filter_bytes: usize = tables.iter().map(|table| table.filter.bytes()).sum();
        let of_table = tables.iter().map(|table| {
            // A table without a filter is read whenever it is asked.
            let rate = filter_of(table).unwrap_or(1.0);
            Sample::of_chance(met.asked.get(&table.id).copied().unwrap_or_default(), 0, rate)
        });
        line.cells.push(Cell {
            bits_per_key,
            bits_taken: 8.0 * filter_bytes as f64 / keys as f64,
            wasted: met.reads as f64 / met.lookups as f64,
            lookups,
            sample: Sample { passed: met.reads, ..of_table.sum() },
        });
    }
    Ok(line)
}

fn checks(notes: &mut Notes, line: &Line) {
    let Line { kind, allocation, cells, reads, file_reads } = line;
    let how = name(*allocation);
    let id = figures::id(*kind);
    for cell in cells {
        let bits = cell.bits_per_key;
        let quantity = format!("{kind}, {how}, {bits} bits a key: probes that wasted a read");
        let formula = "Σ probes · the rate that the table's finished filter has";
        let check = Check::share(quantity, formula, cell.sample).at(id);
        notes.check(check.if_enough());
    }
    let quantity = format!("{kind}, {how}: reads of the tables' files");
    let formula = "the disk reads that the store counted";
    notes.check(Check::exact(quantity, formula, *reads as f64, *file_reads as f64).at(id));
}

fn name(allocation: Allocation) -> &'static str {
    match allocation {
        Allocation::Balanced => "balanced",
        _ => "uniform",
    }
}

/// Without sources: none of them allocates bits.
fn compare(notes: &mut Notes, lines: &[Line]) {
    let at_ten = |line: &Line| {
        line.cells
            .iter()
            .find(|cell| (cell.bits_per_key - 10.0).abs() < 0.1)
            .map(|cell| cell.wasted)
    };
    let Some(plain) = lines.first().and_then(at_ten) else { return };
    for line in lines {
        let Some(wasted) = at_ten(line) else { continue };
        let quantity = format!(
            "wasted reads a lookup, 10 bits a key, {}, {}",
            line.kind,
            name(line.allocation)
        );
        let note = format!("uniform bloom filters waste {:.2} times that", plain / wasted);
        notes.measured(&quantity, format!("{wasted:.5}"), &note);
    }
}

fn remarks(notes: &mut Notes, lines: &[Line], shares: &[Share], levels: &[(usize, usize, u64)]) {
    let levels: Vec<_> = levels
        .iter()
        .map(|(level, tables, keys)| format!("L{level} {} in {tables}", shown(*keys as f64)))
        .collect();
    notes.remark(format!(
        "The store's keys, by level and number of tables: {}. An absent key comes to {:.2} filters in \
         the mean. What is counted is each call that asks the file layer for a block.",
        levels.join("; "),
        shares.iter().map(|(_, load)| load).sum::<f64>()
    ));
    let taken = lines.chunks(2).flat_map(|pair| pair[0].cells.iter().zip(&pair[1].cells));
    let off =
        taken.map(|(uniform, balanced)| (balanced.bits_taken / uniform.bits_taken - 1.0).abs());
    notes.remark(format!(
        "Balanced filters took as many bits as uniform ones, headers included, but for {:.2} % at most.",
        100.0 * off.fold(0.0, f64::max)
    ));
    notes.remark(
        "The curves are for large filters of any size, and decide nothing. Filters come in whole \
         probes and columns; Bloom filters of a few thousand keys lie above \
         it at the lowest rates, where the probes of double hashing meet. Where some hundred wasted reads \
         were counted, chance moves a point by a tenth. What decides is whether each filter wastes what \
         its finished bits promise.",
    );
}
