//! Logs with one forged field and right checksums.

use std::sync::Arc;

use criba::vfs::{SimVfs, Vfs};
use criba::{Uncertain, repair_with, verify_with};

use crate::case::{Case, Outcome};
use crate::fixture::{DIR, FIXTURE, Kind, TIME, options};
use crate::forge::{FRAME_HEADER, Frame, Log, SALT_AT};
use crate::numbers::odd;
use crate::sweep::sweep_all;

/// A case for each forged log.
fn cases(forgeries: Vec<(String, Log)>) -> Vec<Case> {
    let name = FIXTURE.only(Kind::Log);
    let case = |(what, log): (String, Log)| {
        Case::new(format!("{name}: {what}"), &name, FIXTURE.with(&name, log.encode())).forged()
    };
    forgeries.into_iter().map(case).collect()
}

/// The log with one frame changed, in each of its frames.
fn each_frame(what: &str, forge: impl Fn(&mut Frame)) -> Vec<(String, Log)> {
    let sound = Log::of(Kind::Log);
    let forged = |number: usize| {
        let mut log = sound.clone();
        forge(&mut log.frames[number]);
        (format!("{what} in frame {number}"), log)
    };
    (0..sound.frames.len()).map(forged).collect()
}

#[test]
fn forged_lengths_kinds_and_numbers_of_frames_are_not_believed() {
    let mut forgeries = Vec::new();
    for length in [0, 1, 8, 20, 26, 27, 28, 500, 600, 700, 32_741, 32_742, 32_768, u16::MAX] {
        forgeries.extend(each_frame(&format!("length {length}"), |frame| frame.length = length));
    }
    for kind in [0, 2, 3, 4, 5, 6, 255] {
        forgeries.extend(each_frame(&format!("kind {kind}"), |frame| frame.kind = kind));
    }
    for log in [0, 1, u32::MAX] {
        forgeries.extend(each_frame(&format!("log {log}"), |frame| frame.log = log));
    }
    for number in 0..Log::of(Kind::Log).frames.len() as u64 {
        for seq in odd(Log::of(Kind::Log).frames[number as usize].seq) {
            let mut log = Log::of(Kind::Log);
            log.frames[number as usize].seq = seq;
            forgeries.push((format!("sequence number {seq} in frame {number}"), log));
        }
    }
    let tally = sweep_all("frames forged", &cases(forgeries), |_, outcome| {
        matches!(outcome, Outcome::Refused | Outcome::Dropped)
    });
    assert!(tally[&Outcome::Refused] > 200 && tally[&Outcome::Dropped] > 100);
}

/// Synced records matter only beside damage.
#[test]
fn forged_synced_offsets_do_no_harm_to_a_whole_log() {
    let mut forgeries = Vec::new();
    for synced in odd(52) {
        forgeries.extend(each_frame(&format!("synced to {synced}"), |frame| frame.synced = synced));
    }
    sweep_all("synced offsets forged", &cases(forgeries), |_, outcome| outcome == Outcome::Right);
}

/// Each byte of a payload: kinds, lengths of keys and values. A whole record that is not a batch is no
/// result of a crash. A valid batch is believed.
#[test]
fn forged_batches_are_refused_or_what_they_say() {
    let mut forgeries = Vec::new();
    let sound = Log::of(Kind::Log);
    for number in [0, 4, sound.frames.len() - 1] {
        for at in 0..sound.frames[number].payload.len() {
            for byte in [0, 1, 2, 3, 0x7f, 0x80, 0xff] {
                let mut log = sound.clone();
                log.frames[number].payload[at] = byte;
                forgeries.push((format!("byte {at} of record {number} is {byte}"), log));
            }
        }
        // Lengths far beyond the record, and beyond what a key and a value may have.
        for key in [vec![0xff; 9], vec![0xff, 0xff, 0xff, 0xff, 0x7f], vec![0x80, 0x80, 0x04]] {
            for length in [&[0xff; 9][..], &[0x80, 0x80, 0x80, 0x80, 0x04], &[0]] {
                let mut log = sound.clone();
                log.frames[number].payload = [&[1][..], &key, &[1], length, &[1]].concat();
                log.frames[number].length = log.frames[number].payload.len() as u16;
                forgeries.push((format!("a batch of a key of {key:?}, {length:?}"), log));
            }
        }
    }
    let tally = sweep_all("batches forged", &cases(forgeries), |_, outcome| {
        // Fewer changes than there were leave a gap before the next record.
        matches!(outcome, Outcome::Refused | Outcome::Dropped | Outcome::Believed | Outcome::Right)
    });
    assert!(tally[&Outcome::Refused] > 100, "{tally:?}");
}

