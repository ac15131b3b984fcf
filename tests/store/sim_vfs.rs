//! The simulated disk keeps what POSIX guarantees, and may lose all else.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use criba::vfs::{FileKind, Keep, SimDisk, SimVfs, Unit, Unsynced, Vfs, VfsDir, VfsFile};

const KIND: FileKind = FileKind::Wal;
const DIR: &str = "/dir";
const NAME: &str = "dir";

fn root(vfs: &SimVfs) -> Arc<dyn VfsDir> {
    vfs.open_dir("/".as_ref()).unwrap()
}

fn dir(vfs: &SimVfs) -> Arc<dyn VfsDir> {
    vfs.open_dir(DIR.as_ref()).unwrap()
}

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
    root(&vfs).create_dir(NAME.as_ref(), 0o700).unwrap();
    root(&vfs).sync().unwrap();
    let file = dir(&vfs).create("a".as_ref(), KIND, 0o600).unwrap();
    file.append(&[1; 1000]).unwrap();
    file.sync_data().unwrap();
    dir(&vfs).sync().unwrap();
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
    let file = dir(&vfs).create("b".as_ref(), KIND, 0o600).unwrap();
    file.append(b"b").unwrap();
    file.sync_all().unwrap();
    assert_eq!(names(&left(&vfs, Unit::Sector, &[Keep::OLD])), ["a"], "synced, but without a name");
    assert_eq!(left(&vfs, Unit::Sector, &[Keep::NEW]).read(path("b")), Some(&b"b"[..]));

    dir(&vfs).sync().unwrap();
    dir(&vfs).rename("b".as_ref(), "a".as_ref(), KIND).unwrap();
    let both = |to, from| {
        let disk = left(&vfs, Unit::Sector, &[to, from]);
        let a = disk.read(path("a")).unwrap().len();
        (a, names(&disk).len())
    };
    assert_eq!(both(Keep::OLD, Keep::OLD), (1000, 2));
    assert_eq!(both(Keep::NEW, Keep::NEW), (1, 1));
    assert_eq!(both(Keep::NEW, Keep::OLD), (1, 2));
    assert_eq!(both(Keep::OLD, Keep::NEW), (1000, 1));

    dir(&vfs).sync().unwrap();
    dir(&vfs).remove("a".as_ref(), KIND).unwrap();
    assert_eq!(names(&vfs.disk()), [""; 0]);
    assert_eq!(names(&left(&vfs, Unit::Sector, &[Keep::OLD])), ["a"], "back again");
    dir(&vfs).sync().unwrap();
    assert_eq!(names(&left(&vfs, Unit::Sector, &[])), [""; 0]);
}

