//! Sets what `filter/src/sync.rs` looks for.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cfg=criba_shuttle");
}
