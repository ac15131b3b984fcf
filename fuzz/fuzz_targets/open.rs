#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    criba_fuzz::open(bytes);
});
