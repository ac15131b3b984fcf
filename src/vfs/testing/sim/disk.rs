//! The content of a simulated disk: directories, names, files.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use super::file::File;
use super::power::{Keep, Unit, Unsynced};
use crate::sync::Arc;
use crate::vfs::FileKind;

/// The content of a [`SimVfs`](super::SimVfs) at one moment: the files as programs see them, and what is not
/// synced. A clone shares the bytes.
#[derive(Debug, Clone, Default)]
pub struct SimDisk {
    /// Directories by path, without the root. Directories and files are numbered together.
    pub(super) directories: BTreeMap<PathBuf, usize>,
    /// The file of each name at the last sync of its directory, and after each change since.
    pub(super) names: BTreeMap<PathBuf, Vec<NameState>>,
    /// Directories that were created, renamed or removed since the last sync of their parent, oldest first.
    moved: Vec<Moved>,
    pub(super) files: BTreeMap<usize, File>,
    created: usize,
    /// The bytes of the last removed file of each kind: its sectors may be reused.
    removed: BTreeMap<FileKind, Arc<Vec<u8>>>,
    /// The number of changes so far.
    time: u64,
}

/// The file of a name, or none, from a time on.
#[derive(Debug, Clone, Copy)]
pub(super) struct NameState {
    pub(super) file: Option<usize>,
    since: u64,
}

impl NameState {
    /// A file whose name is durable.
    fn durable(number: usize) -> Vec<Self> {
        vec![Self { file: Some(number), since: 0 }]
    }
}

/// A change of a directory's name.
#[derive(Debug, Clone)]
struct Moved {
    /// `None`: it was created.
    from: Option<PathBuf>,
    /// `None`: it was removed.
    to: Option<PathBuf>,
    number: usize,
    time: u64,
}

/// The number of the root directory.
pub(super) const ROOT: usize = usize::MAX;

impl SimDisk {
    /// The files as programs see them, by name.
    pub fn files(&self) -> impl Iterator<Item = (&Path, &[u8])> {
        self.names.iter().filter_map(|(path, states)| {
            let file = self.files.get(&states.last()?.file?)?;
            Some((path.as_path(), file.seen.as_slice()))
        })
    }

    /// The bytes of a file as programs see it.
    pub fn read(&self, path: impl AsRef<Path>) -> Option<&[u8]> {
        self.find(path.as_ref()).ok().map(|number| self.files[&number].seen.as_slice())
    }

    /// Durably replaces or creates a file, as a faulty disk or an administrator does.
    pub fn write(&mut self, path: impl AsRef<Path>, bytes: impl Into<Vec<u8>>) {
        let path = path.as_ref();
        if let Some(parent) = path.parent() {
            self.create_dir_all(parent);
        }
        let kind = self.find(path).map_or(FileKind::Table, |number| self.files[&number].kind);
        let number = self.create(path, kind);
        let bytes = Arc::new(bytes.into());
        if let Some(file) = self.files.get_mut(&number) {
            (file.durable, file.seen) = (Arc::clone(&bytes), bytes);
        }
        self.names.insert(path.to_owned(), NameState::durable(number));
    }

    /// Makes a directory and its missing parents, durably.
    pub fn create_dir_all(&mut self, path: impl AsRef<Path>) {
        for dir in path.as_ref().ancestors().filter(|dir| dir.parent().is_some()) {
            if !self.directories.contains_key(dir) {
                let number = self.next_number();
                self.directories.insert(dir.to_owned(), number);
            }
        }
    }

    /// Takes a file away, or a directory with all that is in it, durably.
    pub fn remove(&mut self, path: impl AsRef<Path>) {
        let path = path.as_ref();
        self.names.retain(|name, _| !name.starts_with(path));
        self.directories.retain(|dir, _| !dir.starts_with(path));
    }

    /// Renames a file, or a directory with all that is in it, durably. What has the new name is removed.
    pub fn rename(&mut self, from: impl AsRef<Path>, to: impl AsRef<Path>) {
        self.remove(&to);
        self.move_all(from.as_ref(), to.as_ref());
    }

    /// Copies the files of a directory into another, durably, as `cp -r` does.
    pub fn copy_dir(&mut self, from: impl AsRef<Path>, to: impl AsRef<Path>) {
        let (from, to) = (from.as_ref(), to.as_ref());
        self.create_dir_all(to);
        let files: Vec<(PathBuf, Vec<u8>)> = self
            .files()
            .filter(|(path, _)| path.parent() == Some(from))
            .filter_map(|(path, bytes)| Some((to.join(path.file_name()?), bytes.to_vec())))
            .collect();
        for (path, bytes) in files {
            self.write(path, bytes);
        }
    }

