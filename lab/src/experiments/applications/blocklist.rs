//! A block list: no listed address may pass, and a removed one must.

use criba_cli::Result;

use super::one_percent;
use crate::check::Check;
use crate::experiment::{Notes, Setting};
use crate::experiments::stored::{Lookups, Stored, scattered};
use crate::shown;
use crate::trial::{FORMULA, of_shape};

pub(super) fn run(setting: &Setting, notes: &mut Notes) -> Result<()> {
    let half: u64 = setting.pick(250_000, 1_000_000);
    let (off, on) = (2..half + 2, half + 2..2 * half); // what is taken off the list, and what stays
    setting.begin("a block list", 3);
    let store = Stored::new(setting, "block list", one_percent())?;
    store.put(2..2 * half)?; // and the two at the edges, which stay
    store.db.compact()?;
    let mut stage = |name: &str, listed: u64| -> Result<Lookups> {
        let (stays, goes) = (store.look_up(on.clone())?, store.look_up(off.clone())?);
        let quantity = format!("blocked, of {} that are to be, {name}", shown(half as f64));
        let blocked = stays.found as f64 + 2.0;
        notes.check(Check::exact(quantity, "all", half as f64, blocked));
        let quantity = format!("blocked, of those taken off, {name}");
        let formula = "all before they are, none after";
        let check = Check::exact(quantity, formula, listed as f64, goes.found as f64);
        notes.check(if listed == 0 { check.as_illustration() } else { check });
        let reads = format!("{:.4}", goes.counts.disk_reads as f64 / half as f64);
        notes.measured(&format!("disk reads an address taken off, {name}"), reads, "");
        setting.step(1);
        Ok(goes)
    };
    stage("with all on the list", half)?;
    for number in off.clone() {
        store.db.delete(scattered(number))?;
    }
    store.db.flush()?;
    stage("with tombstones", 0)?;
    store.db.compact()?;
    let after = stage("after compaction", 0)?;

    let (shape, keys) = store.shape();
    let sample = of_shape(after.made, after.counts.disk_reads, shape, keys);
    let quantity = "addresses taken off that the filter still passes, after compaction";
    notes.check(Check::share(quantity, FORMULA, sample).if_enough());
    let quantity = "keys in the table, after compaction";
    let check = Check::exact(quantity, "those that stay", half as f64, keys as f64);
    notes.check(check);
    notes.remark(
        "A filter alone cannot forget: with half of the list taken off it would pass those as before, and \
         bits cleared for them would be missing from others, a false negative. Here a tombstone is an \
         entry like any other, the filter passes it, and the compaction that drops it makes a filter \
         that never knew the key.",
    );
    Ok(())
}
