//! Forged contents of `CURRENT`, with a right checksum.

use crate::case::{Case, Outcome};
use crate::fixture::{FIXTURE, Kind, path};
use crate::sweep::sweep_all;

/// The checksum at the end.
pub(crate) fn sum(body: &[u8]) -> String {
    format!("{:08x}\n", crc32fast::hash(body))
}

fn current(header: &str, name: &str) -> String {
    let body = format!("{header}\n{name}\n");
    let sum = sum(body.as_bytes());
    body + &sum
}

#[test]
fn a_current_that_names_anything_but_the_manifest_is_refused() {
    let right = FIXTURE.only(Kind::Manifest);
    assert_eq!(current("criba 2", &right).as_bytes(), FIXTURE.file("CURRENT"));
    let mut names: Vec<String> = [
        "",
        " ",
        "CURRENT",
        "LOCK",
        "CURRENT.tmp",
        "MANIFEST",
        "MANIFEST-",
        "MANIFEST-1",
        "MANIFEST-000001",
        "MANIFEST-0000018",
        "MANIFEST-+00018",
        "MANIFEST-000017",
        "MANIFEST-2305843009213693953",
        "MANIFEST-4611686018427387904",
        "MANIFEST-18446744073709551615",
        "MANIFEST-18446744073709551616",
        "../store/MANIFEST-000018",
        "/store/MANIFEST-000018",
        "/etc/passwd",
        "..",
        ".",
        "manifest-000018",
        "MANIFEST-000018\r",
        "MANIFEST-000018 ",
        "MANIFEST-000018\0",
        "é",
        "000007.sst",
        "000019.log",
    ]
    .map(String::from)
    .into();
    names.retain(|name| *name != right);
    names.push("M".repeat(190));
    names.push("M".repeat(1 << 20));
    let mut cases: Vec<Case> = names
        .iter()
        .map(|name| (name, current("criba 2", name)))
        .map(|(name, text)| {
            Case::new(format!("CURRENT names {name:.40}"), "CURRENT", FIXTURE.with("CURRENT", text))
        })
        .collect();
    for header in [
        "",
        "criba",
        "criba 0",
        "criba 1",
        "criba 3",
        "criba 2 ",
        "Criba 2",
        "criba 18446744073709551616",
    ] {
        let disk = FIXTURE.with("CURRENT", current(header, &right));
        cases.push(Case::new(format!("CURRENT begins {header}"), "CURRENT", disk));
    }
    let sound = current("criba 2", &right);
    for text in [
        sound.replace('\n', "\r\n"),
        sound.trim_end().to_owned(),
        format!("{sound}\n"),
        format!("\n{sound}"),
        sound.to_uppercase(),
        format!("{sound}{sound}"),
        "theirs\n".into(),
    ] {
        cases.push(Case::new(
            format!("CURRENT is {text:?}"),
            "CURRENT",
            FIXTURE.with("CURRENT", text),
        ));
    }
    for bytes in [vec![0xff; 33], vec![0; 33], vec![b'\n'; 4]] {
        let what = format!("CURRENT is {bytes:?}");
        cases.push(Case::new(what, "CURRENT", FIXTURE.with("CURRENT", bytes)));
    }
    sweep_all("CURRENT forged", &cases, |_, outcome| outcome == Outcome::Refused);
}

/// A sound manifest under the number in the forged `CURRENT`.
#[test]
fn a_current_that_names_a_copy_of_the_manifest_is_refused() {
    let right = FIXTURE.only(Kind::Manifest);
    for name in ["MANIFEST-000001", "MANIFEST-000099"] {
        let mut disk = FIXTURE.with("CURRENT", current("criba 2", name));
        disk.write(path(name), FIXTURE.file(&right));
        let case = Case::new(format!("CURRENT names a copy, {name}"), name, disk);
        sweep_all("CURRENT names a copy", &[case], |_, outcome| outcome == Outcome::Refused);
    }
}