    /// All that a power failure at this moment may lose, in a fixed order.
    pub fn unsynced(&self, unit: Unit) -> Vec<Unsynced> {
        let mut all = Vec::new();
        let _ = self.power_failure(unit, |unsynced| {
            all.push(unsynced.clone());
            Keep::NEW
        });
        all
    }

    /// The disk after a power failure at this moment, with everything durable. Calls `keep` for each item of
    /// [`unsynced`](Self::unsynced), in that order.
    #[must_use]
    pub fn power_failure(&self, unit: Unit, mut keep: impl FnMut(&Unsynced) -> Keep) -> Self {
        if self.moved.is_empty() {
            return self.files_after_power_failure(unit, keep);
        }
        // A directory goes back as a whole, with what is in it; and one that is gone takes along its names.
        let mut disk = Self { moved: Vec::new(), ..self.clone() };
        for Moved { from, to, number, .. } in self.moved.iter().rev() {
            let Some(path) = to.as_ref().or(from.as_ref()).cloned() else { continue };
            if keep(&Unsynced::Name { path, states: 2 }).state(2) == 0 {
                match (from, to) {
                    (Some(from), Some(to)) => disk.move_all(to, from),
                    (Some(from), None) => _ = disk.directories.insert(from.clone(), *number),
                    (None, Some(to)) => disk.directories.retain(|dir, _| !dir.starts_with(to)),
                    (None, None) => {}
                }
            }
        }
        let names = std::mem::take(&mut disk.names);
        disk.names =
            names.into_iter().filter(|(path, _)| disk.check_parent(path).is_ok()).collect();
        disk.files_after_power_failure(unit, keep)
    }

    fn files_after_power_failure(
        &self,
        unit: Unit,
        mut keep: impl FnMut(&Unsynced) -> Keep,
    ) -> Self {
        let mut names = BTreeMap::new();
        for (path, states) in &self.names {
            let mut state = 0;
            if states.len() > 1 {
                let unsynced = Unsynced::Name { path: path.clone(), states: states.len() };
                state = keep(&unsynced).state(states.len());
            }
            let file = states[state].file;
            names.extend(file.map(|number| (path.clone(), NameState::durable(number))));
        }
        let stays = numbers(&names);
        let mut files = BTreeMap::new();
        for number in numbers(&self.names) {
            let file = &self.files[&number];
            let stale = self.removed.get(&file.kind).map_or(&[][..], |bytes| bytes);
            let bytes = file.after_power_failure(unit, stale, &mut keep);
            if stays.contains(&number) {
                files.insert(number, File::durable(file.path.clone(), file.kind, bytes));
            }
        }
        let (directories, removed) = (self.directories.clone(), self.removed.clone());
        let (moved, created, time) = (Vec::new(), self.created, self.time);
        Self { directories, names, moved, files, created, removed, time }
    }

