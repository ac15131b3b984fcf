//! "Is this user name taken?" Two people ask at once, and one gets the name.
//!
//! `cargo run --release --example user_names`

use criba::{Db, Durability, Result};

/// Registers a name for an account. Returns whether the name was free.
fn register(db: &Db, name: &str, account: &str) -> Result<bool> {
    // The name is only given away once it is synced, and a refusal says that the winner's name is synced.
    db.insert_if_absent_with(name, account, Durability::Synced)
}

/// Gives a name from one account to another, unless the name changed hands meanwhile.
fn transfer(db: &Db, name: &str, from: &str, to: &str) -> Result<bool> {
    db.compare_and_swap_with(name, Some(from.as_bytes()), Some(to.as_bytes()), Durability::Synced)
}

/// Gives up a name that the account has.
fn release(db: &Db, name: &str, account: &str) -> Result<bool> {
    db.compare_and_swap_with(name, Some(account.as_bytes()), None, Durability::Synced)
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let parent = tempfile::tempdir()?;
    let db = Db::open(parent.path().join("names"))?;

    let accounts = ["account 1", "account 2"];
    let won = std::thread::scope(|scope| {
        let threads = accounts.map(|account| {
            let db = &db;
            scope.spawn(move || register(db, "ada", account))
        });
        threads.map(|thread| thread.join().expect("no panic"))
    });
    for (account, won) in accounts.iter().zip(won) {
        println!("{account} asks for \"ada\": {}", if won? { "yours" } else { "taken" });
    }
    let owner = db.get("ada")?.expect("one account has it");
    let owner = std::str::from_utf8(&owner)?;
    println!("\"ada\" belongs to {owner}");

    assert!(!transfer(&db, "ada", "account 3", "account 4")?, "account 3 does not have the name");
    assert!(transfer(&db, "ada", owner, "account 3")?);
    assert!(release(&db, "ada", "account 3")?);
    assert!(register(&db, "ada", "account 4")?);
    println!("\"ada\" belongs to {:?} now", db.get("ada")?.expect("registered again"));

    // A free name costs no disk read, but for a filter's mistakes.
    db.flush()?;
    let before = db.stats();
    for number in 0..1000 {
        assert!(!db.contains(format!("free{number}"))?);
    }
    println!("1000 free names: {} disk reads", (db.stats() - before).total().disk_reads);
    Ok(())
}
