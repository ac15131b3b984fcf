//! The simulated disk keeps what POSIX guarantees, and may lose all else.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use criba::vfs::{FileKind, Keep, SimDisk, SimVfs, Unit, Unsynced, Vfs, VfsFile};

const KIND: FileKind = FileKind::Wal;
const DIR: &str = "/dir";

fn path(name: &str) -> std::path::PathBuf {
    Path::new(DIR).join(name)
}

/// A disk with a directory and a synced file `a` of 1,000 ones in it.
fn disk() -> SimVfs {
    disk_and_file().0
}

/// The same disk, and the file.
fn disk_and_file() -> (SimVfs, Arc<dyn VfsFile>) {
    let vfs = SimVfs::new();
    vfs.create_dir(DIR.as_ref()).unwrap();
    let file = vfs.create(&path("a"), KIND).unwrap();
    file.append(&[1; 1000]).unwrap();
    file.sync_data().unwrap();
    vfs.sync_dir(DIR.as_ref()).unwrap();
    (vfs, file)
}

fn names(disk: &SimDisk) -> Vec<&str> {
    disk.files().map(|(path, _)| path.file_name().unwrap().to_str().unwrap()).collect()
}

/// The disk after a power failure; `keeps` has the state of each unsynced change.
fn left(vfs: &SimVfs, unit: Unit, keeps: &[Keep]) -> SimDisk {
    let mut keeps = keeps.iter();
    let disk = vfs.disk().power_failure(unit, |_| *keeps.next().unwrap());
    assert_eq!(keeps.len(), 0, "so many things are not synced");
    disk
}

#[test]
fn synced_data_stays_and_is_not_in_the_list() {
    let vfs = disk();
    let disk = left(&vfs, Unit::Sector, &[]);
    assert_eq!(disk.read(path("a")), Some(&[1; 1000][..]));
    assert_eq!(vfs.disk().unsynced(Unit::Page), []);
}

