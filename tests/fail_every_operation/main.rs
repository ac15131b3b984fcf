//! Every operation of the file layer fails in turn, in every way, once and from then on. The call with the
//! fault fails, or the degradation is declared and counted here; no acknowledged write is lost, and no
//! later success hides the fault.

#[path = "../common/mod.rs"]
mod common;
mod declared;
mod run;
mod script;

use std::sync::atomic::{AtomicU64, Ordering};

use criba::vfs::{Fault, FaultRule, Operation};

use run::{Tally, run};
use script::{Script, everything, long_manifest};

/// `FAIL_RUNS=10 cargo test --test fail_every_operation -- --nocapture` runs ten more scripts.
const RUNS: &str = "FAIL_RUNS";
const SEED: u64 = 0xFA17;

/// A fault, and whether it is only a full disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Io,
    NoSpace,
    Interrupted,
    ShortRead,
    ShortWrite,
    WrongRead,
    /// From some moment on no file can grow; all other operations succeed.
    FullDisk,
}

impl Kind {
    const ALL: [(Self, bool); 13] = [
        (Self::Io, false),
        (Self::Io, true),
        (Self::NoSpace, false),
        (Self::NoSpace, true),
        (Self::Interrupted, false),
        (Self::Interrupted, true),
        (Self::ShortRead, false),
        (Self::ShortRead, true),
        (Self::ShortWrite, false),
        (Self::ShortWrite, true),
        (Self::WrongRead, false),
        (Self::WrongRead, true),
        (Self::FullDisk, true),
    ];

    fn rule(self, number: u64) -> FaultRule {
        let rule = match self {
            Self::Io => FaultRule::new(Fault::Io),
            Self::NoSpace => FaultRule::new(Fault::NoSpace),
            Self::Interrupted => FaultRule::new(Fault::Interrupted),
            Self::ShortRead => FaultRule::new(Fault::ShortRead),
            Self::ShortWrite => FaultRule::new(Fault::ShortWrite),
            Self::WrongRead => {
                let bit = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
                FaultRule::new(Fault::FlippedBit(bit)).operations([Operation::Read])
            }
            Self::FullDisk => FaultRule::new(Fault::NoSpace).operations([
                Operation::Create,
                Operation::CreateDir,
                Operation::Append,
                Operation::Write,
            ]),
        };
        rule.skip(number)
    }
}

/// Fails each operation in turn, from this one on.
fn every_operation(script: &Script, first: u64, kind: Kind, lasting: bool, seed: u64) -> Tally {
    let (next, stride) = (AtomicU64::new(first), common::stride() as u64);
    let work = || {
        let mut tally = Tally::default();
        loop {
            let number = next.fetch_add(stride, Ordering::Relaxed);
            let mut rule = kind.rule(number);
            if lasting {
                rule = rule.from_then_on();
            }
            let duration = if lasting { "from then on" } else { "once" };
            let at = format!(
                "seed {seed:#x}, {}, {kind:?} {duration} from operation {number}",
                script.name
            );
            let rot = lasting && kind == Kind::WrongRead;
            match run(script, rule, rot, at) {
                Some(one) => tally.add(one),
                None => return tally,
            }
        }
    };
    let mut tally = Tally::default();
    std::thread::scope(|scope| {
        let threads = [scope.spawn(work), scope.spawn(work)];
        for thread in threads {
            tally.add(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
    });
    assert!(tally.injected > 0, "{kind:?} never befell anything");
    tally
}

fn fail_every_operation(script: fn(u64) -> Script) {
    let more = std::env::var(RUNS).map_or(0, |runs| runs.parse().expect("a number"));
    let (mut all, mut name) = (Tally::default(), "");
    for seed in SEED..=SEED + more {
        let script = script(seed);
        name = script.name;
        for (number, (kind, lasting)) in Kind::ALL.into_iter().enumerate() {
            let first = number % common::stride();
            let tally = every_operation(&script, first as u64, kind, lasting, seed);
            if kind == Kind::FullDisk {
                assert_eq!(tally.poisonings, 0, "a full disk poisons no store");
            }
            let duration = if lasting { "from then on" } else { "once" };
            println!("{name}, {kind:?} {duration}: {tally}");
            all.add(tally);
        }
    }
    println!("seed {SEED:#x} and {more} more, {name}: {all}");
}

#[test]
fn every_operation_that_fails_surfaces_or_is_declared_and_loses_nothing() {
    fail_every_operation(everything);
}

#[test]
fn so_it_is_while_the_manifest_is_written_anew() {
    fail_every_operation(long_manifest);
}
