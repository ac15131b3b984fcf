//! The bytes of standalone filters: every damaged byte is refused, and a forged header with a right
//! checksum does no harm.

use std::panic::{AssertUnwindSafe, catch_unwind};

use criba_filter::{
    Bloom, Error, FilterKind, FilterSize, HashFunction, Hashing, ScalableBloom, ShardedBloom,
    StaticFilter,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const KEYS: u32 = 40;

/// Reads a filter's bytes, calls all its methods, and returns its size.
type Read = fn(&[u8]) -> Result<usize, Error>;

/// A form of filter: its bytes, and their reader.
struct Form {
    name: String,
    bytes: Vec<u8>,
    read: Read,
}

fn read_bloom(bytes: &[u8]) -> Result<usize, Error> {
    let mut filter = Bloom::from_bytes(bytes)?;
    let memory = filter.bytes();
    let copy = filter.clone();
    filter.union(&copy)?;
    let numbers = (filter.current_rate(), filter.estimated_len(), filter.intersection_len(&copy)?);
    let _ = (numbers, filter.fullness(), filter.occupancy(), filter.contains("absent"));
    filter.insert("a key");
    assert!(filter.contains("a key") && Bloom::from_bytes(&filter.to_bytes()).is_ok());
    Ok(memory)
}

fn read_static(bytes: &[u8]) -> Result<usize, Error> {
    let filter = StaticFilter::from_bytes(bytes)?;
    for i in 0..1000_u32 {
        let _ = filter.contains(i.to_le_bytes());
    }
    let _ = (filter.predicted_rate(), filter.keys());
    assert_eq!(filter.to_bytes(), bytes);
    Ok(filter.bytes())
}

fn read_scalable(bytes: &[u8]) -> Result<usize, Error> {
    let mut filter = ScalableBloom::from_bytes(bytes)?;
    let memory = filter.bytes();
    let numbers = (filter.current_rate(), filter.estimated_len(), filter.fullness());
    let _ = (numbers, filter.occupancy());
    filter.insert("a key"); // which may make it grow
    assert!(filter.contains("a key"));
    assert!(filter.bytes() <= 1000 * bytes.len(), "grown from {memory} to {}", filter.bytes());
    Ok(memory)
}

fn read_sharded(bytes: &[u8]) -> Result<usize, Error> {
    let filter = ShardedBloom::from_bytes(bytes)?;
    let numbers = (filter.current_rate(), filter.estimated_len(), filter.fullness());
    let _ = (numbers, filter.occupancy());
    filter.insert("a key");
    assert!(filter.contains("a key"));
    Ok(filter.bytes())
}

fn forms() -> Vec<Form> {
    let keys = || (0..KEYS).map(u32::to_le_bytes);
    let mut bloom = Bloom::with_rate(KEYS.into(), 0.02).unwrap();
    bloom.extend(keys());
    let mut murmur = Bloom::with_geometry(300, 5).unwrap();
    murmur = murmur.with_hashing(Hashing::murmurhash2()).unwrap();
    murmur.extend(keys());
    let mut scalable = ScalableBloom::with_rate(10, 0.02).unwrap();
    scalable.extend(keys());
    let sharded = ShardedBloom::with_rate(3, KEYS.into(), 0.02).unwrap();
    for key in keys() {
        sharded.insert(key);
    }
    let form = |name: &str, bytes, read| Form { name: name.to_owned(), bytes, read };
    let mut forms = vec![
        form("Bloom", bloom.to_bytes(), read_bloom),
        form("Bloom over MurmurHash2", murmur.to_bytes(), read_bloom),
        form("scalable", scalable.to_bytes(), read_scalable),
        form("sharded", sharded.to_bytes(), read_sharded),
    ];
    for kind in [FilterKind::Bloom, FilterKind::Blocked, FilterKind::Ribbon] {
        let hashing = Hashing::random().unwrap();
        let filter = StaticFilter::build(kind, FilterSize::BitsPerKey(9.0), hashing, keys());
        forms.push(form(&format!("static {kind}"), filter.unwrap().to_bytes(), read_static));
    }
    forms
}

fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..12]);
    hasher.update(&bytes[16..]);
    bytes[12..16].copy_from_slice(&hasher.finalize().to_le_bytes());
    bytes
}

