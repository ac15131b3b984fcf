//! Standalone filters deny none of their keys, have the requested and the reported rate, and estimate their
//! contents rightly.

use criba_filter::{
    Bloom, Error, FilterKind, FilterSize, Fullness, Hashing, ScalableBloom, ShardedBloom,
    StaticFilter,
};

/// The allowed standard deviations between a figure and its prediction: by chance one figure of 150,000
/// would exceed them. There are some hundred, with fixed keys.
const DEVIATIONS: f64 = 4.5;

fn seeded(seed: u64) -> Hashing {
    let mut key = [0x5A; 16];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    Hashing::keyed(key)
}

/// The i-th present key, and the i-th absent one.
fn present(i: u64) -> [u8; 9] {
    key(b'p', i)
}

fn absent(i: u64) -> [u8; 9] {
    key(b'a', i)
}

fn key(first: u8, i: u64) -> [u8; 9] {
    let mut key = [first; 9];
    key[1..].copy_from_slice(&i.to_le_bytes());
    key
}

fn filled(capacity: u64, rate: f64, seed: u64) -> Bloom {
    let mut filter = Bloom::with_rate(capacity, rate).unwrap().with_hashing(seeded(seed)).unwrap();
    for i in 0..capacity {
        filter.insert(present(i));
    }
    filter
}

/// The number of `probes` absent keys that pass.
fn passed(probes: u64, contains: impl Fn([u8; 9]) -> bool) -> u64 {
    (0..probes).filter(|&i| contains(absent(i))).count() as u64
}

/// The standard deviations between the measured and the reported number; `slack` is the share of other
/// errors than chance.
fn deviations(found: u64, probes: u64, reported: f64, slack: f64) -> f64 {
    let expected = reported * probes as f64;
    let beyond = ((found as f64 - expected).abs() - slack * expected).max(0.0);
    beyond / (expected * (1.0 - reported)).sqrt().max(1.0)
}

#[test]
fn no_key_of_its_own_is_ever_denied() {
    let (mut geometries, mut probed) = (0, 0);
    let mut ask = |filter: &Bloom, keys: std::ops::Range<u64>| {
        probed += keys.end - keys.start;
        for i in keys {
            assert!(filter.contains(present(i)), "key {i} of {filter:?}");
        }
    };
    for m in (1..140).chain([500, 512, 513, 1000, 2047]) {
        for k in [1, 2, 3, 7, 13, 64] {
            for hashing in [seeded(m), Hashing::murmurhash2()] {
                let mut one = Bloom::with_geometry(m, k).unwrap().with_hashing(hashing).unwrap();
                let mut other = one.empty_like().unwrap();
                let n = m / 8 + 2;
                for i in 0..n {
                    one.insert(present(i));
                    other.insert(present(n + i));
                    ask(&one, 0..i + 1);
                }
                ask(&Bloom::from_bytes(&one.to_bytes()).unwrap(), 0..n);
                let mut both = one.clone();
                both.union(&other).unwrap();
                ask(&both, 0..2 * n);
                ask(&Bloom::from_bytes(&both.to_bytes()).unwrap(), 0..2 * n);
                ask(&one, 0..n);
                geometries += 1;
            }
        }
    }
    println!("{geometries} filters, {probed} keys probed, 0 denied");
    assert!(geometries > 1000);
}

/// The union equals the filter of both sets, bit by bit.
#[test]
fn a_union_is_the_filter_of_both_sets() {
    let mut one = Bloom::with_rate(1000, 0.01).unwrap();
    let (mut other, mut both) = (one.empty_like().unwrap(), one.empty_like().unwrap());
    for i in 0..1000 {
        if i % 2 == 0 { &mut one } else { &mut other }.insert(present(i));
        both.insert(present(i));
    }
    one.union(&other).unwrap();
    assert_eq!(one.to_bytes(), both.to_bytes());
    assert_eq!(one.bits_set(), both.bits_set());
}