#[test]
fn each_sector_of_an_unsynced_append_is_lost_or_kept_on_its_own() {
    let (vfs, file) = disk_and_file();
    file.append(&[2; 1000]).unwrap();
    let bytes = |offset, is_new| (offset, 2, is_new);
    let calls: Vec<_> = vfs
        .disk()
        .unsynced(Unit::Sector)
        .into_iter()
        .map(|unsynced| match unsynced {
            Unsynced::Length { lengths, .. } => {
                assert_eq!(lengths, [1000, 2000]);
                (0, 2, true)
            }
            Unsynced::Bytes { path: of, offset, states, is_new, .. } => {
                assert_eq!(of, path("a"));
                (offset, states, is_new)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(calls, [(0, 2, true), bytes(512, false), bytes(1024, true), bytes(1536, true)]);

    // The length, then three sectors: of the first one, 488 bytes were synced.
    let (old, new) = (Keep::OLD, Keep::NEW);
    let read =
        |keeps: [Keep; 4]| left(&vfs, Unit::Sector, &keeps).read(path("a")).unwrap().to_vec();
    let runs = |bytes: &[u8]| -> Vec<(u8, usize)> {
        bytes.chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).collect()
    };
    assert_eq!(runs(&read([old, old, old, old])), [(1, 1000)]);
    assert_eq!(runs(&read([old, new, new, new])), [(1, 1000)], "beyond the length");
    assert_eq!(runs(&read([new, new, new, new])), [(1, 1000), (2, 1000)]);
    assert_eq!(runs(&read([new, old, old, old])), [(1, 1000), (0, 1000)], "holes are zeros");
    assert_eq!(runs(&read([new, new, old, new])), [(1, 1000), (2, 24), (0, 512), (2, 464)]);
    let torn = Keep::Torn(1, 500);
    assert_eq!(runs(&read([new, torn, old, torn])), [(1, 1000), (2, 12), (0, 524), (2, 464)]);

    let page = left(&vfs, Unit::Page, &[new, new]);
    assert_eq!(runs(page.read(path("a")).unwrap()), [(1, 1000), (2, 1000)]);
    let page = left(&vfs, Unit::Page, &[new, old]);
    assert_eq!(runs(page.read(path("a")).unwrap()), [(1, 1000), (0, 1000)]);
}

#[test]
fn a_sector_written_often_may_be_in_any_state_that_it_had() {
    let (vfs, file) = disk_and_file();
    for value in 2..5 {
        file.write_at(&[value; 512], 0).unwrap();
    }
    for state in 0..4 {
        let disk = left(&vfs, Unit::Sector, &[Keep::State(state)]);
        assert_eq!(disk.read(path("a")).unwrap()[..512], [state as u8 + 1; 512]);
    }
    file.sync_all().unwrap();
    assert_eq!(left(&vfs, Unit::Sector, &[]).read(path("a")).unwrap()[0], 4);
}

#[test]
fn a_file_that_was_cut_may_have_its_old_length() {
    let (vfs, file) = disk_and_file();
    file.set_length(600).unwrap();
    let length = |keep| left(&vfs, Unit::Sector, &[keep, Keep::OLD]).read(path("a")).unwrap().len();
    assert_eq!((length(Keep::OLD), length(Keep::NEW)), (1000, 600));
}

#[test]
fn names_are_lost_until_their_directory_is_synced() {
    let vfs = disk();
    let file = vfs.create(&path("b"), KIND).unwrap();
    file.append(b"b").unwrap();
    file.sync_all().unwrap();
    assert_eq!(names(&left(&vfs, Unit::Sector, &[Keep::OLD])), ["a"], "synced, but without a name");
    assert_eq!(left(&vfs, Unit::Sector, &[Keep::NEW]).read(path("b")), Some(&b"b"[..]));

    vfs.sync_dir(DIR.as_ref()).unwrap();
    vfs.rename(&path("b"), &path("a"), KIND).unwrap();
    let both = |to, from| {
        let disk = left(&vfs, Unit::Sector, &[to, from]);
        let a = disk.read(path("a")).unwrap().len();
        (a, names(&disk).len())
    };
    assert_eq!(both(Keep::OLD, Keep::OLD), (1000, 2));
    assert_eq!(both(Keep::NEW, Keep::NEW), (1, 1));
    assert_eq!(both(Keep::NEW, Keep::OLD), (1, 2));
    assert_eq!(both(Keep::OLD, Keep::NEW), (1000, 1));

    vfs.sync_dir(DIR.as_ref()).unwrap();
    vfs.remove(&path("a"), KIND).unwrap();
    assert_eq!(names(&vfs.disk()), [""; 0]);
    assert_eq!(names(&left(&vfs, Unit::Sector, &[Keep::OLD])), ["a"], "back again");
    vfs.sync_dir(DIR.as_ref()).unwrap();
    assert_eq!(names(&left(&vfs, Unit::Sector, &[])), [""; 0]);
}

#[test]
fn a_renamed_or_removed_directory_is_back_until_its_parent_is_synced() {
    let (vfs, dir) = (disk(), FileKind::Directory);
    vfs.rename(DIR.as_ref(), "/other".as_ref(), dir).unwrap();
    let unsynced = vfs.disk().unsynced(Unit::Sector);
    assert!(matches!(&unsynced[..], [Unsynced::Name { path, .. }] if path == Path::new("/other")));
    for (keep, there, gone) in [(Keep::OLD, DIR, "/other"), (Keep::NEW, "/other", DIR)] {
        let disk = SimVfs::on(left(&vfs, Unit::Sector, &[keep]));
        assert_eq!(disk.list(there.as_ref()).unwrap(), ["a"]);
        assert_eq!(disk.list(gone.as_ref()).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(disk.disk().read(Path::new(there).join("a")).unwrap(), [1; 1000]);
    }
    vfs.sync_dir("/".as_ref()).unwrap();
    left(&vfs, Unit::Sector, &[]);
    vfs.create_dir(DIR.as_ref()).unwrap();
    let renamed = vfs.rename(DIR.as_ref(), "/other".as_ref(), dir);
    assert_eq!(renamed.unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
    assert!(vfs.remove("/other".as_ref(), dir).is_err(), "it is not empty");

    vfs.remove(DIR.as_ref(), dir).unwrap();
    assert!(vfs.list(DIR.as_ref()).is_err());
    for (keep, there) in [(Keep::OLD, true), (Keep::NEW, false)] {
        let disk = SimVfs::on(left(&vfs, Unit::Sector, &[keep]));
        assert_eq!(disk.list(DIR.as_ref()).is_ok(), there);
    }
    assert!(vfs.remove(DIR.as_ref(), dir).is_err(), "it is gone");
}

#[test]
fn a_hole_may_have_what_a_removed_file_held() {
    let vfs = disk();
    vfs.remove(&path("a"), KIND).unwrap();
    vfs.sync_dir(DIR.as_ref()).unwrap();
    let file = vfs.create(&path("b"), KIND).unwrap();
    file.append(&[2; 1500]).unwrap();
    vfs.sync_dir(DIR.as_ref()).unwrap();
    let keeps = [Keep::NEW, Keep::NEW, Keep::Stale, Keep::Stale];
    let disk = left(&vfs, Unit::Sector, &keeps);
    let bytes = disk.read(path("b")).unwrap();
    // The removed file had 1,000 ones.
    assert_eq!((bytes[511], bytes[512], bytes[999], bytes[1000]), (2, 1, 1, 0));
}

#[test]
fn a_disk_that_lies_keeps_nothing() {
    let vfs = SimVfs::new().lying();
    vfs.create_dir(DIR.as_ref()).unwrap();
    let file = vfs.create(&path("a"), KIND).unwrap();
    file.append(b"a").unwrap();
    file.sync_all().unwrap();
    vfs.sync_dir(DIR.as_ref()).unwrap();
    assert_eq!(vfs.disk().read(path("a")), Some(&b"a"[..]));
    assert_eq!(names(&vfs.disk().power_failure(Unit::Sector, |_| Keep::OLD)), [""; 0]);
}

#[test]
fn it_is_a_file_system() {
    let vfs = disk();
    let kind = |error: std::io::Error| error.kind();
    assert_eq!(vfs.create(&path("a"), KIND).map_err(kind).unwrap_err(), ErrorKind::AlreadyExists);
    assert_eq!(vfs.open(&path("b"), KIND).map_err(kind).unwrap_err(), ErrorKind::NotFound);
    let nowhere = Path::new("/nowhere/a");
    assert_eq!(vfs.create(nowhere, KIND).map_err(kind).unwrap_err(), ErrorKind::NotFound);
    assert_eq!(vfs.list(nowhere).map_err(kind).unwrap_err(), ErrorKind::NotFound);

    let file = vfs.open(&path("a"), KIND).unwrap();
    assert_eq!(file.append(b"b").map_err(kind).unwrap_err(), ErrorKind::PermissionDenied);
    let mut bytes = [0; 10];
    let beyond = file.read_exact_at(&mut bytes, 995).map_err(kind).unwrap_err();
    assert_eq!((beyond, bytes), (ErrorKind::UnexpectedEof, [0; 10]));
    assert!(file.read_exact_at(&mut bytes, u64::MAX).is_err());
    vfs.remove(&path("a"), KIND).unwrap();
    vfs.sync_dir(DIR.as_ref()).unwrap();
    file.read_exact_at(&mut bytes, 990).unwrap();
    assert_eq!(bytes, [1; 10], "an open file stays");

    let lock = vfs.lock(&path("lock")).unwrap();
    assert_eq!(vfs.lock(&path("lock")).map_err(kind).unwrap_err(), ErrorKind::WouldBlock);
    drop(lock);
    let _lock = vfs.lock(&path("lock")).unwrap();
    vfs.unlock();
    assert!(vfs.lock(&path("lock")).is_ok(), "its owner was killed");
    assert_eq!(vfs.list(DIR.as_ref()).unwrap(), ["lock"]);
    assert_eq!(vfs.list("/".as_ref()).unwrap(), ["dir"]);
}