#[test]
fn a_renamed_or_removed_directory_is_back_until_its_parent_is_synced() {
    let (vfs, kind) = (disk(), FileKind::Directory);
    let list = |vfs: &SimVfs, path: &str| vfs.open_dir(path.as_ref()).and_then(|dir| dir.list());
    root(&vfs).rename(NAME.as_ref(), "other".as_ref(), kind).unwrap();
    let unsynced = vfs.disk().unsynced(Unit::Sector);
    assert!(matches!(&unsynced[..], [Unsynced::Name { path, .. }] if path == Path::new("/other")));
    for (keep, there, gone) in [(Keep::OLD, DIR, "/other"), (Keep::NEW, "/other", DIR)] {
        let disk = SimVfs::on(left(&vfs, Unit::Sector, &[keep]));
        assert_eq!(list(&disk, there).unwrap(), ["a"]);
        assert_eq!(list(&disk, gone).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(disk.disk().read(Path::new(there).join("a")).unwrap(), [1; 1000]);
    }
    root(&vfs).sync().unwrap();
    left(&vfs, Unit::Sector, &[]);
    root(&vfs).create_dir(NAME.as_ref(), 0o700).unwrap();
    root(&vfs).sync().unwrap();
    let renamed = root(&vfs).rename(NAME.as_ref(), "other".as_ref(), kind);
    assert_eq!(renamed.unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
    assert!(root(&vfs).remove("other".as_ref(), kind).is_err(), "it is not empty");

    root(&vfs).remove(NAME.as_ref(), kind).unwrap();
    assert!(list(&vfs, DIR).is_err());
    for (keep, there) in [(Keep::OLD, true), (Keep::NEW, false)] {
        let disk = SimVfs::on(left(&vfs, Unit::Sector, &[keep]));
        assert_eq!(list(&disk, DIR).is_ok(), there);
    }
    assert!(root(&vfs).remove(NAME.as_ref(), kind).is_err(), "it is gone");

    // Nothing of it shows in a later directory of its name.
    let vfs = disk();
    dir(&vfs).remove("a".as_ref(), KIND).unwrap();
    root(&vfs).remove(NAME.as_ref(), kind).unwrap();
    root(&vfs).create_dir("other".as_ref(), 0o700).unwrap();
    vfs.open_dir("/other".as_ref()).unwrap().create("a".as_ref(), KIND, 0o600).unwrap();
    root(&vfs).rename("other".as_ref(), NAME.as_ref(), kind).unwrap();
    assert_eq!(list(&vfs, DIR).unwrap(), ["a"]);
}

#[test]
fn a_created_directory_is_lost_with_all_in_it_until_its_parent_is_synced() {
    let vfs = SimVfs::new();
    root(&vfs).create_dir(NAME.as_ref(), 0o700).unwrap();
    let file = dir(&vfs).create("a".as_ref(), KIND, 0o600).unwrap();
    file.append(b"a").unwrap();
    file.sync_all().unwrap();
    dir(&vfs).sync().unwrap();
    for (keep, files) in [(Keep::OLD, 0), (Keep::NEW, 1)] {
        let disk = left(&vfs, Unit::Sector, &[keep]);
        assert_eq!(disk.files().count(), files);
        assert_eq!(SimVfs::on(disk).open_dir(DIR.as_ref()).is_ok(), files == 1);
    }
    root(&vfs).sync().unwrap();
    assert_eq!(left(&vfs, Unit::Sector, &[]).files().count(), 1);
}

#[test]
fn an_open_directory_goes_with_its_new_name_and_stays_without_one() {
    let vfs = disk();
    let (first, file) = (dir(&vfs), dir(&vfs).open("a".as_ref(), KIND).unwrap());
    vfs.edit(|disk| {
        disk.rename(DIR, "/moved");
        disk.copy_dir("/moved", DIR);
    });
    assert!(!first.identity().unwrap().is_same(&dir(&vfs).identity().unwrap()));
    first.create("b".as_ref(), KIND, 0o600).unwrap();
    assert!(vfs.disk().read("/moved/b").is_some() && vfs.disk().read("/dir/b").is_none());
    assert_eq!(vfs.disk().read(path("a")), Some(&[1; 1000][..]));

    vfs.edit(|disk| disk.remove("/moved"));
    assert_eq!((first.identity().unwrap().links, file.identity().unwrap().links), (0, 0));
    let create = first.create("c".as_ref(), KIND, 0o600);
    assert_eq!(create.unwrap_err().kind(), ErrorKind::NotFound);
    let mut bytes = [0; 10];
    file.read_exact_at(&mut bytes, 990).unwrap();
    assert_eq!(bytes, [1; 10], "an open file stays");
}

#[test]
fn a_hole_may_have_what_a_removed_file_held() {
    let vfs = disk();
    dir(&vfs).remove("a".as_ref(), KIND).unwrap();
    dir(&vfs).sync().unwrap();
    let file = dir(&vfs).create("b".as_ref(), KIND, 0o600).unwrap();
    file.append(&[2; 1500]).unwrap();
    dir(&vfs).sync().unwrap();
    let keeps = [Keep::NEW, Keep::NEW, Keep::Stale, Keep::Stale];
    let disk = left(&vfs, Unit::Sector, &keeps);
    let bytes = disk.read(path("b")).unwrap();
    // The removed file had 1,000 ones.
    assert_eq!((bytes[511], bytes[512], bytes[999], bytes[1000]), (2, 1, 1, 0));
}

#[test]
fn a_disk_that_lies_keeps_nothing() {
    let vfs = SimVfs::new().lying();
    root(&vfs).create_dir(NAME.as_ref(), 0o700).unwrap();
    root(&vfs).sync().unwrap();
    let file = dir(&vfs).create("a".as_ref(), KIND, 0o600).unwrap();
    file.append(b"a").unwrap();
    file.sync_all().unwrap();
    dir(&vfs).sync().unwrap();
    assert_eq!(vfs.disk().read(path("a")), Some(&b"a"[..]));
    assert_eq!(names(&vfs.disk().power_failure(Unit::Sector, |_| Keep::OLD)), [""; 0]);
}

/// A sync makes durable what was there when it began; so does one that began earlier and ends later.
#[test]
fn what_is_changed_during_a_sync_waits_for_the_next() {
    let (vfs, file) = disk_and_file();
    file.append(&[2; 24]).unwrap();
    let (during, other) = (Arc::clone(&file), vfs.clone());
    let nested = AtomicBool::new(false);
    let vfs = vfs.during_sync(move |kind| match kind {
        KIND if nested.swap(true, Ordering::Relaxed) => during.append(&[4; 512]).unwrap(),
        KIND => {
            during.append(&[3; 512]).unwrap();
            during.sync_data().unwrap();
        }
        _ => {
            dir(&other).create("b".as_ref(), KIND, 0o600).unwrap();
            root(&other).create_dir("late".as_ref(), 0o700).unwrap();
        }
    });
    // The outer sync began before the threes, the nested one before the fours.
    file.sync_data().unwrap();
    let old = |vfs: &SimVfs| vfs.disk().power_failure(Unit::Sector, |_| Keep::OLD);
    let kept = [vec![1; 1000], vec![2; 24], vec![3; 512]].concat();
    assert_eq!(old(&vfs).read(path("a")), Some(&kept[..]));
    assert_eq!(vfs.disk().read(path("a")).map(<[u8]>::len), Some(2048));

    dir(&vfs).create("early".as_ref(), KIND, 0o600).unwrap();
    dir(&vfs).sync().unwrap();
    assert_eq!(names(&old(&vfs)), ["a", "early"]);
    let without = vfs.during_sync(|_| ());
    dir(&without).sync().unwrap();
    root(&without).sync().unwrap();
    assert_eq!(names(&old(&without)), ["a", "b", "early"]);
    assert!(SimVfs::on(old(&without)).open_dir("/late".as_ref()).is_ok());
}

#[test]
fn it_is_a_file_system() {
    let vfs = disk();
    let kind = |error: std::io::Error| error.kind();
    assert_eq!(
        dir(&vfs).create("a".as_ref(), KIND, 0o600).map_err(kind).unwrap_err(),
        ErrorKind::AlreadyExists
    );
    assert_eq!(dir(&vfs).open("b".as_ref(), KIND).map_err(kind).unwrap_err(), ErrorKind::NotFound);
    let nowhere = vfs.open_dir(Path::new("/nowhere"));
    assert_eq!(nowhere.map_err(kind).unwrap_err(), ErrorKind::NotFound);
    let a_file = vfs.open_dir(&path("a"));
    assert_eq!(a_file.map_err(kind).unwrap_err(), ErrorKind::NotADirectory);

    let file = dir(&vfs).open("a".as_ref(), KIND).unwrap();
    assert_eq!(file.append(b"b").map_err(kind).unwrap_err(), ErrorKind::PermissionDenied);
    let mut bytes = [0; 10];
    let beyond = file.read_exact_at(&mut bytes, 995).map_err(kind).unwrap_err();
    assert_eq!((beyond, bytes), (ErrorKind::UnexpectedEof, [0; 10]));
    assert!(file.read_exact_at(&mut bytes, u64::MAX).is_err());
    dir(&vfs).remove("a".as_ref(), KIND).unwrap();
    dir(&vfs).sync().unwrap();
    file.read_exact_at(&mut bytes, 990).unwrap();
    assert_eq!(bytes, [1; 10], "an open file stays");

    let lock = dir(&vfs).lock("lock".as_ref(), 0o600).unwrap();
    assert_eq!(
        dir(&vfs).lock("lock".as_ref(), 0o600).map_err(kind).unwrap_err(),
        ErrorKind::WouldBlock
    );
    drop(lock);
    let _lock = dir(&vfs).lock("lock".as_ref(), 0o600).unwrap();
    vfs.unlock();
    assert!(dir(&vfs).lock("lock".as_ref(), 0o600).is_ok(), "its owner was killed");
    assert_eq!(dir(&vfs).list().unwrap(), ["lock"]);
    assert_eq!(root(&vfs).list().unwrap(), ["dir"]);
}
