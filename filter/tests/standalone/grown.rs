//! Filters of several parts: a scalable filter keeps its rate at every size; a sharded one has the rate of
//! a single filter and loses no key between threads.

use std::sync::atomic::{AtomicU64, Ordering};

use criba_filter::{Bloom, Fullness, Hashing, ScalableBloom, ShardedBloom};

const DEVIATIONS: f64 = 4.5;

fn hashing() -> Hashing {
    Hashing::keyed(*b"sixteen bytes...")
}

fn key(i: u64) -> [u8; 8] {
    i.to_be_bytes()
}

/// The share of `probes` absent keys that pass, and its standard deviation.
fn measured(probes: u64, contains: impl Fn([u8; 8]) -> bool) -> (f64, f64) {
    let passed = (0..probes).filter(|&i| contains(key(u64::MAX - i))).count() as f64;
    let rate = passed / probes as f64;
    (rate, (rate / probes as f64).sqrt())
}

/// Capacity 100,000 at a rate of 0.001, with 200,000 keys.
#[test]
fn a_scalable_filter_keeps_its_rate_with_twice_the_keys() {
    const KEYS: u64 = 200_000;
    let mut filter =
        ScalableBloom::with_rate(100_000, 0.001).unwrap().with_hashing(hashing()).unwrap();
    let new = (0..KEYS).filter(|&i| filter.insert(key(i))).count() as u64;
    assert!((0..KEYS).all(|i| filter.contains(key(i))));
    let (rate, deviation) = measured(4_000_000, |key| filter.contains(key));
    let reported = filter.current_rate();
    let least = 1.44 * KEYS as f64 * 1000_f64.log2();
    let bits = 8.0 * filter.bytes() as f64;
    println!(
        "{} layers, {new} of {KEYS} keys new; rate {rate:.3e} ± {deviation:.0e} of 4,000,000, reported \
         {reported:.3e}; {bits} bits, {:.2} times 1.44 n log2(1/p), which one filter made for {KEYS} takes",
        filter.layers(),
        bits / least
    );
    assert_eq!(filter.layers(), 2);
    assert!(rate <= 0.001 + DEVIATIONS * deviation);
    assert!((rate - reported).abs() < DEVIATIONS * deviation + 0.02 * reported);
    // Not by much more bits than it takes: the first layer is full, with a quarter of the rate.
    assert!(rate > 0.00025 - DEVIATIONS * deviation);
    assert!(bits < 2.0 * least);
    assert!(KEYS - new < KEYS / 1000, "a key that is taken for known is not inserted");
    assert!((filter.estimated_len() / new as f64 - 1.0).abs() < 0.01);
    assert_eq!(filter.fullness(), Fullness::Within);
}

/// From 100 to 100,000 keys, through ten layers.
#[test]
fn a_scalable_filter_keeps_its_rate_with_a_thousand_times_the_keys() {
    let mut filter = ScalableBloom::with_rate(100, 0.01).unwrap().with_hashing(hashing()).unwrap();
    let mut next = 0;
    for keys in [50, 100, 150, 1000, 10_000, 100_000] {
        while next < keys {
            filter.insert(key(next));
            next += 1;
        }
        filter = ScalableBloom::from_bytes(&filter.to_bytes()).unwrap();
        assert!((0..keys).all(|i| filter.contains(key(i))));
        let (rate, deviation) = measured(200_000, |key| filter.contains(key));
        let bits = 8.0 * filter.bytes() as f64 / (1.44 * keys as f64 * 100_f64.log2());
        println!("{keys} keys, {} layers: {rate:.2e}, {bits:.2} times the bits", filter.layers());
        assert!(filter.current_rate() <= 0.01);
        assert!(rate <= 0.01 + DEVIATIONS * deviation);
        assert!((rate - filter.current_rate()).abs() < DEVIATIONS * deviation + 0.05 * rate);
    }
    assert_eq!(filter.layers(), 10);
}

#[test]
fn a_sharded_filter_has_the_rate_of_one() {
    for (capacity, rate) in [(50_000, 0.01), (50_000, 0.001)] {
        let mut one = Bloom::with_rate(capacity, rate).unwrap().with_hashing(hashing()).unwrap();
        one.extend((0..capacity).map(key));
        let probes = (5000.0 / rate) as u64;
        let (of_one, deviation) = measured(probes, |key| one.contains(key));
        for shards in [1, 2, 7, 16, 50, 64] {
            let filter = ShardedBloom::with_rate(shards, capacity, rate).unwrap();
            let filter = filter.with_hashing(hashing()).unwrap();
            for i in 0..capacity {
                filter.insert(key(i));
            }
            assert!((0..capacity).all(|i| filter.contains(key(i))));
            let (found, _) = measured(probes, |key| filter.contains(key));
            let reported = filter.current_rate();
            println!(
                "{shards} shards: {found:.3e}, reported {reported:.3e}, one filter {of_one:.3e} ± {deviation:.0e}; \
                 {:.3} times its bytes",
                filter.bytes() as f64 / one.bytes() as f64
            );
            // Never more than one filter, and not much less: the difference of two measurements.
            let bound = DEVIATIONS * 2.0_f64.sqrt() * deviation;
            assert!(found < 1.01 * of_one + bound);
            assert!(found > 0.93 * of_one - bound);
            assert!((found - reported).abs() < DEVIATIONS * deviation + 0.01 * rate);
            assert!(filter.bytes() as f64 <= 1.06 * one.bytes() as f64);
            assert_eq!(filter.fullness(), Fullness::Within);
            assert!((filter.estimated_len() / capacity as f64 - 1.0).abs() < 0.01);
            let copy = ShardedBloom::from_bytes(&filter.to_bytes()).unwrap();
            assert!((0..capacity).all(|i| copy.contains(key(i))));
        }
    }
}

