//! A sync covers everything that was written before, in whichever log: while a flush is held up, writers
//! have gone on in another log.

use std::sync::{Arc, Mutex};

use criba::vfs::{Keep, SimVfs, Unit};
use criba::{Batch, Db, Durability, Event};

use crate::history::{DIR, options};

#[test]
fn a_sync_covers_the_logs_of_memtables_that_are_still_to_be_flushed() {
    let syncs: [fn(&Db); 2] = [
        |db| db.sync().unwrap(),
        |db| {
            let mut batch = Batch::new();
            batch.put("last", "");
            db.write_with(batch, Durability::Synced).unwrap();
        },
    ];
    for sync in syncs {
        let vfs = SimVfs::new();
        let gate = Arc::new(Mutex::new(()));
        let held = gate.lock().unwrap();
        let flush_waits = Arc::clone(&gate);
        let listener = move |event: &Event| {
            if matches!(event, Event::FlushStarted { .. }) {
                drop(flush_waits.lock().unwrap());
            }
        };
        let options = options().vfs(Arc::new(vfs.clone())).background_threads(1);
        let db = options.on_event(Arc::new(listener)).open(DIR).unwrap();
        let logs = || {
            let disk = vfs.disk();
            disk.files().filter(|(path, _)| path.extension().is_some_and(|e| e == "log")).count()
        };
        let mut written = 0;
        while logs() < 2 {
            db.put(format!("key{written}"), [0; 100]).unwrap();
            written += 1;
        }
        sync(&db);
        let disk = vfs.disk().power_failure(Unit::Sector, |_| Keep::OLD);
        drop(held);
        db.close().unwrap();

        let db = crate::history::options().vfs(Arc::new(SimVfs::on(disk))).open(DIR).unwrap();
        for number in 0..written {
            assert!(db.get(format!("key{number}")).unwrap().is_some(), "of {written} {number}");
        }
    }
}
