//! Finds LevelDB, which is not a crate, and records the versions of the stores.

use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=Cargo.lock");
    println!("cargo::rerun-if-env-changed=CXXFLAGS");

    let lock = fs::read_to_string("Cargo.lock").unwrap_or_default();
    for name in ["fjall", "lsm-tree", "lsm-db", "coordinode-lsm-tree", "redb", "heed"] {
        let version = version(&lock, name).unwrap_or("unknown");
        println!("cargo::rustc-env=VERSION_{}={version}", name.replace('-', "_").to_uppercase());
    }
    let flags = env::var("CXXFLAGS").unwrap_or_default();
    let library = version(&lock, "librocksdb-sys").unwrap_or("unknown");
    let library = library.split_once('+').map_or(library, |(_, version)| version);
    let of_crate = version(&lock, "rocksdb").unwrap_or("unknown");
    println!(
        "cargo::rustc-env=VERSION_ROCKSDB_AS_BUILT={library} (crate rocksdb {of_crate}, CXXFLAGS {flags:?})"
    );

    if links("leveldb") {
        println!("cargo::rustc-link-lib=leveldb");
        println!("cargo::rustc-cfg=leveldb");
    } else {
        println!("cargo::warning=LevelDB (Debian: libleveldb-dev) was not found, and is left out");
    }
}

/// What Cargo.lock has of a package.
fn version<'l>(lock: &'l str, package: &str) -> Option<&'l str> {
    let (_, rest) = lock.split_once(&format!("name = \"{package}\"\nversion = \""))?;
    Some(rest.split_once('"')?.0)
}

/// Whether the C compiler finds a library.
fn links(library: &str) -> bool {
    let out = env::var("OUT_DIR").expect("cargo sets it");
    let source = format!("{out}/empty.c");
    fs::write(&source, "int main(void) { return 0; }\n").expect("a directory to write to");
    Command::new("cc")
        .args([&source, "-o", &format!("{out}/empty"), &format!("-l{library}")])
        .output()
        .is_ok_and(|done| done.status.success())
}
