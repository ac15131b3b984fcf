//! Failures of local operations, once or from then on, of a writer and of a reader.

use std::collections::BTreeMap;
use std::sync::Arc;

use criba::vfs::{Fault, FaultRule, FaultVfs, Keep, SimVfs, Unit};
use criba_object::object_store::ObjectStoreExt;
use criba_object::object_store::memory::InMemory;
use criba_object::{Error, ObjectDb, Options, open, open_reader};

use crate::bucket::{block_on, key, listed, options, sim, store};

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

fn content(
    pairs: impl Iterator<Item = criba::Result<(criba::Value, criba::Value)>>,
) -> criba::Result<Content> {
    pairs.map(|pair| pair.map(|(k, v)| (k.to_vec(), v.to_vec()))).collect()
}

fn put_all(writer: &ObjectDb, wanted: &mut Content, value: u8, step: usize) -> criba::Result<()> {
    for number in (0..400).step_by(step) {
        let pair = (key(number), vec![value; 100]);
        wanted.insert(pair.0.clone(), pair.1.clone());
        writer.put(pair.0, pair.1)?;
    }
    Ok(())
}

/// Returns what was acknowledged as published, and what was written.
fn life(bucket: &Arc<InMemory>, options: Options) -> (Content, Content, Option<String>) {
    let (mut published, mut wanted) = (Content::new(), Content::new());
    let work = || -> Result<(), Error> {
        let writer = open(store(bucket), "/local", options)?;
        put_all(&writer, &mut wanted, 1, 1)?;
        writer.sync_remote()?;
        published = wanted.clone();
        put_all(&writer, &mut wanted, 2, 3)?;
        writer.compact()?;
        writer.sync_remote()?;
        published = wanted.clone();
        writer.rebuild_filters(&criba::FilterPolicy::bits_per_key(14.0))?;
        writer.sync_remote()?;
        put_all(&writer, &mut wanted, 3, 5)?;
        writer.rebuild_filters(&criba::FilterPolicy::bits_per_key(9.0))?;
        writer.compact()?;
        writer.sync_remote()?;
        published = wanted.clone();
        writer.close()
    };
    let failed = work().err().map(|error| error.to_string());
    (published, wanted, failed)
}

/// From each local operation on, all fail; or only one. Then the machine comes back.
fn sweep(lasting: bool, step: usize) {
    let mut refused = BTreeMap::<String, (u64, u64)>::new();
    let mut number = 0;
    loop {
        let bucket = Arc::new(InMemory::new());
        let vfs = sim();
        let faults = FaultVfs::new(Arc::new(vfs.clone()));
        let rule = FaultRule::new(Fault::Io).skip(number);
        faults.add(if lasting { rule.from_then_on() } else { rule });
        let (published, wanted, failed) =
            life(&bucket, options().vfs(faults.clone()).local_bytes(0));
        if faults.injected().is_empty() {
            break;
        }
        let what = format!("operation {number}, {:?}, {failed:?}", faults.injected()[0]);
        let disk = match number % 3 {
            0 => vfs.disk().power_failure(Unit::Sector, |_| Keep::OLD),
            1 => vfs.disk().power_failure(Unit::Sector, |_| Keep::NEW),
            _ => vfs.disk(),
        };
        let vfs = SimVfs::on(disk);
        let check = |found: &Content, who: &str| {
            // Each key is as published, or as later written.
            for (key, value) in &published {
                let found = found.get(key);
                let later = wanted.get(key);
                assert!(
                    found == Some(value)
                        || found.is_some() && found >= Some(value) && found <= later,
                    "{who}, {what}: {:?} is {:?}",
                    String::from_utf8_lossy(key),
                    found.map(|v| v[0])
                );
            }
        };
        if !published.is_empty() {
            let reader = open_reader(store(&bucket), "/reader", options().vfs(sim()));
            let reader = reader.unwrap_or_else(|error| panic!("reader, {what}: {error}"));
            check(&content(reader.iter()).unwrap(), "reader");
            for key in published.keys() {
                assert!(reader.get(key).unwrap().is_some(), "reader's filter, {what}");
            }
        }
        match open(store(&bucket), "/local", options().vfs(vfs).local_bytes(0)) {
            Ok(writer) => {
                check(
                    &content(writer.iter())
                        .unwrap_or_else(|error| panic!("writer, {what}: {error}")),
                    "writer",
                );
                for key in published.keys() {
                    assert!(writer.get(key).unwrap().is_some(), "writer's filter, {what}");
                }
                writer.put("later", "1").unwrap();
                writer.sync_remote().unwrap_or_else(|error| panic!("goes on, {what}: {error}"));
                let all = content(writer.iter()).unwrap();
                let reader = open_reader(store(&bucket), "/reader", options().vfs(sim())).unwrap();
                assert_eq!(content(reader.iter()).unwrap(), all, "{what}");
                for key in all.keys() {
                    assert!(reader.get(key).unwrap().is_some(), "filter, {what}");
                }
            }
            Err(error) => {
                let entry = refused
                    .entry(error.to_string().chars().take(150).collect())
                    .or_insert((0, number));
                entry.0 += 1;
            }
        }
        number += step as u64;
    }
    println!("{number} operations; refused: {refused:#?}");
    assert!(refused.is_empty(), "{refused:?}");
}

