//! A schedule can be repeated.

use std::sync::Arc;

use criba_schedules::vfs::SimVfs;
use shuttle::scheduler::{RandomScheduler, UncontrolledNondeterminismCheckScheduler};
use shuttle::thread::scope;

use crate::explore::run;
use crate::store::{batch, key, open, other_policy};

/// Runs each schedule twice: at every step the same threads can run.
#[test]
fn the_same_schedule_is_the_same_run() {
    let random = RandomScheduler::new_from_seed(1, 100);
    let twice = UncontrolledNondeterminismCheckScheduler::new(random);
    let ran = run(
        twice,
        Arc::new(|| {
            let db = open(&SimVfs::new());
            scope(|scope| {
                for writer in 0..2 {
                    let db = &db;
                    scope.spawn(move || {
                        for version in 1..=4 {
                            db.write(batch([writer, 2, 3], version)).unwrap();
                            db.get(key(3)).unwrap();
                        }
                        db.flush().unwrap();
                    });
                }
                scope.spawn(|| db.set_filter_memory(Some(4096)).unwrap());
                scope.spawn(|| db.rebuild_filters(&other_policy()).unwrap());
            });
            db.compact().unwrap();
            db.wait_until_settled().unwrap();
            db.close().unwrap();
        }),
    );
    println!("{ran} runs, each schedule twice");
}
