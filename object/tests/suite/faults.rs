//! Answers that are refused, missing, of other bytes or cut off: once, then the request is repeated; always, then the
//! error names the object and the place.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use criba_object::object_store::memory::InMemory;
use criba_object::{ObjectDb, ObjectReader, Options, Result, open, open_reader};

use crate::bucket::{Answer, Client, Request, key, options, store};

const KEYS: u64 = 3000;

/// What may happen to a GET, but for a wrong bit.
const UNUSABLE: [Answer; 6] = [
    Answer::Refused,
    Answer::Silence,
    Answer::OtherRange,
    Answer::TooFew,
    Answer::TooMany,
    Answer::HalfABody,
];

/// A client whose next requests are answered so.
struct Faulty {
    client: Client,
    left: Arc<AtomicU64>,
}

impl Faulty {
    fn new(
        bucket: &Arc<InMemory>,
        answer: Answer,
        is_meant: impl Fn(&Request<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        let left = Arc::new(AtomicU64::new(0));
        let of_hook = Arc::clone(&left);
        let client = Client::with_hook(bucket, move |request| {
            let take = |left: u64| left.checked_sub(1);
            let is_next = is_meant(request)
                && of_hook.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok();
            if is_next { answer } else { Answer::True }
        });
        Self { client, left }
    }

    fn next(&self, requests: u64) {
        self.left.store(requests, Ordering::SeqCst);
    }

    /// Whether all faults happened that were to happen once.
    fn is_over(&self) -> bool {
        self.left.load(Ordering::SeqCst) == 0
    }
}

/// Requests are repeated for a short time.
fn patient() -> Options {
    options().request_timeout(Duration::from_millis(100)).retry_for(Duration::from_millis(500))
}

/// A bucket with all keys in several tables, of which one has a filter file. Returns the options of its readers.
fn filled(dir: &Path) -> Arc<InMemory> {
    let bucket = Arc::new(InMemory::new());
    let writer = open(store(&bucket), dir.join("writer"), options()).unwrap();
    fill(&writer);
    writer.compact().unwrap();
    writer.rebuild_filters(&criba::FilterPolicy::bits_per_key(16.0)).unwrap();
    writer.close().unwrap();
    bucket
}

fn fill(writer: &ObjectDb) {
    for number in 0..KEYS {
        writer.put(key(number), [7; 100]).unwrap();
    }
}

fn reader_at(client: &Client, dir: &Path) -> Result<ObjectReader> {
    open_reader(client.store(), dir, patient())
}

fn is_get(request: &Request<'_>, directory: &str) -> bool {
    matches!(request, Request::Get(_)) && request.is_of(directory)
}

/// All keys are found, and filters deny others.
fn assert_sound(reader: &ObjectReader, client: &Client, what: &str) {
    for number in (0..KEYS).step_by(7) {
        assert!(reader.get(key(number)).unwrap().is_some(), "{what}: key {number}");
    }
    let before = client.gets();
    for number in 0..200 {
        assert_eq!(reader.get([key(number), vec![0]].concat()).unwrap(), None, "{what}");
    }
    assert!(client.gets() - before < 20, "{what}: a filter is not used");
}

#[test]
fn a_lookup_is_repeated_and_its_error_names_object_and_offset() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = filled(dir.path());
    for answer in [&UNUSABLE[..], &[Answer::WrongBit]].concat() {
        let faulty = Faulty::new(&bucket, answer, |request| is_get(request, "tables/"));
        let reader = reader_at(&faulty.client, &dir.path().join("reader")).unwrap();
        let before = faulty.client.gets();
        faulty.next(1);
        assert!(reader.get(key(7)).unwrap().is_some(), "{answer:?}");
        assert_eq!(faulty.client.gets() - before, 2, "{answer:?}");
        faulty.next(1);
        let batch: Vec<_> = (0..KEYS).map(key).collect();
        assert!(reader.get_many(&batch).unwrap().iter().all(Option::is_some), "{answer:?}");
        assert!(faulty.is_over(), "{answer:?}");
        faulty.next(u64::MAX);
        let error = reader.get(key(7)).unwrap_err().to_string();
        assert!(error.contains("offset ") && error.contains(".sst"), "{answer:?}: {error}");
        // What no checksum decides is a failed request, with the name of the object.
        assert_eq!(error.contains("tables/"), answer != Answer::WrongBit, "{answer:?}: {error}");
        faulty.next(0);
        assert!(reader.get(key(7)).unwrap().is_some(), "{answer:?}: later");
    }
}

