//! A process that refreshes a reader again and again, and fails if a version is not whole: `reader ENDPOINT DIRECTORY
//! KEYS`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use criba_object::object_store::ObjectStore;
use criba_object::{ObjectReader, Options, open_reader};
use criba_object_s3::{client, end_with_the_parent, report};

fn main() {
    let is_over = end_with_the_parent();
    let arguments: Vec<String> = std::env::args().collect();
    let [_, endpoint, dir, keys] = &arguments[..] else { panic!("{arguments:?}") };
    let keys = keys.parse().expect("a number");
    let bucket: Arc<dyn ObjectStore> = Arc::new(client(endpoint));
    let store = criba::Options::new().cache_bytes(0);
    let reader = open_reader(bucket, dir, Options::new().store(store)).expect("it opens");
    let mut generation = generation_of(&reader, keys);
    report("opened", &[generation]);
    let (mut refreshes, mut versions) = (0, 1);
    loop {
        let is_last = is_over.load(Ordering::SeqCst);
        refreshes += 1;
        if reader.refresh().expect("it refreshes") {
            let now = generation_of(&reader, keys);
            assert!(now > generation, "generation {now} after {generation}");
            (generation, versions) = (now, versions + 1);
        }
        if is_last {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    report("end", &[generation, refreshes, versions]);
}

/// The generation that all keys have.
fn generation_of(reader: &ObjectReader, keys: usize) -> u64 {
    let values = reader.iter().map(|pair| pair.expect("it is read").1);
    let values: Vec<_> = values.collect();
    assert_eq!(values.len(), keys);
    assert!(values.iter().all(|value| *value == values[0]), "a version is not whole");
    // Lookups use other requests, and the filters.
    for number in (0..keys).step_by(97) {
        let found = reader.get(format!("key{number:06}")).expect("it is read");
        assert_eq!(found.as_deref(), Some(&*values[0]), "key {number}");
    }
    std::str::from_utf8(&values[0]).expect("digits").parse().expect("a number")
}