/// A change that expires has eight bytes of expiry before its value. A forged expiry is believed.
#[test]
fn forged_expiries_are_refused_or_what_they_say() {
    let sound = Log::of(Kind::Log);
    let (mut short, mut whole) = (Vec::new(), Vec::new());
    for number in [0, 4, sound.frames.len() - 1] {
        let mut forge = |value: &[u8]| {
            let change = [&[3, 3][..], b"key", &[value.len() as u8], value].concat();
            let mut log = sound.clone();
            let frame = &mut log.frames[number];
            // As many as there were.
            frame.payload = change.repeat(3);
            frame.length = frame.payload.len() as u16;
            let forged = (format!("what expires is {value:?} in record {number}"), log);
            if value.len() < 8 { short.push(forged) } else { whole.push(forged) }
        };
        for length in 0..8 {
            forge(&vec![1; length]);
        }
        for expiry in odd(TIME.as_millis() as u64) {
            forge(&expiry.to_le_bytes());
        }
    }
    // Without any other expiry in the log.
    for expiry in [0, 1, u64::MAX - 1, u64::MAX] {
        let change = [&[3, 3][..], b"key", &[8], &u64::to_le_bytes(expiry)].concat();
        let mut log = sound.clone();
        for frame in &mut log.frames {
            frame.payload = change.repeat(3);
            frame.length = frame.payload.len() as u16;
        }
        whole.push((format!("all changes expire at {expiry}"), log));
    }
    sweep_all("changes without an expiry", &cases(short), |_, outcome| outcome == Outcome::Refused);
    sweep_all("expiries in logs forged", &cases(whole), |_, outcome| {
        // What has expired is as if the record was not there.
        matches!(outcome, Outcome::Believed | Outcome::Shorter)
    });
}

/// An end frame must name the next log, and no other.
#[test]
fn forged_ends_are_refused_unless_they_are_ends() {
    let sound = Log::of(Kind::Log);
    let mut forgeries = Vec::new();
    for number in 0..sound.frames.len() {
        for (what, payload) in [
            ("nothing", vec![]),
            ("too little", vec![0; 7]),
            ("too much", vec![0; 9]),
            ("much too much", vec![0; 400]),
        ] {
            let mut log = sound.clone();
            let frame = &mut log.frames[number];
            (frame.kind, frame.length, frame.payload) = (5, payload.len() as u16, payload);
            forgeries.push((format!("an end with {what} at frame {number}"), log));
        }
    }
    let bad = cases(forgeries);
    sweep_all("ends forged", &bad, |_, outcome| {
        matches!(outcome, Outcome::Refused | Outcome::Dropped)
    });
    let mut forgeries = Vec::new();
    for number in 0..sound.frames.len() {
        for next in [0, 1, sound.number, sound.number + 1, 1 << 61, u64::MAX] {
            let mut log = sound.clone();
            let frame = &mut log.frames[number];
            (frame.kind, frame.length, frame.payload) = (5, 8, next.to_le_bytes().to_vec());
            forgeries.push((format!("an end at frame {number} that names {next}"), log));
        }
    }
    sweep_all("ends that are ends", &cases(forgeries), |_, outcome| {
        matches!(outcome, Outcome::Refused | Outcome::Shorter)
    });
}

/// Every field of the header is checked, except reserved bytes.
#[test]
fn forged_headers_are_refused() {
    let sound = Log::of(Kind::Log);
    let mut forgeries = Vec::new();
    // The salt, too, is that of this log.
    for at in (0..36).chain(SALT_AT..SALT_AT + 8) {
        for bit in 0..8 {
            let mut log = sound.clone();
            log.header[at] ^= 1 << bit;
            forgeries.push((format!("bit {bit} of byte {at} of the header"), log));
        }
    }
    let tally = sweep_all("log headers forged", &cases(forgeries), |_, outcome| {
        matches!(outcome, Outcome::Refused | Outcome::Right)
    });
    assert_eq!(tally[&Outcome::Right], 6 * 8, "the reserved bits");
}

/// A record of 96 MiB without its last frame: all frames have right checksums.
#[test]
fn a_record_without_an_end_takes_no_memory() {
    const BLOCK: usize = 32 << 10;
    let (name, mut log) = (FIXTURE.only(Kind::Log), Log::of(Kind::Log));
    let sound = log.frames[0].clone();
    let frame = |kind: u8, begin: usize| {
        let payload = vec![0; BLOCK - begin % BLOCK - FRAME_HEADER];
        Frame { kind, length: payload.len() as u16, payload, ..sound.clone() }
    };
    log.frames = vec![frame(2, log.header.len())];
    log.frames.extend((0..3 << 10).map(|_| frame(3, 0)));
    let disk = FIXTURE.with(&name, log.encode());
    let most = allocation_counter::measure(|| {
        // The disk itself is one more copy while it is opened, and the file is shared.
        let vfs: Arc<dyn Vfs> = Arc::new(SimVfs::on(disk));
        assert!(options().vfs(Arc::clone(&vfs)).open_read_only(DIR).is_ok());
        assert!(verify_with(DIR, &vfs, |_, _| {}).unwrap().is_sound());
        let repaired = repair_with(DIR, "/new", Uncertain::SetAside, None, &vfs).unwrap();
        assert_eq!(repaired.losses.len(), 1, "the file ends within a record");
    });
    // 16 MiB of the record, in a vector that doubles.
    assert!(most.bytes_max < 50 << 20, "{} bytes", most.bytes_max);
}
