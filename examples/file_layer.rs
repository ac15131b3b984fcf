//! A file layer of one's own: it prints each operation on a file while `traced` is set.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use criba::vfs::{Call, Layer, LayeredVfs, RealVfs};
use criba::{Durability, Options};

#[derive(Debug, Default)]
struct Trace {
    traced: AtomicBool,
}

impl Layer for Trace {
    fn call(&self, call: &Call<'_>, next: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        let begun = Instant::now();
        let done = next();
        if self.traced.load(Ordering::Relaxed) {
            let (operation, name) = (call.operation, call.path.file_name().unwrap_or_default());
            let (name, micros) = (name.display(), begun.elapsed().as_micros());
            println!("  {operation:?} {name}, {} bytes, {micros} µs", call.bytes);
        }
        done
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let parent = tempfile::tempdir()?;
    let vfs = LayeredVfs::new(Arc::new(RealVfs), Trace::default());
    let db = Options::new().vfs(vfs.clone()).background_threads(0).open(parent.path().join("s"))?;
    let traced = |what: &str, call: &dyn Fn() -> criba::Result<()>| {
        println!("{what}");
        vfs.layer().traced.store(true, Ordering::Relaxed);
        let done = call();
        vfs.layer().traced.store(false, Ordering::Relaxed);
        done
    };
    traced("a synced put", &|| db.put_with("key", "value", Durability::Synced))?;
    traced("a flush", &|| db.flush())?;
    traced("a key that is there", &|| db.get("key").map(drop))?;
    traced("a key that is not there", &|| db.get("another").map(drop))?;
    Ok(db.close()?)
}
