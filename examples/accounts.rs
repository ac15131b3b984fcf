//! Accounts with balances and statements: each transfer reads and changes several keys, and a range. Four threads
//! transfer at once, and no coin is lost.
//!
//! `cargo run --release --example accounts`

use std::error::Error;

use criba::{Db, KeyPrefix, Transaction, Value};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const ACCOUNTS: u32 = 20;
const TRANSFERS: u32 = 2000;
/// A transfer that conflicts so often fails.
const TRIES: u32 = 1000;

fn account(number: u32) -> String {
    format!("account/{number:03}")
}

/// The statement of an account: a line for each transfer, in order.
fn statement(number: u32) -> KeyPrefix {
    KeyPrefix::new(format!("statement/{number:03}/"))
}

fn number(value: &Value) -> Result<i64> {
    Ok(std::str::from_utf8(value)?.parse()?)
}

fn balance(tx: &Transaction, of: u32) -> Result<i64> {
    number(&tx.get(account(of))?.ok_or_else(|| format!("there is no {}", account(of)))?)
}

/// Adds a line to a statement, behind the last one.
fn note(tx: &mut Transaction, of: u32, amount: i64) -> Result<()> {
    let mut lines = statement(of);
    let last = tx.range(&lines).next_back().transpose()?;
    let next = match last {
        Some((key, _)) => std::str::from_utf8(&key[key.len() - 6..])?.parse::<u32>()? + 1,
        None => 0,
    };
    tx.put(lines.key(format!("{next:06}")), amount.to_string());
    Ok(())
}

/// Transfers coins, unless the account is too poor. Returns whether it did.
fn transfer(db: &Db, from: u32, to: u32, coins: i64) -> Result<bool> {
    // After a conflict the closure runs again, with a new transaction.
    db.transact(TRIES, |tx| {
        let left = balance(tx, from)? - coins;
        if left < 0 {
            return Ok(false);
        }
        let there = balance(tx, to)? + coins;
        tx.put(account(from), left.to_string()).put(account(to), there.to_string());
        note(tx, from, -coins)?;
        note(tx, to, coins)?;
        Ok(true)
    })
}

/// Closes an account, and gives what is left to another one.
fn close(db: &Db, of: u32, heir: u32) -> Result<u64> {
    db.transact(TRIES, |tx| {
        let sum = balance(tx, of)? + balance(tx, heir)?;
        tx.put(account(heir), sum.to_string()).delete(account(of));
        Ok(tx.delete_range(statement(of))?)
    })
}

fn main() -> Result<()> {
    let parent = tempfile::tempdir()?;
    let db = Db::open(parent.path().join("bank"))?;
    for number in 0..ACCOUNTS {
        db.put(account(number), "100")?;
    }

    let made: Result<Vec<u32>> = std::thread::scope(|scope| {
        let threads = [1, 7, 13, 19].map(|step| {
            let db = &db;
            scope.spawn(move || {
                let mut made = 0;
                for turn in 0..TRANSFERS {
                    let (from, to) = (turn * step % ACCOUNTS, (turn * step + 3) % ACCOUNTS);
                    made += u32::from(transfer(db, from, to, i64::from(turn % 30))?);
                }
                Ok(made)
            })
        });
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let made = made?;
    println!("4 threads made {} transfers", made.iter().sum::<u32>());

    // Of one moment: a snapshot.
    let now = db.snapshot();
    let mut sum = 0;
    for pair in now.prefix("account/") {
        sum += number(&pair?.1)?;
    }
    for of in 0..ACCOUNTS {
        let mut noted = 100;
        for line in now.range(statement(of)) {
            noted += number(&line?.1)?;
        }
        assert_eq!(noted, number(&now.get(account(of))?.expect("an account"))?);
    }
    println!("{sum} coins, and each balance is that of its statement");

    let lines = close(&db, 0, 1)?;
    println!("account 0 is closed, with the {lines} lines of its statement");
    assert_eq!(db.range(statement(0)).count(), 0);
    assert!(transfer(&db, 0, 1, 1).is_err());
    Ok(())
}