/// Full filters of capacities from 1 on have the rate that they report, and at most the requested one.
#[test]
fn the_rate_is_the_requested_and_the_reported_one() {
    let (mut cells, mut all_probes) = (0, 0);
    for rate in [0.5, 0.1, 0.01, 0.001, 0.0001] {
        for capacity in [1, 2, 3, 7, 20, 50, 200, 1000, 20_000, 200_000] {
            let filters = (5000 / capacity).clamp(1, 1000);
            let wanted = if rate < 0.001 { 1000.0 } else { 5000.0 };
            let each = (wanted / rate / filters as f64) as u64 + 20;
            let (mut reported, mut found, mut geometry) = (0.0, 0, None);
            for seed in 0..filters {
                let filter = filled(capacity, rate, seed);
                assert_eq!(filter.fullness(), Fullness::Within);
                reported += filter.current_rate() / filters as f64;
                found += passed(each, |key| filter.contains(key));
                geometry = Some(filter.geometry());
            }
            let (probes, geometry) = (each * filters, geometry.unwrap());
            // The prediction for double hashing has this error.
            let slack = match capacity {
                ..20 => 0.25,
                20..200 => 0.07,
                200..1000 => 0.03,
                _ => 0.01,
            };
            let off = deviations(found, probes, reported, slack);
            // The bits set vary from filter to filter, by 0.28 √m, and the rate k times as much.
            let spread = f64::from(geometry.k) * 0.55 / (geometry.m as f64 * filters as f64).sqrt();
            let chance = 1.0 / (rate * probes as f64).sqrt();
            let most = rate * (1.0 + DEVIATIONS * spread.hypot(chance));
            let measured = found as f64 / probes as f64;
            println!(
                "{rate} for {capacity}: {:.2} bits a key, reported {reported:.3e}, {found} of {probes} passed \
                 in {filters} filters: {measured:.3e}, {off:.1} deviations",
                geometry.m as f64 / capacity as f64
            );
            assert!(off < DEVIATIONS);
            assert!(measured <= most, "{measured} > {most}");
            if capacity >= 200 && rate * capacity as f64 >= 2.0 {
                assert!(measured >= rate * (0.9 - DEVIATIONS * spread.hypot(chance)), "too large");
            }
            cells += 1;
            all_probes += probes;
        }
    }
    println!("{cells} cells, {all_probes} probes");
}

/// For any m and k, at several fills, the reported rate is the measured one.
#[test]
fn the_rate_of_a_given_geometry_is_reported() {
    let mut cells = 0;
    for m in [2048, 5040, 65_536, 99_991] {
        for k in [1, 2, 4, 7, 12] {
            for fill in [0.2, 0.5, 0.8] {
                let empty = Bloom::with_geometry(m, k).unwrap().with_hashing(seeded(m)).unwrap();
                let mut filter = empty;
                let mut i = 0;
                while filter.occupancy() < fill {
                    filter.insert(present(i));
                    i += 1;
                }
                let reported = filter.current_rate();
                if reported < 1e-4 {
                    continue;
                }
                let probes = (1000.0 / reported) as u64 + 10_000;
                let found = passed(probes, |key| filter.contains(key));
                let off = deviations(found, probes, reported, 0.05);
                assert!(off < DEVIATIONS, "m {m} k {k}: {found} of {probes}, reported {reported}");
                cells += 1;
            }
        }
    }
    println!("{cells} cells");
    assert!(cells > 40);
}

#[test]
fn the_number_of_keys_is_estimated_from_the_bits() {
    let mut cells = 0;
    for (capacity, rate) in [(100, 0.1), (1000, 0.01), (10_000, 0.001), (100_000, 0.01)] {
        for part in [0.01, 0.1, 0.5, 1.0, 2.0] {
            let n = (capacity as f64 * part) as u64;
            for seed in 0..20 {
                let empty = Bloom::with_rate(capacity, rate).unwrap();
                let mut filter = empty.with_hashing(seeded(seed)).unwrap();
                filter.extend((0..n).map(present));
                let (m, k) = (filter.geometry().m as f64, f64::from(filter.geometry().k));
                let load = k * n as f64 / m;
                // Of the ones, over the slope of the ones by keys.
                let variance = m * (-load).exp() * (1.0 - (1.0 + load) * (-load).exp());
                let deviation = variance.sqrt() / (k * (-load).exp());
                let off = (filter.estimated_len() - n as f64).abs() / deviation.max(0.2);
                assert!(off < DEVIATIONS, "{n} keys, {} estimated", filter.estimated_len());
                cells += 1;
            }
        }
    }
    println!("{cells} estimates");
    let mut full = Bloom::with_geometry(64, 2).unwrap();
    full.extend((0..10_000).map(present));
    assert_eq!((full.bits_set(), full.current_rate()), (64, 1.0));
    assert!(full.estimated_len().is_infinite());
    assert!(full.intersection_len(&full).unwrap().is_infinite());
}

#[test]
fn an_intersection_is_estimated_from_two_filters() {
    for overlap in [0_u64, 100, 1000, 5000, 10_000] {
        for seed in 0..10 {
            let empty = Bloom::with_rate(20_000, 0.01).unwrap().with_hashing(seeded(seed)).unwrap();
            let (mut one, mut other) = (empty.clone(), empty);
            one.extend((0..10_000).map(present));
            other.extend((10_000 - overlap..20_000 - overlap).map(present));
            let estimate = one.intersection_len(&other).unwrap();
            // Three estimates of 10,000 to 20,000 keys, each within 4.5 deviations of about 15 to 30.
            let off = (estimate - overlap as f64).abs();
            assert!(off < 200.0, "{overlap} in common, {estimate:.0} estimated");
            assert!((estimate - other.intersection_len(&one).unwrap()).abs() < 1e-6);
        }
    }
}