#[test]
fn every_flipped_bit_and_every_length_is_refused() {
    let (mut flips, mut lengths) = (0, 0);
    for Form { name, bytes, read } in forms() {
        read(&bytes).unwrap();
        let mut damaged = bytes.clone();
        for bit in 0..8 * bytes.len() {
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&damaged).is_err(), "{name}: bit {bit} flipped");
            damaged[bit / 8] ^= 1 << (bit % 8);
            flips += 1;
        }
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length]).is_err(), "{name}: cut to {length}");
            if length >= 16 {
                let forged = with_checksum(bytes[..length].to_vec());
                assert!(read(&forged).is_err(), "{name}: cut to {length}, checksum put right");
            }
            lengths += 1;
        }
        for more in [1, 8, 64, 1000] {
            let mut longer = bytes.clone();
            longer.resize(bytes.len() + more, 0);
            assert!(read(&longer).is_err());
            assert!(read(&with_checksum(longer)).is_err(), "{name}: {more} bytes more");
        }
    }
    println!("{flips} bits flipped, cut to {lengths} lengths: all refused");
}

/// Each field of header and rows with wrong values and a right checksum.
#[test]
fn forged_fields_are_refused_or_harmless() {
    let numbers =
        [0, 1, 2, 63, 64, 65, 512, 1 << 20, 1 << 31, 1 << 43, 1 << 62, u64::MAX - 63, u64::MAX];
    let floats =
        [0.0, 1e-300, 1e-15, 0.5, 1.0, 1.5, -1.0, f64::NAN, f64::INFINITY].map(f64::to_bits);
    let (mut refused, mut harmless) = (0, 0);
    for Form { name, bytes, read } in forms() {
        let mut forge = |offset: usize, field: &[u8]| {
            let mut forged = bytes.clone();
            forged[offset..offset + field.len()].copy_from_slice(field);
            if forged == bytes {
                return None;
            }
            let forged = with_checksum(forged);
            let outcome = catch_unwind(AssertUnwindSafe(|| read(&forged)));
            match outcome.unwrap_or_else(|_| panic!("{name}: {field:?} at {offset}")) {
                Ok(memory) => {
                    assert!(memory <= forged.len());
                    harmless += 1;
                    Some(true)
                }
                Err(_) => {
                    refused += 1;
                    Some(false)
                }
            }
        };
        let rows = 64..bytes.len().min(64 + 32 * 4);
        for offset in (0..64).step_by(4).chain(rows.step_by(4)) {
            for number in numbers {
                forge(offset, &(number as u32).to_le_bytes());
                forge(offset & !7, &number.to_le_bytes());
            }
            for float in floats {
                forge(offset & !7, &float.to_le_bytes());
            }
        }
        // What must not pass, field by field: the form's bytes say nothing else then.
        for (what, offset, field) in [
            ("magic", 0, &b"cribaFSB"[..]),
            ("version 2", 8, &[2, 0]),
            ("form 0", 10, &[0]),
            ("form 5", 10, &[5]),
            ("hash 1", 11, &[1]),
            ("rate", 40, &2.0_f64.to_le_bytes()),
            ("no parts", 48, &[0; 4]),
            ("more parts", 48, &[9, 0, 0, 0]),
            ("most parts", 48, &[0xff; 4]),
            ("reserved", 52, &[1]),
            ("m 0", 64, &[0; 8]),
            ("m enormous", 64, &[0xff; 8]),
            ("wide enormous", 72, &[0xff; 8]),
            ("k 0", 88, &[0; 4]),
            ("k enormous", 88, &[0xff; 4]),
            ("kind 0", 92, &[0]),
            ("kind 3", 92, &[FilterKind::OLD_RIBBON]),
            ("kind 5", 92, &[5]),
            ("reserved in a row", 95, &[1]),
        ] {
            assert_eq!(forge(offset, field), Some(false), "{name}: {what}");
        }
    }
    println!("{refused} forgeries refused, {harmless} harmless");
    assert!(harmless > 0, "another capacity or hash key is as good as the one before");
}

#[test]
fn bytes_at_random_are_refused_or_harmless() {
    let mut random = ChaCha8Rng::seed_from_u64(0xA10E);
    let (mut refused, mut harmless) = (0, 0);
    for Form { name, bytes, read } in forms() {
        for round in 0..3000 {
            let mut forged = bytes.clone();
            for _ in 0..random.random_range(1..4) {
                let at = random.random_range(8..bytes.len().min(224));
                forged[at] =
                    if random.random() { random.random() } else { 1 << random.random_range(0..8) };
            }
            if random.random_range(0..4) == 0 {
                forged.truncate(random.random_range(16..=bytes.len()));
            }
            let forged = with_checksum(forged);
            let outcome = catch_unwind(AssertUnwindSafe(|| read(&forged)));
            match outcome.unwrap_or_else(|_| panic!("{name}, round {round}: {forged:?}")) {
                Ok(memory) => {
                    assert!(memory <= forged.len());
                    harmless += 1;
                }
                Err(_) => refused += 1,
            }
        }
    }
    println!("{refused} refused, {harmless} harmless");
}