#[test]
fn death_at_each_local_operation() {
    sweep(true, 41);
}

#[test]
fn one_failure_of_each_local_operation() {
    sweep(false, 41);
}

/// A reader whose local operations fail once, or from then on, and which then refreshes or opens again.
#[test]
fn failures_of_each_local_operation_of_a_reader() {
    let bucket = Arc::new(InMemory::new());
    let writer = open(store(&bucket), "/local", options().vfs(sim()).local_bytes(0)).unwrap();
    let mut first = Content::new();
    put_all(&writer, &mut first, 1, 1).unwrap();
    writer.rebuild_filters(&criba::FilterPolicy::bits_per_key(9.0)).unwrap();
    writer.sync_remote().unwrap();
    let old = Arc::new(bucket.fork());
    let mut second = first.clone();
    put_all(&writer, &mut second, 2, 3).unwrap();
    writer.compact().unwrap();
    writer.rebuild_filters(&criba::FilterPolicy::bits_per_key(14.0)).unwrap();
    writer.sync_remote().unwrap();
    for lasting in [false, true] {
        for number in (0..).step_by(7) {
            let vfs = sim();
            drop(open_reader(store(&old), "/reader", options().vfs(vfs.clone())).unwrap());
            let faults = FaultVfs::new(Arc::new(vfs.clone()));
            // The client has the old bucket, and then the new one.
            let both = Arc::new(old.fork());
            let reader =
                open_reader(store(&both), "/reader", options().vfs(faults.clone())).unwrap();
            for meta in listed(&bucket, "") {
                let bytes = block_on(async {
                    bucket.get(&meta.location).await.unwrap().bytes().await.unwrap()
                });
                block_on(both.put(&meta.location, bytes.into())).unwrap();
            }
            let rule = FaultRule::new(Fault::Io).skip(number);
            faults.add(if lasting { rule.from_then_on() } else { rule });
            let refreshed = reader.refresh();
            let injected = faults.injected();
            faults.clear();
            let what = format!("{number} {lasting} {:?} {refreshed:?}", injected.first());
            let expected = if refreshed.is_ok() { &second } else { &first };
            let found = content(reader.iter());
            assert!(
                found.as_ref().is_ok_and(|found| found == expected),
                "{what}: {:?}",
                found.map(|f| f.len())
            );
            for (key, value) in expected {
                assert_eq!(reader.get(key).unwrap().as_deref(), Some(&value[..]), "{what}");
            }
            if number % 2 == 0 {
                reader.refresh().unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_eq!(content(reader.iter()).unwrap(), second, "{what}");
                for (key, value) in &second {
                    assert_eq!(reader.get(key).unwrap().as_deref(), Some(&value[..]), "{what}");
                }
            }
            let disk = if number % 3 == 0 {
                vfs.disk()
            } else {
                vfs.disk().power_failure(Unit::Sector, |_| {
                    if number % 3 == 1 { Keep::OLD } else { Keep::NEW }
                })
            };
            drop(reader);
            let reader = open_reader(store(&both), "/reader", options().vfs(SimVfs::on(disk)));
            let reader = reader.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(content(reader.iter()).unwrap(), second, "{what}");
            for (key, value) in &second {
                assert_eq!(reader.get(key).unwrap().as_deref(), Some(&value[..]), "{what}");
            }
            if injected.is_empty() {
                println!("{number} operations");
                break;
            }
        }
    }
}
