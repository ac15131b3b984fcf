//! A cache with three in four objects requested once: a filter admits objects at their second request.

use std::collections::{BTreeMap, HashMap, HashSet};

use criba::Db;
use criba::filter::Bloom;
use criba_cli::Result;
use criba_cli::page::figure::{Axis, Figure, Series};
use rand::RngExt;
use rand::seq::SliceRandom;

use super::{options, word};
use crate::check::{Check, Sample};
use crate::experiment::{Notes, Setting};
use crate::{shown, theory};

enum Door {
    Open,
    Filter(Bloom),
    /// The same without a mistake.
    Exact(HashSet<u32>),
}

impl Door {
    /// Whether the object was requested before, by this door.
    fn lets_in(&mut self, object: u32) -> bool {
        match self {
            Self::Open => true,
            Self::Filter(seen) => !seen.insert(word(u64::from(object))),
            Self::Exact(seen) => !seen.insert(object),
        }
    }
}

/// The objects in the cache, which are in a store, by their last request.
struct Cache<'a> {
    db: &'a Db,
    room: usize,
    last: HashMap<u32, u64>,
    order: BTreeMap<u64, u32>,
}

impl Cache<'_> {
    fn get(&mut self, object: u32, now: u64) -> Result<bool> {
        let found = self.db.get(word(u64::from(object)))?.is_some();
        if found {
            self.touch(object, now);
        }
        Ok(found)
    }

    fn touch(&mut self, object: u32, now: u64) {
        if let Some(before) = self.last.insert(object, now) {
            self.order.remove(&before);
        }
        self.order.insert(now, object);
    }

    fn put(&mut self, object: u32, now: u64) -> Result<()> {
        self.db.put(word(u64::from(object)), [7; 100])?;
        self.touch(object, now);
        if self.last.len() > self.room
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.last.remove(&oldest);
            self.db.delete(word(u64::from(oldest)))?;
        }
        Ok(())
    }
}

/// Requests in random order. The first `objects · 3/4` objects are requested once, the others two to ten
/// times.
fn requests(setting: &Setting, objects: u32) -> Vec<u32> {
    let mut random = setting.random("requests");
    let mut requests: Vec<u32> = (0..objects / 4 * 3).collect();
    for object in objects / 4 * 3..objects {
        let times = random.random_range(2..=10);
        requests.extend(std::iter::repeat_n(object, times));
    }
    requests.shuffle(&mut random);
    requests
}

const DOORS: [&str; 4] = ["no filter", "filter, 5 %", "filter, 1 %", "no mistakes"];

fn door(setting: &Setting, kind: usize, objects: u32) -> Result<Door> {
    let filter = |rate: f64| -> Result<Door> {
        let (m, k) = theory::classic_shape(u64::from(objects), rate);
        let hashing = setting.hashing("door", kind as u64);
        Ok(Door::Filter(Bloom::with_geometry(m, k)?.with_hashing(hashing)?))
    };
    match kind {
        0 => Ok(Door::Open),
        1 => filter(0.05),
        2 => filter(0.01),
        _ => Ok(Door::Exact(HashSet::new())),
    }
}

