//! A program that embeds criba tests that it survives a power failure: after every operation of the file
//! layer, with all that was not synced lost, or kept, or any part of it.
//!
//! `cargo run --example crash_test_your_own`

use std::sync::Arc;

use criba::vfs::{Keep, SimVfs, Unit};
use criba::{Batch, Db, Durability, Options};

/// Two accounts in a store: money moves from one to the other.
struct Bank(Db);

impl Bank {
    fn open(vfs: &SimVfs) -> criba::Result<Self> {
        let options = Options::new().memtable_bytes(1024).background_threads(0).seed(1);
        options.vfs(Arc::new(vfs.clone())).open("/bank").map(Self)
    }

    fn balance(&self, account: &str) -> criba::Result<i64> {
        let value = self.0.get(account)?;
        Ok(value.map_or(0, |value| i64::from_le_bytes(value[..].try_into().expect("8 bytes"))))
    }

    fn pay(&self, amount: i64) -> criba::Result<()> {
        let (from, to) = (self.balance("ana")? - amount, self.balance("luis")? + amount);
        let mut batch = Batch::new();
        batch.put("ana", from.to_le_bytes()).put("luis", to.to_le_bytes());
        self.0.write_with(batch, Durability::Synced) // two puts of their own would fail the test
    }
}

fn main() -> criba::Result<()> {
    let vfs = SimVfs::new().recording();
    let bank = Bank::open(&vfs)?;
    // How many operations there were after each payment.
    let pay = |_| bank.pay(1).map(|()| vfs.moment_count());
    let paid = (0..50).map(pay).collect::<criba::Result<Vec<usize>>>()?;

    let mut disks = 0;
    for (number, moment) in vfs.take_moments().iter().enumerate() {
        let unsynced = moment.disk.unsynced(Unit::Sector).len();
        for kept in 0_u64..1 << unsynced.min(6) {
            let mut parts = 0..;
            let disk = moment.disk.power_failure(Unit::Sector, |_| {
                let part = parts.next().unwrap_or(0);
                if kept >> part & 1 == 1 { Keep::NEW } else { Keep::OLD }
            });
            let bank = Bank::open(&SimVfs::on(disk))?;
            let (ana, luis) = (bank.balance("ana")?, bank.balance("luis")?);
            assert_eq!(ana + luis, 0, "no money comes or goes");
            let acknowledged = paid.iter().filter(|&&end| end <= number + 1).count() as i64;
            assert!(luis >= acknowledged, "{luis} of {acknowledged} payments");
            disks += 1;
        }
    }
    assert!(disks > 1000, "{disks}"); // how many there are depends on the bytes that criba writes
    println!("more than 1,000 disks after a power failure, and not a coin lost");
    Ok(())
}