/// The loads of small shards vary, and the rate varies more; the mean of the shards is still at most the
/// requested rate.
#[test]
fn small_shards_keep_the_rate_in_the_mean() {
    const FILTERS: u8 = 100;
    let cells = [(200, 64), (2000, 64), (20_000, 64), (1000, 7)];
    let rates = [0.3, 0.1, 0.01, 0.001, 0.0001];
    for (rate, (capacity, shards)) in
        rates.into_iter().flat_map(|rate| cells.map(|cell| (rate, cell)))
    {
        let rates = (0..FILTERS).map(|seed| {
            let filter = ShardedBloom::with_rate(shards, capacity, rate).unwrap();
            let filter = filter.with_hashing(Hashing::keyed([seed; 16])).unwrap();
            for i in 0..capacity {
                filter.insert(key(i));
            }
            filter.current_rate()
        });
        let rates: Vec<f64> = rates.collect();
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        let variance =
            rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / f64::from(FILTERS);
        let deviation = (variance / f64::from(FILTERS)).sqrt();
        println!(
            "{capacity} keys in {shards} shards at {rate}: {:.3} ± {:.3}",
            mean / rate,
            deviation / rate
        );
        assert!(mean < 1.005 * rate + DEVIATIONS * deviation);
        if rate * capacity as f64 >= shards as f64 {
            assert!(mean > 0.9 * rate - DEVIATIONS * deviation);
        }
    }
}

#[test]
fn a_filter_of_several_parts_knows_its_capacity_and_rate() {
    let is = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-12;
    let mut scalable =
        ScalableBloom::with_rate(100, 0.01).unwrap().with_hashing(hashing()).unwrap();
    scalable.extend((0..250).map(key));
    assert!(scalable.layers() == 2 && is(scalable.design_rate(), 0.01));
    // Of the 200 keys that the second layer is for there are 150.
    assert!((0.35..0.45).contains(&scalable.occupancy()), "{}", scalable.occupancy());
    assert!((scalable.estimated_len() - 250.0).abs() < 10.0, "{}", scalable.estimated_len());
    assert_eq!(scalable.to_bytes().len(), 128 + scalable.bytes());

    let sharded = ShardedBloom::with_rate(4, 1000, 0.01).unwrap().with_hashing(hashing()).unwrap();
    for i in 0..1000 {
        sharded.insert(key(i));
    }
    assert_eq!((sharded.shards(), sharded.capacity()), (4, 1000));
    assert!(is(sharded.design_rate(), 0.01));
    assert!((0.45..0.55).contains(&sharded.occupancy()), "{}", sharded.occupancy());
    assert_eq!(sharded.to_bytes().len(), 192 + sharded.bytes());
}

/// All threads insert the same keys at the same time, and other keys between, and look up what they
/// inserted at once.
#[test]
fn no_key_is_lost_between_threads() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 500;
    const IN_A_ROUND: u64 = 40;
    const COMMON: u64 = ROUNDS * IN_A_ROUND;
    const KEYS: u64 = (THREADS + 1) * COMMON;
    let filter = ShardedBloom::with_rate(16, KEYS, 0.001).unwrap().with_hashing(hashing()).unwrap();
    let (new, start) = (AtomicU64::new(0), std::sync::Barrier::new(THREADS as usize));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (filter, new, start) = (&filter, &new, &start);
            scope.spawn(move || {
                let insert = |i: u64| {
                    new.fetch_add(u64::from(filter.insert(key(i))), Ordering::Relaxed);
                    assert!(filter.contains(key(i)), "key {i}, just inserted");
                };
                for round in 0..ROUNDS {
                    start.wait(); // so that they meet at the same keys
                    let common = round * IN_A_ROUND..(round + 1) * IN_A_ROUND;
                    common.clone().for_each(insert);
                    common.map(|i| (1 + thread) * COMMON + i).for_each(insert);
                }
            });
        }
    });
    assert!((0..KEYS).all(|i| filter.contains(key(i))));
    let new = new.into_inner();
    println!("{KEYS} keys by {THREADS} threads, {new} times new");
    assert!(new <= KEYS, "a key was new to two threads");
    assert!(new >= KEYS - KEYS / 1000);

    let alone = ShardedBloom::with_rate(16, KEYS, 0.001).unwrap().with_hashing(hashing()).unwrap();
    for i in 0..KEYS {
        alone.insert(key(i));
    }
    assert_eq!(alone.to_bytes(), filter.to_bytes(), "the order of the inserts does not matter");
}

/// Of two threads that insert the same key, exactly one gets "new".
#[test]
fn a_key_is_new_to_one_thread_only() {
    const KEYS: u64 = 50_000;
    let filter = ShardedBloom::with_rate(4, KEYS, 0.0001).unwrap().with_hashing(hashing()).unwrap();
    let (new, arrived) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for i in 0..KEYS {
                    arrived.fetch_add(1, Ordering::SeqCst);
                    let mut spins = 0;
                    while arrived.load(Ordering::SeqCst) < 2 * (i + 1) {
                        spins += 1;
                        if spins % 1000 == 0 {
                            std::thread::yield_now(); // the other may have no processor
                        }
                        std::hint::spin_loop();
                    }
                    new.fetch_add(u64::from(filter.insert(key(i))), Ordering::Relaxed);
                }
            });
        }
    });
    let new = new.into_inner();
    println!("{KEYS} keys, {new} times new");
    assert!(new <= KEYS, "a key was new to both threads");
    assert!(new >= KEYS - KEYS / 1000);
}
