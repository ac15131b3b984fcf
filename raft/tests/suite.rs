//! openraft's own tests of a storage, on real files.

use criba::Options;
use criba_raft::{LogStore, Opening, StateMachine, TypeConfig, open};
use openraft::testing::{StoreBuilder, Suite};
use openraft::{AnyError, StorageError, StorageIOError};
use tempfile::TempDir;

struct OnFiles(Options);

impl StoreBuilder<TypeConfig, LogStore, StateMachine, TempDir> for OnFiles {
    async fn build(&self) -> Result<(TempDir, LogStore, StateMachine), StorageError<u64>> {
        let dir = tempfile::tempdir().expect("a directory");
        // No vote of the suite is for a node with this id.
        let opened = open(self.0.clone(), dir.path().join("store"), 1_000, Opening::New);
        let opened = opened.map_err(|error| StorageIOError::read(AnyError::new(&error)))?;
        Ok((dir, opened.0, opened.1))
    }
}

#[test]
fn the_storage_passes() {
    Suite::test_all(OnFiles(Options::new())).expect("a storage that passes");
}

#[test]
fn the_storage_passes_when_every_few_writes_are_flushed() {
    let options = Options::new().memtable_bytes(1 << 10);
    Suite::test_all(OnFiles(options)).expect("a storage that passes");
}

#[test]
fn the_storage_passes_without_background_threads() {
    Suite::test_all(OnFiles(Options::new().background_threads(0))).expect("a storage that passes");
}