#[test]
fn filters_that_differ_are_not_united() {
    let mut one = Bloom::with_geometry(1000, 7).unwrap().with_hashing(seeded(1)).unwrap();
    one.insert("key");
    let before = one.to_bytes();
    let others = [
        (Bloom::with_geometry(1001, 7).unwrap().with_hashing(seeded(1)).unwrap(), "shape"),
        (Bloom::with_geometry(1000, 6).unwrap().with_hashing(seeded(1)).unwrap(), "shape"),
        (Bloom::with_geometry(1000, 7).unwrap().with_hashing(seeded(2)).unwrap(), "hash key"),
        (Bloom::with_geometry(1000, 7).unwrap(), "hash key"),
        (one.empty_like().unwrap().with_hashing(Hashing::murmurhash2()).unwrap(), "hash"),
    ];
    for (other, difference) in others {
        for error in [one.union(&other).unwrap_err(), one.intersection_len(&other).unwrap_err()] {
            match &error {
                Error::Mismatch { what, .. } => assert_eq!(*what, difference, "{error}"),
                _ => panic!("{error}"),
            }
            assert!(!error.to_string().contains("1, 0, 0"), "the error contains no key: {error}");
        }
    }
    assert_eq!(one.to_bytes(), before);
}

/// Another hash function after an insert would deny the inserted keys.
#[test]
fn the_hash_is_chosen_before_the_first_insert() {
    let mut bloom = Bloom::with_rate(10, 0.01).unwrap();
    bloom.insert("key");
    assert!(bloom.with_hashing(seeded(1)).is_err());
    let mut scalable = ScalableBloom::with_rate(10, 0.01).unwrap();
    scalable.insert("key");
    assert!(scalable.with_hashing(seeded(1)).is_err());
    let sharded = ShardedBloom::with_rate(2, 10, 0.01).unwrap();
    sharded.insert("key");
    assert!(sharded.with_hashing(seeded(1)).is_err());
}

#[test]
fn a_filter_says_how_full_it_is() {
    for (capacity, rate) in [(100, 0.01), (5000, 0.001), (5000, 0.3), (50_000, 0.02)] {
        let mut filter = filled(capacity, rate, 7);
        assert_eq!(filter.fullness(), Fullness::Within, "{capacity} at {rate}");
        let mut turns = Vec::new();
        let mut i = capacity;
        while filter.occupancy() < 0.9 {
            let before = filter.fullness();
            filter.insert(present(i));
            i += 1;
            if filter.fullness() != before {
                turns.push((filter.fullness(), filter.occupancy()));
            }
        }
        let slack = 1.2 / (filter.geometry().m as f64).sqrt();
        match turns[..] {
            [(Fullness::PastDesign, first), (Fullness::Overfull, second)] => {
                assert!((0.5..0.65 + slack).contains(&first), "{first}");
                assert!((0.85..0.86).contains(&second), "{second}");
                println!(
                    "{capacity} at {rate}: past its design at {first:.3}, overfull at {second:.3}"
                );
            }
            _ => panic!("{turns:?}"),
        }
        assert!(filter.current_rate() > 2.0 * rate);
        assert!(filter.fullness().to_string().contains("85 %"));
    }
}

#[test]
fn a_filter_knows_its_capacity_and_rate() {
    let is = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-12;
    let bloom = Bloom::with_rate(1000, 0.01).unwrap();
    assert!(bloom.capacity() == 1000 && is(bloom.design_rate(), 0.01));
    // Half of the bits are set by m/k · ln 2 keys, and all of seven probes succeed at 2^−7.
    let bloom = Bloom::with_geometry(100_003, 7).unwrap();
    assert_eq!((bloom.capacity(), bloom.bytes()), (9902, 8 * 1563));
    assert!((128.0 * bloom.design_rate() - 1.0).abs() < 0.005, "{}", bloom.design_rate());
    for kind in [FilterKind::Bloom, FilterKind::Blocked, FilterKind::Ribbon] {
        let size = FilterSize::BitsPerKey(10.0);
        let filter = StaticFilter::build(kind, size, seeded(1), (0..1000).map(present)).unwrap();
        assert_eq!((filter.kind(), filter.keys(), filter.hashing()), (kind, 1000, seeded(1)));
        assert_eq!(filter.to_bytes().len(), 128 + filter.bytes());
    }
}