#[test]
fn a_filter_of_one_form_is_none_of_another() {
    let readers: [(Read, &str); 4] = [
        (read_bloom, "a Bloom filter"),
        (read_static, "a static filter"),
        (read_scalable, "a scalable Bloom filter"),
        (read_sharded, "a sharded Bloom filter"),
    ];
    for Form { name, bytes, read } in forms() {
        let is_refused = |(by, form): &(Read, &str)| match by(&bytes) {
            Ok(_) => false,
            Err(Error::Corrupt { offset: 10, expected, .. }) => expected == *form,
            Err(other) => panic!("{name}: {other}"),
        };
        assert_eq!(readers.iter().filter(|reader| is_refused(reader)).count(), 3, "{name}");
        assert!(read(&bytes).is_ok());
    }
}

/// Bytes with the header of another form are of that form only if their parts fit it.
#[test]
fn a_form_is_made_of_its_own_parts() {
    for Form { name, bytes, .. } in forms() {
        let is_taken = |form: u8, read: Read| {
            let mut forged = bytes.clone();
            forged[10] = form;
            let taken = read(&with_checksum(forged.clone())).is_ok();
            forged.truncate(64);
            forged[48..52].fill(0);
            assert!(read(&with_checksum(forged)).is_err(), "{name} as form {form}, without parts");
            taken
        };
        let taken = [
            is_taken(1, read_bloom),
            is_taken(2, read_static),
            is_taken(3, read_scalable),
            is_taken(4, read_sharded),
        ];
        let expected = match name.as_str() {
            "Bloom" | "Bloom over MurmurHash2" | "static bloom" => [true; 4],
            "static blocked" | "static ribbon" => [false, true, false, false],
            "scalable" => [false, false, true, false], // the layers are of several shapes
            _ => [false, false, true, true],
        };
        assert_eq!(taken, expected, "{name}");
    }
}

/// An error of a part has the offset of its row; one of bits behind the last, the offset of that word.
#[test]
fn errors_name_the_offset() {
    let bytes = ShardedBloom::with_rate(3, 100, 0.02).unwrap().to_bytes();
    let error_offset = |at: usize, field: &[u8]| {
        let mut forged = bytes.clone();
        forged[at..at + field.len()].copy_from_slice(field);
        match ShardedBloom::from_bytes(&with_checksum(forged)) {
            Err(Error::Corrupt { offset, .. }) => offset as usize,
            other => panic!("{other:?}"),
        }
    };
    let array = (bytes.len() - 192) / 3;
    for (row, end) in [64, 96, 128].into_iter().zip((192..).step_by(array).skip(1)) {
        assert_eq!(error_offset(row + 24, &[0; 4]), row, "no probes");
        assert_eq!(error_offset(end - 1, &[0xff]), end - 8, "bits beyond the last");
    }
}

/// The bytes are those of the format on every machine: a few of them, written out.
#[test]
fn the_bytes_are_those_of_the_format() {
    let filter = Bloom::with_geometry(70, 3).unwrap().with_hashing(Hashing::murmurhash2()).unwrap();
    let bytes = filter.to_bytes();
    assert_eq!(bytes.len(), 128 + 16);
    assert_eq!(&bytes[..12], b"cribaFSA\x01\x00\x01\x02");
    assert_eq!(&bytes[16..40], &[&[0; 16][..], &16_u64.to_le_bytes()].concat());
    assert_eq!(&bytes[48..64], &[&1_u32.to_le_bytes()[..], &[0; 12]].concat());
    assert_eq!(&bytes[64..88], &[&70_u64.to_le_bytes()[..], &[0; 16]].concat());
    assert_eq!(&bytes[88..96], &[3, 0, 0, 0, 1, 0, 0, 0]);
    assert!(bytes[96..].iter().all(|&byte| byte == 0));
    assert_eq!(filter.hashing().hash(), HashFunction::MurmurHash2);
    let with_bit = |bit: usize| {
        let mut bytes = bytes.clone();
        bytes[128 + bit / 8] |= 1 << (bit % 8);
        Bloom::from_bytes(&with_checksum(bytes))
    };
    assert_eq!(with_bit(69).unwrap().bits_set(), 1);
    assert!(with_bit(70).is_err() && with_bit(127).is_err(), "there is no bit 70");
    match Bloom::from_bytes(&[&bytes[..8], &[2, 0], &bytes[10..]].concat()) {
        Err(Error::Unsupported { found, .. }) => assert_eq!(found, "version 2"),
        other => panic!("{other:?}"),
    }
}
