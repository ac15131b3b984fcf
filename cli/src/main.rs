//! The criba command.
fn main() {}
