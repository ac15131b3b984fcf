//! The events: what each does to the directory of an open store, and what must hold after it.

use std::io;
use std::path::{Path, PathBuf};

use crate::common::{copy_dir, files_with, written_logs};
use crate::other::Other;

/// What happens to the directory of an open store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// The process changes to a directory where another store has the same relative path.
    Chdir,
    /// The directory is renamed.
    Rename,
    /// The directory is renamed. A second process writes to a store that is put in its place.
    RenameAndReplace,
    /// The directory is removed.
    Remove,
    /// The directory is removed. A second process makes a new store in its place, and writes.
    RemoveAndMake,
    /// The directory is removed. Another store is put in its place, and lies there.
    RemoveAndReplace,
    /// The directory is removed. A checkpoint is copied to its place, and a second process writes to it.
    Restore,
    /// `LOCK` is removed. A second process tries to open the store.
    RemoveLock,
    /// A new file replaces `LOCK`. A second process tries to open the store.
    ReplaceLock,
    /// The log in use is removed.
    RemoveLog,
    /// The log of another store replaces the log in use.
    ReplaceLog,
    /// The log in use is renamed, and a copy gets its name: it keeps a link.
    CopyLog,
}

impl Event {
    pub(crate) const ALL: [Self; 12] = [
        Self::Chdir,
        Self::Rename,
        Self::RenameAndReplace,
        Self::Remove,
        Self::RemoveAndMake,
        Self::RemoveAndReplace,
        Self::Restore,
        Self::RemoveLock,
        Self::ReplaceLock,
        Self::RemoveLog,
        Self::ReplaceLog,
        Self::CopyLog,
    ];

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|event| format!("{event:?}") == name)
    }

    /// Makes it happen. Returns the second process's answer, if it was asked to open the store.
    pub(crate) fn happens(self, world: &World, other: &mut Other) -> Option<String> {
        let store = world.store();
        match self {
            Self::Chdir => {
                std::env::set_current_dir(world.root.join("B")).unwrap();
                None
            }
            Self::Rename => {
                std::fs::rename(&store, world.moved()).unwrap();
                None
            }
            Self::RenameAndReplace => {
                std::fs::rename(&store, world.moved()).unwrap();
                copy_dir(&world.templates.checkpoint, &store);
                Some(other.open(&store, false))
            }
            Self::Remove => {
                remove(&store);
                None
            }
            Self::RemoveAndMake => {
                remove(&store);
                Some(other.open(&store, true))
            }
            Self::RemoveAndReplace => {
                remove(&store);
                copy_dir(&world.templates.foreign, &store);
                None
            }
            Self::Restore => {
                remove(&store);
                copy_dir(&world.templates.checkpoint, &store);
                Some(other.open(&store, false))
            }
            Self::RemoveLock => {
                // There is none before it is made.
                let _ = std::fs::remove_file(store.join("LOCK"));
                Some(other.open(&store, false))
            }
            Self::ReplaceLock => {
                let new = world.root.join("out").join("new");
                std::fs::write(&new, "").unwrap();
                std::fs::rename(new, store.join("LOCK")).unwrap();
                Some(other.open(&store, false))
            }
            Self::RemoveLog => {
                change_logs(&store, |log| std::fs::remove_file(log));
                None
            }
            Self::ReplaceLog => {
                let new = world.root.join("out").join("new");
                let foreign = files_with(&world.templates.foreign, "log").pop().unwrap();
                change_logs(&store, |log| {
                    std::fs::copy(&foreign, &new)?;
                    std::fs::rename(&new, log)
                });
                None
            }
            Self::CopyLog => {
                let old = world.root.join("out").join("old");
                change_logs(&store, |log| {
                    std::fs::rename(log, &old)?;
                    std::fs::copy(&old, log).map(drop)
                });
                None
            }
        }
    }

    /// Whether the writer goes on without an error.
    pub(crate) fn is_harmless(self) -> bool {
        matches!(self, Self::Chdir | Self::Rename | Self::RenameAndReplace)
    }

    /// Whether the writer's directory is gone.
    pub(crate) fn removes(self) -> bool {
        matches!(self, Self::Remove | Self::RemoveAndMake | Self::RemoveAndReplace | Self::Restore)
    }

    pub(crate) fn is_about_the_lock(self) -> bool {
        matches!(self, Self::RemoveLock | Self::ReplaceLock)
    }

    pub(crate) fn is_about_the_log(self) -> bool {
        matches!(self, Self::RemoveLog | Self::ReplaceLog | Self::CopyLog)
    }

    /// Where the writer's store is afterwards.
    pub(crate) fn home(self, world: &World) -> Option<PathBuf> {
        match self {
            Self::Rename | Self::RenameAndReplace => Some(world.moved()),
            _ => (!self.removes()).then(|| world.store()),
        }
    }

    /// The store that the second process writes to, if it is another one than the writer's.
    pub(crate) fn newcomer(self, world: &World) -> Option<PathBuf> {
        let is_written =
            matches!(self, Self::RenameAndReplace | Self::RemoveAndMake | Self::Restore);
        is_written.then(|| world.store())
    }
}

/// Stores that are made once, and copied for each run.
#[derive(Debug, Clone)]
pub(crate) struct Templates {
    pub(crate) base: PathBuf,
    pub(crate) checkpoint: PathBuf,
    pub(crate) foreign: PathBuf,
}

/// The directories of one run: `A/store` is the writer's, `B/store` another store, `out` is for checkpoints.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) root: PathBuf,
    pub(crate) templates: Templates,
}

impl World {
    pub(crate) fn new(root: &Path, templates: &Templates) -> Self {
        let world = Self { root: root.to_owned(), templates: templates.clone() };
        std::fs::create_dir_all(root.join("out")).unwrap();
        copy_dir(&templates.base, &world.store());
        copy_dir(&templates.foreign, &root.join("B").join("store"));
        world
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.root.join("A").join("store")
    }

    pub(crate) fn moved(&self) -> PathBuf {
        self.root.join("A").join("moved")
    }

    pub(crate) fn copy(&self) -> PathBuf {
        self.root.join("out").join("copy")
    }
}

/// `rm -r`, again while another thread makes files.
fn remove(dir: &Path) {
    while let Err(error) = std::fs::remove_dir_all(dir) {
        if error.kind() == io::ErrorKind::NotFound && !dir.exists() {
            return;
        }
    }
}

/// Changes the log in use and, if there is one, the log of the next memtable. Which log is in use shows only when it
/// has a record.
fn change_logs(dir: &Path, change: impl Fn(&Path) -> io::Result<()>) {
    loop {
        let last = written_logs(dir).pop();
        let mut logs = files_with(dir, "log");
        logs.retain(|log| last.as_ref().is_none_or(|last| log >= last));
        // Another thread may remove one meanwhile.
        if logs.iter().all(|log| change(log).is_ok()) {
            return;
        }
    }
}