#[test]
fn an_opening_is_repeated_and_its_error_names_the_object() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = filled(dir.path());
    let mut number = 0;
    for directory in ["manifests/", "tables/", "filters/"] {
        for answer in [&UNUSABLE[..], &[Answer::WrongBit]].concat() {
            if (directory, answer) == ("manifests/", Answer::OtherRange) {
                continue; // a manifest is read as a whole
            }
            let what = format!("{directory} {answer:?}");
            let faulty = Faulty::new(&bucket, answer, move |request| is_get(request, directory));
            number += 1;
            let local = dir.path().join(format!("reader{number}"));
            faulty.next(1);
            let reader = reader_at(&faulty.client, &local);
            let reader = reader.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(faulty.is_over(), "{what}");
            assert_sound(&reader, &faulty.client, &what);
            drop(reader);
            faulty.next(u64::MAX);
            let local = dir.path().join(format!("new{number}"));
            match reader_at(&faulty.client, &local) {
                Err(error) => {
                    let error = error.to_string();
                    assert!(error.contains(directory), "{what}: {error}");
                }
                // The store goes on without a damaged filter.
                Ok(reader) => {
                    assert!(answer == Answer::WrongBit && directory != "manifests/", "{what}");
                    faulty.next(0);
                    for number in 0..KEYS {
                        assert!(reader.get(key(number)).unwrap().is_some(), "{what}: {number}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_listing_is_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = filled(dir.path());
    for answer in [Answer::Refused, Answer::Silence] {
        let is_list = |request: &Request<'_>| matches!(request, Request::List(_));
        let faulty = Faulty::new(&bucket, answer, is_list);
        faulty.next(1);
        let reader = reader_at(&faulty.client, &dir.path().join("reader")).unwrap();
        faulty.next(1);
        assert!(!reader.refresh().unwrap() && faulty.is_over(), "{answer:?}");
        faulty.next(u64::MAX);
        let error = reader.refresh().unwrap_err().to_string();
        assert!(error.contains("manifests"), "{answer:?}: {error}");
        assert!(reader.get(key(7)).unwrap().is_some(), "{answer:?}");
    }
}

#[test]
fn a_scan_is_repeated_and_its_error_names_object_and_offset() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = filled(dir.path());
    for answer in [&UNUSABLE[..], &[Answer::WrongBit]].concat() {
        let faulty = Faulty::new(&bucket, answer, |request| is_get(request, "tables/"));
        let reader = reader_at(&faulty.client, &dir.path().join("reader")).unwrap();
        // Each request of a scan, one after the other.
        let before = faulty.client.gets();
        assert_eq!(reader.iter().count() as u64, KEYS);
        let requests = faulty.client.gets() - before;
        assert!(requests >= 8, "{requests}");
        for request in 0..requests {
            let before = faulty.client.gets();
            let mut pairs = 0;
            let mut scan = reader.iter();
            loop {
                if faulty.client.gets() - before >= request && pairs > 0 {
                    break;
                }
                scan.next().unwrap().unwrap();
                pairs += 1;
            }
            faulty.next(1);
            for pair in scan {
                pair.unwrap_or_else(|error| panic!("{answer:?}, request {request}: {error}"));
                pairs += 1;
            }
            faulty.next(0);
            assert_eq!(pairs, KEYS, "{answer:?}, request {request}");
        }
        faulty.next(u64::MAX);
        let error = reader.iter().find_map(std::result::Result::err).unwrap().to_string();
        assert!(error.contains("offset ") && error.contains(".sst"), "{answer:?}: {error}");
    }
}

#[test]
fn a_compaction_goes_on_when_the_bucket_answers_again() {
    for answer in [&UNUSABLE[..], &[Answer::WrongBit]].concat() {
        let dir = tempfile::tempdir().unwrap();
        let bucket = filled(dir.path());
        let faulty = Faulty::new(&bucket, answer, |request| is_get(request, "tables/"));
        let local = dir.path().join("writer");
        let writer = open(faulty.client.store(), local, patient().local_bytes(0)).unwrap();
        writer.put("one more", "").unwrap();
        writer.sync_remote().unwrap();
        faulty.next(1);
        // The checksum of one block in a range is noticed when the range is used.
        let compacted = writer.compact();
        assert!(compacted.is_ok() || answer == Answer::WrongBit, "{answer:?}: {compacted:?}");
        assert!(faulty.is_over(), "{answer:?}");
        writer.compact().unwrap_or_else(|error| panic!("{answer:?}: {error}"));
        assert!(writer.tables().iter().all(|table| table.damage.is_none()), "{answer:?}");
        writer.close().unwrap();
        let reader = reader_at(&Client::before_manifests(&bucket, |_| ()), &dir.path().join("r"));
        assert_eq!(
            reader.unwrap().iter().map(std::result::Result::unwrap).count() as u64,
            KEYS + 1
        );
    }
}

#[test]
fn an_upload_is_repeated_or_waits_for_the_next_publication() {
    for (value_bytes, directory) in [(100, "tables/"), (100, "manifests/"), (4000, "tables/")] {
        for answer in [Answer::Refused, Answer::Silence] {
            let what = format!("{value_bytes} {directory} {answer:?}");
            let dir = tempfile::tempdir().unwrap();
            let bucket = Arc::new(InMemory::new());
            let is_upload = move |request: &Request<'_>| {
                matches!(request, Request::Put(..) | Request::Part(_)) && request.is_of(directory)
            };
            let faulty = Faulty::new(&bucket, answer, is_upload);
            // Tables of more than one part, if the values are long.
            let store_options = criba::Options::new().background_threads(0);
            let patient = patient().store(store_options);
            let local = dir.path().join("writer");
            let writer = open(faulty.client.store(), local, patient.clone()).unwrap();
            for number in 0..KEYS {
                writer.put(key(number), vec![7; value_bytes]).unwrap();
            }
            faulty.next(1);
            let published = writer.sync_remote();
            assert!(faulty.is_over(), "{what}");
            let is_in_parts = value_bytes > 1000;
            assert_eq!(published.is_err(), is_in_parts, "{what}: {published:?}");
            if let Err(error) = published {
                assert!(error.to_string().contains("tables/"), "{what}: {error}");
                assert!(error.to_string().contains("at offset 0"), "{what}: {error}");
            }
            writer.sync_remote().unwrap();
            writer.put("later", "").unwrap();
            faulty.next(u64::MAX);
            let error = writer.sync_remote().unwrap_err().to_string();
            assert!(error.contains(directory), "{what}: {error}");
            // Readers have the version before, and the writer what it wrote.
            let path = dir.path().join("reader");
            let reader = open_reader(store(&bucket), &path, patient).unwrap();
            assert_eq!(reader.iter().count() as u64, KEYS, "{what}");
            assert!(writer.get("later").unwrap().is_some(), "{what}");
            faulty.next(0);
            writer.sync_remote().unwrap();
            assert!(reader.refresh().unwrap(), "{what}");
            assert!(reader.get("later").unwrap().is_some(), "{what}");
        }
    }
}