/// Each kind, by rate and by bits: it passes its keys, also after a round trip, and has the reported rate.
#[test]
fn a_static_filter_of_each_kind_has_its_rate() {
    let mut cells = 0;
    for kind in [FilterKind::Bloom, FilterKind::Blocked, FilterKind::Ribbon] {
        for size in [
            FilterSize::Rate(0.1),
            FilterSize::Rate(0.01),
            FilterSize::Rate(0.001),
            FilterSize::BitsPerKey(4.0),
            FilterSize::BitsPerKey(10.5),
        ] {
            for n in [0, 1, 2, 10, 300, 5000, 50_000] {
                let keys = (0..n).chain(0..n / 2).map(present); // some twice
                let built = StaticFilter::build(kind, size, seeded(n), keys).unwrap();
                assert_eq!(built.keys(), n);
                let filter = StaticFilter::from_bytes(&built.to_bytes()).unwrap();
                assert_eq!(filter.to_bytes(), built.to_bytes());
                assert!((0..n).all(|i| built.contains(present(i)) && filter.contains(present(i))));
                if n < 5000 {
                    continue;
                }
                let reported = filter.predicted_rate();
                let probes = (4000.0 / reported) as u64;
                let found = passed(probes, |key| filter.contains(key));
                let off = deviations(found, probes, reported, 0.03);
                println!(
                    "{kind}, {size:?}, {n} keys: {:.2} bits a key, reported {reported:.3e}, \
                     {found} of {probes} passed, {off:.1} deviations",
                    8.0 * filter.bytes() as f64 / n as f64
                );
                assert!(off < DEVIATIONS);
                cells += 1;
            }
        }
    }
    assert_eq!(cells, 30);
}

/// With few keys the number of set bits scatters; a filter that is too full is built again.
#[test]
fn a_static_filter_keeps_its_rate_however_few_its_keys() {
    for kind in [FilterKind::Bloom, FilterKind::Blocked, FilterKind::Ribbon] {
        for rate in [0.3, 0.1, 0.01, 0.001, 1e-4, 1e-6] {
            for n in [1, 2, 5, 10, 20, 50, 90, 105, 110, 115, 200, 500, 900] {
                for hashing in [seeded(1), seeded(2), seeded(3), Hashing::murmurhash2()] {
                    let size = FilterSize::Rate(rate);
                    let keys = (0..n).map(present);
                    let filter = StaticFilter::build(kind, size, hashing, keys).unwrap();
                    let reported = filter.predicted_rate();
                    assert!(
                        reported > 0.0 && reported <= rate,
                        "{kind}, {n} keys at {rate}: {reported}"
                    );
                }
            }
        }
    }
}

#[test]
fn nonsense_is_refused_before_anything_is_allocated() {
    let mut refused = 0;
    let mut refuse = |error: Option<Error>, what: &str| match error {
        Some(Error::InvalidOption { .. }) => refused += 1,
        other => panic!("{what}: {other:?}"),
    };
    let rates = [0.0, 1.0, -0.5, 1.5, f64::NAN, f64::INFINITY, f64::MIN_POSITIVE, 1e-16];
    let huge = [(u64::MAX, 0.01), (1 << 60, 0.5), (1 << 43, 0.01), (1 << 20, 1e-15)];
    let rates = rates.map(|rate| (10, rate));
    for (capacity, rate) in rates.into_iter().chain(huge).chain([(0, 0.01)]) {
        let what = format!("{capacity} at {rate}");
        refuse(Bloom::with_rate(capacity, rate).err(), &what);
        refuse(ScalableBloom::with_rate(capacity, rate).err(), &what);
        refuse(ShardedBloom::with_rate(1, capacity, rate).err(), &what);
    }
    for (m, k) in [(0, 1), (10, 0), (10, 65), (u64::MAX, 1), ((1 << 43) + 1, 1)] {
        refuse(Bloom::with_geometry(m, k).err(), &format!("{m} bits, {k} probes"));
    }
    for shards in [0, 65_537, usize::MAX] {
        refuse(ShardedBloom::with_rate(shards, 1000, 0.01).err(), &format!("{shards} shards"));
    }
    for kind in [FilterKind::Bloom, FilterKind::Blocked, FilterKind::Ribbon] {
        let rates = [0.0, 1.0, -1.0, 2.0, 1e-300, f64::NAN].map(FilterSize::Rate);
        let bits = [0.0, -1.0, 64.1, f64::NAN, f64::INFINITY].map(FilterSize::BitsPerKey);
        for size in rates.into_iter().chain(bits) {
            let built = StaticFilter::build(kind, size, seeded(1), [present(1)]);
            refuse(built.err(), &format!("{size:?}"));
        }
    }
    println!("{refused} refused");
}
