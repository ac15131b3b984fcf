//! A cache, most of whose requests come once: a filter admits objects at their second request.

use std::collections::{BTreeSet, HashMap, HashSet};

use criba_cli::Result;
use criba_filter::Bloom;
use criba_report::figure::{Axis, Series};
use rand::RngExt;
use rand::seq::SliceRandom;

use super::word;
use crate::check::{Check, Sample};
use crate::experiment::{Notes, Setting, drawn};
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

#[derive(Clone, Copy)]
enum Drops {
    LeastRecent,
    LeastFrequent,
    MostRecent,
}

const POLICIES: [(&str, Drops); 3] =
    [("LRU", Drops::LeastRecent), ("LFU", Drops::LeastFrequent), ("MRU", Drops::MostRecent)];

/// The objects in the cache, each with its requests while it is there, in the order of dropping.
struct Cache {
    drops: Drops,
    room: usize,
    places: HashMap<u32, (u64, u64)>,
    order: BTreeSet<(u64, u64, u32)>,
}

impl Cache {
    fn get(&mut self, object: u32, now: u64) -> bool {
        let found = self.places.contains_key(&object);
        if found {
            self.touch(object, now);
        }
        found
    }

    fn touch(&mut self, object: u32, now: u64) {
        let before = self.places.remove(&object);
        if let Some((first, second)) = before {
            self.order.remove(&(first, second, object));
        }
        let place = match self.drops {
            Drops::LeastRecent => (now, 0),
            Drops::LeastFrequent => (before.map_or(1, |(count, _)| count + 1), now),
            Drops::MostRecent => (u64::MAX - now, 0),
        };
        self.places.insert(object, place);
        self.order.insert((place.0, place.1, object));
    }

    fn put(&mut self, object: u32, now: u64) {
        if self.places.len() == self.room
            && let Some((.., dropped)) = self.order.pop_first()
        {
            self.places.remove(&dropped);
        }
        self.touch(object, now);
    }
}

/// Hits of an LRU cache, counted in another way: at most `room` − 1 other objects come between two requests
/// (Mattson and others, 1970).
fn hits_by_distance(requests: impl Iterator<Item = u32>, room: usize) -> u64 {
    let (mut recent, mut hits) = (Vec::new(), 0);
    for object in requests {
        if let Some(place) = recent.iter().rposition(|&other| other == object) {
            hits += u64::from(recent.len() - place <= room);
            recent.remove(place);
        }
        recent.push(object);
    }
    hits
}

struct Requests {
    all: Vec<u32>,
    once: u32,
    objects: u32,
}

/// Requests in random order: three in four are for objects that come once, the others for objects that come
/// two to ten times.
fn requests(setting: &Setting, count: u32) -> Requests {
    let mut random = setting.random("requests");
    let once = count / 4 * 3;
    let (mut all, mut objects): (Vec<u32>, _) = ((0..once).collect(), once);
    while all.len() < count as usize {
        let times = random.random_range(2..=10).min(count as usize - all.len()).max(2);
        all.extend(std::iter::repeat_n(objects, times));
        objects += 1;
    }
    all.shuffle(&mut random);
    Requests { all, once, objects }
}

const DOORS: [&str; 4] = ["no filter", "filter, 5 %", "filter, 1 %", "no mistakes"];

fn door(setting: &Setting, kind: usize, objects: u32) -> Result<Door> {
    let rate = match kind {
        0 => return Ok(Door::Open),
        1 => 0.05,
        2 => 0.01,
        _ => return Ok(Door::Exact(HashSet::new())),
    };
    let (m, k) = theory::classic_shape(u64::from(objects), rate);
    let hashing = setting.hashing("door", kind as u64);
    Ok(Door::Filter(Bloom::with_geometry(m, k)?.with_hashing(hashing)?))
}

/// In percent of all objects.
const ROOMS: [usize; 6] = [1, 2, 5, 10, 20, 100];

