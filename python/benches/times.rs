//! The Rust side of `times.py`: `times put DIR` makes a store of a million pairs, `times get DIR` looks up absent keys
//! in it. Prints nanoseconds: of all pairs, or the median of the calls of `get_many`.

use std::error::Error;
use std::time::Instant;

use criba::{Batch, Db};

const PAIRS: u64 = 1_000_000;
const CHUNK_BYTES: usize = 64 << 10;
const CALLS: u64 = 301;
const KEYS: u64 = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, work, dir] = &arguments[..] else { return Err("times put|get DIR".into()) };
    let db = Db::open(dir)?;
    let nanos = if work == "put" { put(&db)? } else { get(&db)? };
    println!("{nanos}");
    Ok(db.close()?)
}

/// The same keys as in `times.py`: 16 hexadecimal digits, in an order without a pattern.
fn key(number: u64) -> Vec<u8> {
    format!("{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes()
}

fn put(db: &Db) -> criba::Result<u128> {
    let pairs: Vec<_> = (0..PAIRS).map(|number| (key(number), [b'v'; 32])).collect();
    let began = Instant::now();
    let mut batch = Batch::new();
    for (key, value) in &pairs {
        batch.put(key, value);
        if batch.bytes() >= CHUNK_BYTES {
            db.write(std::mem::take(&mut batch))?;
        }
    }
    db.write(batch)?;
    let nanos = began.elapsed().as_nanos();
    db.compact()?;
    Ok(nanos)
}

fn get(db: &Db) -> criba::Result<u128> {
    let mut times = Vec::new();
    for call in 0..CALLS {
        let first = PAIRS + call * KEYS;
        let keys: Vec<_> = (first..first + KEYS).map(key).collect();
        let began = Instant::now();
        let values = db.get_many(&keys)?;
        times.push(began.elapsed().as_nanos());
        assert!(values.iter().all(Option::is_none));
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}
