//! The program of the README: `cargo run --example quickstart`.

use criba::{Batch, Db};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let db = Db::open("users")?; // a directory, made if it is missing

    // If many threads insert the name, one gets `true`.
    let free = db.insert_if_absent("name/ada", "account 1")?;
    println!("ada is {}", if free { "yours" } else { "taken" });

    // A batch is written whole or not at all; a snapshot does not see it.
    let before = db.snapshot();
    let mut batch = Batch::new();
    batch.put("name/bea", "account 2").delete("name/ada");
    db.write(batch)?;
    println!("ada was {:?}, is {:?}", before.get("name/ada")?, db.get("name/ada")?);

    db.flush()?; // from memory into a file, so that there is something to read
    println!("{}", db.explain("name/al")?);
    Ok(db.close()?)
}