    pub(super) fn find(&self, path: &Path) -> io::Result<usize> {
        let now = self.names.get(path).and_then(|states| states.last()?.file);
        now.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Sets the file of a name, or none, from now on.
    pub(super) fn name(&mut self, path: &Path, file: Option<usize>) {
        let (before, since) = (self.find(path), self.tick());
        let none = || vec![NameState { file: None, since: 0 }];
        let states = self.names.entry(path.to_owned()).or_insert_with(none);
        states.push(NameState { file, since });
        if let Some(file) = file.and_then(|number| self.files.get_mut(&number)) {
            path.clone_into(&mut file.path);
        }
        if let Ok(number) = before
            && self.links(number) == 0
            && let Some(file) = self.files.get(&number)
        {
            self.removed.insert(file.kind, Arc::clone(&file.seen));
        }
    }

    /// The time of a change.
    pub(super) fn tick(&mut self) -> u64 {
        self.time += 1;
        self.time
    }

    /// The time at which a sync begins: it makes what was changed up to then durable.
    pub(super) fn now(&self) -> u64 {
        self.time
    }

    fn next_number(&mut self) -> usize {
        self.created += 1;
        self.created
    }

    pub(super) fn create(&mut self, path: &Path, kind: FileKind) -> usize {
        let number = self.next_number();
        self.files.insert(number, File::durable(path.to_owned(), kind, Arc::default()));
        self.name(path, Some(number));
        number
    }

    /// Renames a file or a directory, with all that is in it.
    fn move_all(&mut self, from: &Path, to: &Path) {
        let moved = |path: &Path| match path.strip_prefix(from) {
            Ok(rest) if rest == Path::new("") => to.to_owned(),
            Ok(rest) => to.join(rest),
            Err(_) => path.to_owned(),
        };
        let directories = std::mem::take(&mut self.directories);
        self.directories = directories.into_iter().map(|(dir, n)| (moved(&dir), n)).collect();
        let names = std::mem::take(&mut self.names);
        self.names = names.into_iter().map(|(path, states)| (moved(&path), states)).collect();
        for file in self.files.values_mut() {
            file.path = moved(&file.path);
        }
    }

    pub(super) fn create_dir(&mut self, path: &Path) -> io::Result<()> {
        self.check_parent(path)?;
        if self.find(path).is_ok() || self.has_dir(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.forget_names_in(path);
        let number = self.next_number();
        self.directories.insert(path.to_owned(), number);
        let time = self.tick();
        self.moved.push(Moved { from: None, to: Some(path.to_owned()), number, time });
        Ok(())
    }

    /// Drops the names of an earlier directory of this path, which were removed and perhaps not synced.
    fn forget_names_in(&mut self, dir: &Path) {
        self.names.retain(|path, _| path.parent() != Some(dir));
    }

    /// Renames a directory to a name that only an empty directory has, or removes an empty one.
    pub(super) fn move_dir(&mut self, from: &Path, to: Option<&Path>) -> io::Result<()> {
        let has_any = |dir: &Path| {
            let here = |path: &Path| path.parent() == Some(dir);
            let files = self
                .names
                .iter()
                .filter(|(_, states)| states.last().is_some_and(|state| state.file.is_some()));
            files.map(|(path, _)| path).chain(self.directories.keys()).any(|path| here(path))
        };
        let number = *self.directories.get(from).ok_or(io::ErrorKind::NotFound)?;
        if to.is_some_and(|to| self.find(to).is_ok()) {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        if has_any(to.unwrap_or(from)) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        match to {
            Some(to) => {
                self.check_parent(to)?;
                self.directories.remove(to);
                self.forget_names_in(to);
                self.move_all(from, to);
            }
            None => _ = self.directories.remove(from),
        }
        let (from, to, time) = (Some(from.to_owned()), to.map(Path::to_owned), self.tick());
        self.moved.push(Moved { from, to, number, time });
        Ok(())
    }

    /// Makes the names of a directory durable, as they were when the sync began.
    pub(super) fn sync_dir(&mut self, dir: &Path, begun: u64) {
        self.moved.retain(|Moved { from, to, time, .. }| {
            let path = from.as_ref().or(to.as_ref());
            *time > begun || path.is_some_and(|path| path.parent() != Some(dir))
        });
        self.names.retain(|path, states| {
            if path.parent() == Some(dir) {
                let later = states.partition_point(|state| state.since <= begun);
                states.drain(..later.saturating_sub(1));
            }
            states.iter().any(|state| state.file.is_some())
        });
    }

    /// Drops the files that no name can refer to even after a power failure, except these.
    pub(super) fn forget_all_but(&mut self, open: &BTreeMap<usize, usize>) {
        let named = numbers(&self.names);
        self.files.retain(|number, _| named.contains(number) || open.contains_key(number));
    }

    /// Fails if the directory of a name is missing.
    pub(super) fn check_parent(&self, path: &Path) -> io::Result<()> {
        let there = path.parent().is_some_and(|dir| self.has_dir(dir));
        if there { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    /// The path of an open directory, if it has one left.
    pub(super) fn path_of_dir(&self, number: usize) -> io::Result<PathBuf> {
        if number == ROOT {
            return Ok("/".into());
        }
        let found = self.directories.iter().find(|(_, found)| **found == number);
        found.map(|(path, _)| path.clone()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The number of names of a file.
    pub(super) fn links(&self, number: usize) -> u64 {
        let is_last = |states: &&Vec<NameState>| {
            states.last().is_some_and(|state| state.file == Some(number))
        };
        self.names.values().filter(is_last).count() as u64
    }

    pub(super) fn has_dir(&self, dir: &Path) -> bool {
        dir.parent().is_none() || self.directories.contains_key(dir)
    }
}

/// The files that these names can refer to.
fn numbers(names: &BTreeMap<PathBuf, Vec<NameState>>) -> BTreeSet<usize> {
    names.values().flatten().filter_map(|state| state.file).collect()
}