pub(super) fn run(setting: &Setting, notes: &mut Notes) -> Result<()> {
    doors(setting, notes)?;
    let objects: u32 = setting.pick(12_000, 80_000);
    let requests = requests(setting, objects);
    let rooms = [2, 5, 10, 20, 50, 100];
    let cases: Vec<(usize, usize)> =
        (0..DOORS.len()).flat_map(|kind| rooms.map(|room| (kind, room))).collect();
    let hits = setting.each("a cache behind a filter", &cases, |&(kind, percent)| {
        let dir = setting.directory(&format!("cache-{kind}-{percent}"))?;
        let db = options(setting).open(dir)?;
        let mut door = door(setting, kind, objects)?;
        let room = objects as usize * percent / 100;
        let mut cache = Cache { db: &db, room, last: HashMap::new(), order: BTreeMap::new() };
        let mut hits = 0_u64;
        for (now, &object) in (0..).zip(&requests) {
            if cache.get(object, now)? {
                hits += 1;
            } else if door.lets_in(object) {
                cache.put(object, now)?;
            }
        }
        Ok(hits)
    })?;

    // With room for everything nothing is ever dropped: one miss for each object, or two.
    let all = requests.len() as u64;
    let repeated = u64::from(objects - objects / 4 * 3);
    let roomy = |kind: usize| hits[kind * rooms.len() + rooms.len() - 1] as f64;
    let formula = "requests − objects";
    let expected = (all - u64::from(objects)) as f64;
    notes.check(
        Check::exact("hits, room for all, no filter", formula, expected, roomy(0)).at("cache"),
    );
    let formula = "requests − objects − objects asked for again";
    let expected = expected - repeated as f64;
    let quantity = "hits, room for all, a door that makes no mistakes";
    notes.check(Check::exact(quantity, formula, expected, roomy(3)).at("cache"));

    let rate = |place: usize| 100.0 * hits[place] as f64 / all as f64;
    let series = DOORS.iter().enumerate().map(|(kind, name)| {
        let points = rooms
            .iter()
            .enumerate()
            .map(|(place, &room)| (room as f64, rate(kind * rooms.len() + place)));
        Series::marked(*name, kind, points.collect())
    });
    notes.figure(Figure {
        id: "cache",
        title: "Hit rate of a cache of whose objects three in four are asked for once".into(),
        asked: "Does it pay to let into a cache only what was asked for before?".into(),
        theory: "Without a filter an object's first request brings it in; with one, the second does, but \
                 what is asked for once takes no room: a loss where there is room for all, a gain where \
                 room is short. A false positive lets an object in on its first request."
            .into(),
        measured: format!(
            "{} requests of {} objects, kept in a store in memory; the one asked for longest ago is \
             dropped.",
            shown(all as f64),
            shown(f64::from(objects))
        ),
        x: Axis::log("room in the cache", "% of the objects"),
        y: Axis::linear("requests answered from the cache", "%"),
        series: series.collect(),
    });
    for (kind, name) in DOORS.iter().enumerate() {
        let quantity = format!("hit rate, room for a tenth of the objects, {name}");
        notes.compare(&quantity, "–", format!("{:.1} %", rate(kind * rooms.len() + 2)), "");
    }
    Ok(())
}

fn doors(setting: &Setting, notes: &mut Notes) -> Result<()> {
    let objects: u32 = setting.pick(400_000, 3_000_000);
    let requests = requests(setting, objects);
    let samples = setting.each("the door of a cache", &[1, 2], |&kind| {
        let Door::Filter(mut seen) = door(setting, kind, objects)? else { unreachable!() };
        let shape = seen.geometry();
        let (mut sample, mut distinct) = (Sample::default(), 0_u64);
        let mut at = (0.0, 0.0); // the rate and its spread, reckoned now and then
        let mut met = HashSet::new();
        for &object in &requests {
            let passed = !seen.insert(word(u64::from(object)));
            if object < objects / 4 * 3 {
                sample.trials += 1;
                sample.passed += u64::from(passed);
                sample.expected += at.0;
                sample.spread += at.1; // of one filter: it strays the same way throughout
            }
            if met.insert(object) {
                distinct += 1;
                if distinct.is_multiple_of(500) {
                    at = (
                        theory::rate(shape.m, shape.k, distinct + 250),
                        theory::spread(shape.m, shape.k, distinct + 250),
                    );
                }
            }
        }
        Ok(sample)
    })?;
    for (kind, sample) in [1, 2].into_iter().zip(samples) {
        let quantity = format!("objects asked for once and let in: {}", DOORS[kind]);
        let formula = "the mean of (1 − e^(−kn/m))^k while the filter fills";
        notes.check(Check::share(quantity, formula, sample).at("cache").if_enough());
    }
    Ok(())
}