pub(super) fn run(setting: &Setting, notes: &mut Notes) -> Result<()> {
    doors(setting, notes)?;
    let Requests { all: requests, once, objects } =
        requests(setting, setting.pick(40_000, 200_000));
    let cases: Vec<(usize, usize, usize)> = (0..POLICIES.len())
        .flat_map(|policy| (0..DOORS.len()).map(move |door| (policy, door)))
        .flat_map(|(policy, door)| ROOMS.map(|room| (policy, door, room)))
        .collect();
    let hits = setting.each("a cache behind a filter", &cases, |&(policy, kind, percent)| {
        let mut door = door(setting, kind, objects)?;
        let (drops, room) = (POLICIES[policy].1, objects as usize * percent / 100);
        let (places, order) = (HashMap::new(), BTreeSet::new());
        let mut cache = Cache { drops, room, places, order };
        let mut hits = 0_u64;
        for (now, &object) in (0..).zip(&requests) {
            if cache.get(object, now) {
                hits += 1;
            } else if door.lets_in(object) {
                cache.put(object, now);
            }
        }
        Ok(hits)
    })?;
    let hits_of = |policy: usize, door: usize, room: usize| {
        let place = cases.iter().position(|case| *case == (policy, door, room));
        place.map_or(0, |place| hits[place]) as f64
    };

    // With room for everything nothing is dropped: one miss for each object, or two.
    let all = requests.len() as f64;
    let roomy = (0..3).map(|policy| hits_of(policy, 0, 100)).sum::<f64>();
    let expected = 3.0 * (all - f64::from(objects));
    let check = Check::exact("hits, room for all, no filter", "3 (N − objects)", expected, roomy);
    notes.check(check.at("cache"));
    let mut seen = HashSet::new();
    let again: Vec<u32> = requests.iter().copied().filter(|&object| !seen.insert(object)).collect();
    let room = objects as usize / 10;
    for (kind, stream) in [(0, &requests), (3, &again)] {
        let expected = hits_by_distance(stream.iter().copied(), room) as f64;
        let quantity = format!("hits, room for a tenth, LRU, {}", DOORS[kind]);
        let formula = "by stack distances, without first requests if a door is shut to them";
        let check = Check::exact(quantity, formula, expected, hits_of(0, kind, 10));
        notes.check(check.at("cache"));
    }

    let rate = |policy, door, room| 100.0 * hits_of(policy, door, room) / all;
    let line = |policy: usize, door: usize| {
        ROOMS.map(|room| (room as f64, rate(policy, door, room))).to_vec()
    };
    let mut series = Vec::new();
    for (policy, (name, _)) in POLICIES.iter().enumerate() {
        series.push(Series::marked(format!("{name}, no filter"), policy, line(policy, 0)));
        series.push(Series::marked(format!("{name}, filter of 1 %"), policy + 3, line(policy, 2)));
    }
    notes.figure(drawn(
        "cache",
        [
            "Hit rate of a cache three in four of whose requests come once",
            "Does it pay to let into a cache only what was requested before?",
            "Without a filter an object's first request brings it in; with one, the second does, \
             but what is requested once takes no room: a loss where there is room for all, a gain \
             where room is short. A false positive lets an object in on its first request.",
            &format!(
                "{} requests of {} objects, {} of which come once; LRU drops the object requested \
                 longest ago, LFU the one requested least, MRU the one requested last.",
                shown(all),
                shown(f64::from(objects)),
                shown(f64::from(once))
            ),
        ],
        [
            Axis::log("room in the cache", "% of the objects"),
            Axis::linear("requests answered from the cache", "%"),
        ],
        series,
    ));
    for (policy, (name, _)) in POLICIES.iter().enumerate() {
        let rates = [0, 1, 2, 3].map(|door| format!("{:.1} %", rate(policy, door, 10)));
        let quantity = format!("hit rate, room for a tenth of the objects, {name}");
        notes.measured(&quantity, rates.join(", "), &DOORS.join(", "));
    }
    Ok(())
}

fn doors(setting: &Setting, notes: &mut Notes) -> Result<()> {
    let Requests { all, once, objects } = requests(setting, setting.pick(600_000, 3_000_000));
    let samples = setting.each("the door of a cache", &[1, 2], |&kind| {
        let Door::Filter(mut seen) = door(setting, kind, objects)? else { unreachable!() };
        let shape = seen.geometry();
        let (mut sample, mut distinct) = (Sample::default(), 0_u64);
        let mut at = (0.0, 0.0); // the rate and its spread, computed now and then
        let mut met = HashSet::new();
        for &object in &all {
            let passed = !seen.insert(word(u64::from(object)));
            if object < once {
                sample.trials += 1;
                sample.passed += u64::from(passed);
                sample.expected += at.0;
                sample.spread += at.1; // of one filter: it strays the same way throughout
            }
            if met.insert(object) {
                distinct += 1;
                if distinct.is_multiple_of(500) {
                    let keys = distinct + 250;
                    let of = [theory::rate, theory::spread].map(|of| of(shape.m, shape.k, keys));
                    at = of.into();
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
