//! SlateDB.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criba_object_cli::metered::Metered;
use futures_util::future::try_join_all;
use object_store::ObjectStore;
use slatedb::admin::AdminBuilder;
use slatedb::compactor::{CompactionSpec, SourceId};
use slatedb::config::{
    CompactionWorkerOptions, CompactorOptions, DbReaderOptions, ObjectStoreCacheOptions, Settings,
};
use slatedb::db_cache::foyer::{FoyerCache, FoyerCacheOptions};
use slatedb::db_cache::{DEFAULT_META_CACHE_CAPACITY, DbCache, SplitCache};
use slatedb::{BloomFilterPolicy, Db, DbReader, DbReaderMode};
use tokio::runtime::Runtime;

use super::{Caches, Reader, Shape};
use crate::Result;
use crate::keys::Keys;

const PATH: &str = "store";
const BITS_PER_KEY: u32 = 10;

pub struct Slate {
    db: DbReader,
    runtime: Runtime,
}

fn runtime() -> Result<Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

/// The defaults, with a filter in each SST.
fn writer_settings(memtable_bytes: usize, poll: Option<Duration>) -> Settings {
    let worker = CompactionWorkerOptions { min_filter_keys: 1, ..Default::default() };
    let worker = CompactionWorkerOptions {
        compactions_poll_interval: poll.unwrap_or(worker.compactions_poll_interval),
        ..worker
    };
    let compactor = CompactorOptions { worker: Some(worker), ..Default::default() };
    let compactor =
        CompactorOptions { poll_interval: poll.unwrap_or(compactor.poll_interval), ..compactor };
    Settings {
        min_filter_keys: 1,
        l0_sst_size_bytes: memtable_bytes,
        compactor_options: Some(compactor),
        ..Settings::default()
    }
}

pub fn settings(memtable_bytes: usize, caches: Caches) -> Vec<(&'static str, String)> {
    vec![
        ("filter", format!("BloomFilterPolicy {BITS_PER_KEY}")),
        ("min_filter_keys", "1".to_owned()),
        ("l0_sst_size_bytes", memtable_bytes.to_string()),
        ("block_cache_bytes", caches.block_bytes.to_string()),
        ("meta_cache_bytes", DEFAULT_META_CACHE_CAPACITY.to_string()),
        ("disk_cache", caches.on_disk.to_string()),
    ]
}

fn object_store(bucket: &Arc<Metered>) -> Arc<dyn ObjectStore> {
    bucket.clone()
}

async fn open_writer(bucket: &Arc<Metered>, settings: Settings) -> Result<Db> {
    let filter = Arc::new(BloomFilterPolicy::new(BITS_PER_KEY));
    let builder = Db::builder(PATH, object_store(bucket)).with_settings(settings);
    Ok(builder.with_filter_policies(vec![filter]).build().await?)
}

pub fn load(bucket: &Arc<Metered>, memtable_bytes: usize, keys: Keys) -> Result<()> {
    runtime()?.block_on(async {
        let db = open_writer(bucket, writer_settings(memtable_bytes, None)).await?;
        for number in 0..keys.n {
            // It returns when the pair is in memory.
            db.put(keys.key(number), keys.value(number)).await?;
        }
        Ok(db.close().await?)
    })
}

pub fn compact(bucket: &Arc<Metered>, memtable_bytes: usize, opened: impl FnOnce()) -> Result<()> {
    /// How long one submission may take.
    const PATIENCE: Duration = Duration::from_secs(60);
    runtime()?.block_on(async {
        let settings = writer_settings(memtable_bytes, Some(Duration::from_millis(200)));
        let db = open_writer(bucket, settings).await?;
        opened();
        let admin = AdminBuilder::new(PATH, object_store(bucket)).build();
        loop {
            let manifest = db.manifest();
            let runs: Vec<u32> = manifest.compacted().iter().map(|run| run.id).collect();
            if manifest.l0().is_empty() && runs.len() == 1 {
                break;
            }
            let tables = manifest.l0().iter().map(|view| SourceId::SstView(view.id));
            let sources = tables.chain(runs.iter().map(|&run| SourceId::SortedRun(run))).collect();
            let destination = runs.iter().copied().min().unwrap_or(0);
            admin.submit_compaction(CompactionSpec::new(sources, destination)).await?;
            let submitted = Instant::now();
            let is_done = || db.manifest().l0().is_empty() && db.manifest().compacted().len() == 1;
            // The store's own compactions may have come first.
            while !is_done() && submitted.elapsed() < PATIENCE {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        Ok(db.close().await?)
    })
}

impl Slate {
    pub fn open(bucket: &Arc<Metered>, dir: &Path, caches: Caches) -> Result<Self> {
        let cache = |bytes| -> Option<Arc<dyn DbCache>> {
            let options = FoyerCacheOptions { max_capacity: bytes, ..Default::default() };
            (bytes > 0).then(|| Arc::new(FoyerCache::new_with_opts(options)) as _)
        };
        // As by default, but for the size of the cache of blocks.
        let split = SplitCache::new()
            .with_block_cache(cache(caches.block_bytes))
            .with_meta_cache(cache(DEFAULT_META_CACHE_CAPACITY))
            .build();
        let options = DbReaderOptions {
            // No requests of its own while lookups are counted.
            manifest_poll_interval: Duration::from_secs(3600),
            checkpoint_lifetime: Duration::from_secs(4 * 3600),
            // All is in SSTs.
            skip_wal_replay: true,
            object_store_cache_options: ObjectStoreCacheOptions {
                root_folder: caches.on_disk.then(|| dir.join("parts")),
                ..Default::default()
            },
            ..Default::default()
        };
        let runtime = runtime()?;
        let db = runtime.block_on(
            DbReader::builder(PATH, object_store(bucket))
                .with_options(options)
                // The mode with the fewest requests.
                .with_reader_mode(DbReaderMode::FollowLatest)
                .with_db_cache(Arc::new(split), 0)
                .with_filter_policies(vec![Arc::new(BloomFilterPolicy::new(BITS_PER_KEY))])
                .build(),
        )?;
        Ok(Self { db, runtime })
    }
}

impl Reader for Slate {
    fn get(&self, key: &[u8]) -> Result<Option<usize>> {
        let value = self.runtime.block_on(self.db.get(key))?;
        Ok(value.map(|value| value.len()))
    }

    fn get_many(&self, keys: &[[u8; 16]]) -> Result<Vec<Option<usize>>> {
        let values =
            self.runtime.block_on(try_join_all(keys.iter().map(|key| self.db.get(key))))?;
        Ok(values.into_iter().map(|value| value.map(|value| value.len())).collect())
    }

    fn shape(&self) -> Shape {
        let manifest = self.db.manifest();
        let tables: Vec<_> = manifest.all_sst_views().map(|view| view.sst.info.clone()).collect();
        Shape {
            runs: (manifest.l0().len() + manifest.compacted().len()) as u64,
            tables: tables.len() as u64,
            filter_bytes: tables.iter().map(|info| info.filter_len).sum(),
            index_bytes: tables.iter().map(|info| info.index_len).sum(),
        }
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.runtime.block_on(self.db.close())?)
    }
}
