//! LevelDB, through its C interface.

#![expect(unsafe_code, reason = "a C library")]

use std::ffi::{CStr, CString, c_char, c_int, c_uchar};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{ptr, slice};

use super::{Built, Reader, Store, seen, settle_by_looking};
use crate::Result;
use crate::settings::{BITS_PER_KEY, BLOCK_BYTES, Config, Told};

/// LevelDB's opaque types.
macro_rules! opaque {
    ($($name:ident),*) => { $(#[repr(C)] struct $name { _private: [u8; 0] })* };
}
opaque!(Db, CacheOf, FilterPolicy, Iterator, OptionsOf, ReadOptions, WriteOptions);

unsafe extern "C" {
    fn leveldb_open(o: *const OptionsOf, name: *const c_char, error: *mut *mut c_char) -> *mut Db;
    fn leveldb_close(db: *mut Db);
    fn leveldb_put(
        db: *mut Db,
        o: *const WriteOptions,
        key: *const c_char,
        key_len: usize,
        value: *const c_char,
        value_len: usize,
        error: *mut *mut c_char,
    );
    fn leveldb_get(
        db: *mut Db,
        o: *const ReadOptions,
        key: *const c_char,
        key_len: usize,
        value_len: *mut usize,
        error: *mut *mut c_char,
    ) -> *mut c_char;
    fn leveldb_compact_range(
        db: *mut Db,
        start: *const c_char,
        start_len: usize,
        limit: *const c_char,
        limit_len: usize,
    );
    fn leveldb_property_value(db: *mut Db, name: *const c_char) -> *mut c_char;
    fn leveldb_create_iterator(db: *mut Db, o: *const ReadOptions) -> *mut Iterator;
    fn leveldb_iter_destroy(i: *mut Iterator);
    fn leveldb_iter_valid(i: *const Iterator) -> c_uchar;
    fn leveldb_iter_seek(i: *mut Iterator, key: *const c_char, len: usize);
    fn leveldb_iter_next(i: *mut Iterator);
    fn leveldb_iter_key(i: *const Iterator, len: *mut usize) -> *const c_char;
    fn leveldb_iter_value(i: *const Iterator, len: *mut usize) -> *const c_char;
    fn leveldb_iter_get_error(i: *const Iterator, error: *mut *mut c_char);
    fn leveldb_options_create() -> *mut OptionsOf;
    fn leveldb_options_destroy(o: *mut OptionsOf);
    fn leveldb_options_set_create_if_missing(o: *mut OptionsOf, yes: c_uchar);
    fn leveldb_options_set_filter_policy(o: *mut OptionsOf, policy: *mut FilterPolicy);
    fn leveldb_options_set_write_buffer_size(o: *mut OptionsOf, bytes: usize);
    fn leveldb_options_set_max_open_files(o: *mut OptionsOf, files: c_int);
    fn leveldb_options_set_max_file_size(o: *mut OptionsOf, bytes: usize);
    fn leveldb_options_set_cache(o: *mut OptionsOf, cache: *mut CacheOf);
    fn leveldb_options_set_block_size(o: *mut OptionsOf, bytes: usize);
    fn leveldb_options_set_compression(o: *mut OptionsOf, kind: c_int);
    fn leveldb_filterpolicy_create_bloom(bits: c_int) -> *mut FilterPolicy;
    fn leveldb_filterpolicy_destroy(policy: *mut FilterPolicy);
    fn leveldb_cache_create_lru(bytes: usize) -> *mut CacheOf;
    fn leveldb_cache_destroy(cache: *mut CacheOf);
    fn leveldb_readoptions_create() -> *mut ReadOptions;
    fn leveldb_readoptions_set_verify_checksums(o: *mut ReadOptions, yes: c_uchar);
    fn leveldb_readoptions_destroy(o: *mut ReadOptions);
    fn leveldb_writeoptions_create() -> *mut WriteOptions;
    fn leveldb_writeoptions_destroy(o: *mut WriteOptions);
    fn leveldb_writeoptions_set_sync(o: *mut WriteOptions, yes: c_uchar);
    fn leveldb_free(p: *mut std::ffi::c_void);
    fn leveldb_major_version() -> c_int;
    fn leveldb_minor_version() -> c_int;
}

const NO_COMPRESSION: c_int = 0;

/// All that an open store needs. `VERIFY`: reads verify the checksums of blocks.
pub struct LevelDb<const VERIFY: bool> {
    db: *mut Db,
    dir: PathBuf,
    options: *mut OptionsOf,
    filter: *mut FilterPolicy,
    cache: *mut CacheOf,
    read: *mut ReadOptions,
    synced: *mut WriteOptions,
    unsynced: *mut WriteOptions,
}

// SAFETY: LevelDB's documentation: a database may be used by many threads at once, and options are
// only read. What changes the pointers takes `&mut self`.
unsafe impl<const VERIFY: bool> Send for LevelDb<VERIFY> {}
// SAFETY: as above.
unsafe impl<const VERIFY: bool> Sync for LevelDb<VERIFY> {}

fn bytes(slice: &[u8]) -> *const c_char {
    slice.as_ptr().cast()
}

/// Takes an error message, if there is one.
fn check(error: *mut c_char) -> Result<()> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: LevelDB gives a C string that is now ours to free.
    unsafe {
        let message = CStr::from_ptr(error).to_string_lossy().into_owned();
        leveldb_free(error.cast());
        Err(message.into())
    }
}

impl<const VERIFY: bool> LevelDb<VERIFY> {
    fn open_db(&mut self) -> Result<()> {
        let name = CString::new(self.dir.as_os_str().as_bytes())?;
        let mut error = ptr::null_mut();
        // SAFETY: the options are alive, the name is a C string.
        self.db = unsafe { leveldb_open(self.options, name.as_ptr(), &raw mut error) };
        check(error)
    }

    fn close_db(&mut self) {
        if !self.db.is_null() {
            // SAFETY: it is open, and it has no other user: this takes `&mut self`.
            unsafe { leveldb_close(self.db) };
            self.db = ptr::null_mut();
        }
    }

    fn write(&self, options: *mut WriteOptions, key: &[u8], value: &[u8]) -> Result<()> {
        let mut error = ptr::null_mut();
        let (db, k, v) = (self.db, bytes(key), bytes(value));
        // SAFETY: all pointers are alive during the call, with their lengths.
        unsafe { leveldb_put(db, options, k, key.len(), v, value.len(), &raw mut error) };
        check(error)
    }

    fn property(&self, name: &str) -> Result<String> {
        let name = CString::new(name)?;
        // SAFETY: a C string goes in, and one, or nothing, comes out that is ours to free.
        unsafe {
            let value = leveldb_property_value(self.db, name.as_ptr());
            if value.is_null() {
                return Err(format!("no property {name:?}").into());
            }
            let text = CStr::from_ptr(value).to_string_lossy().into_owned();
            leveldb_free(value.cast());
            Ok(text)
        }
    }

    fn files(&self) -> Result<Vec<u64>> {
        (0..7)
            .map(|at| Ok(self.property(&format!("leveldb.num-files-at-level{at}"))?.parse()?))
            .collect()
    }
}

impl<const VERIFY: bool> Drop for LevelDb<VERIFY> {
    fn drop(&mut self) {
        self.close_db();
        // SAFETY: each was made by its function, and the database that used them is closed.
        unsafe {
            leveldb_options_destroy(self.options);
            leveldb_filterpolicy_destroy(self.filter);
            if !self.cache.is_null() {
                leveldb_cache_destroy(self.cache);
            }
            leveldb_readoptions_destroy(self.read);
            leveldb_writeoptions_destroy(self.synced);
            leveldb_writeoptions_destroy(self.unsynced);
        }
    }
}

impl<const VERIFY: bool> Store for LevelDb<VERIFY> {
    type Reader<'s> = &'s Self;

    const PREADS: bool = false;
    const CACHE_OFF: bool = false;

    fn version() -> String {
        // SAFETY: they take nothing and touch nothing.
        unsafe { format!("{}.{}", leveldb_major_version(), leveldb_minor_version()) }
    }

    fn open(dir: &Path, config: &Config, told: &mut Told) -> Result<Self> {
        std::fs::create_dir_all(dir)?;
        // SAFETY: plain constructors; the setters get what they made.
        let mut this = unsafe {
            let options = leveldb_options_create();
            let bits = told.set("bloom_bits", BITS_PER_KEY.cast_signed());
            let filter = leveldb_filterpolicy_create_bloom(bits);
            let cache = leveldb_cache_create_lru(told.set("cache", config.cache_bytes()));
            leveldb_options_set_create_if_missing(options, 1);
            leveldb_options_set_compression(options, told.set("compression", NO_COMPRESSION));
            leveldb_options_set_filter_policy(options, filter);
            leveldb_options_set_cache(options, cache);
            leveldb_options_set_block_size(options, told.set("block_size", BLOCK_BYTES));
            let buffer = told.set("write_buffer_size", config.memtable_bytes());
            leveldb_options_set_write_buffer_size(options, buffer);
            let table = told.set("max_file_size", config.table_bytes() as usize);
            leveldb_options_set_max_file_size(options, table);
            leveldb_options_set_max_open_files(options, told.set("max_open_files", 4000));
            let read = leveldb_readoptions_create();
            let verify = told.set("verify_checksums", VERIFY);
            leveldb_readoptions_set_verify_checksums(read, verify.into());
            let synced = leveldb_writeoptions_create();
            leveldb_writeoptions_set_sync(synced, 1);
            Self {
                db: ptr::null_mut(),
                dir: dir.to_owned(),
                options,
                filter,
                cache,
                read,
                synced,
                unsynced: leveldb_writeoptions_create(),
            }
        };
        this.open_db()?;
        Ok(this)
    }

    fn reader(&self) -> Result<&Self> {
        Ok(self)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(self.unsynced, key, value)
    }

    fn put_synced(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(self.synced, key, value)
    }

    /// LevelDB has no call for it: opening it again makes a table of its log.
    fn flush(&mut self) -> Result<()> {
        self.close_db();
        self.open_db()
    }

    /// LevelDB does not report due compactions; this watches its tables.
    fn settle(&self) -> Result<Duration> {
        settle_by_looking(|| {
            let files = self.files()?;
            let stats = self.property("leveldb.stats")?;
            Ok((files[0] < 4).then_some((files, stats)))
        })
    }

    fn compact(&mut self) -> Result<()> {
        // SAFETY: no bounds: everything.
        unsafe { leveldb_compact_range(self.db, ptr::null(), 0, ptr::null(), 0) };
        Ok(())
    }

    fn built(&self) -> Result<Built> {
        let files = self.files()?;
        let levels = files[1..].iter().filter(|&&files| files > 0).count() as u64;
        Ok(Built { runs: Some(files[0] + levels), l0_tables: Some(files[0]), filter_bytes: None })
    }
}

impl<const VERIFY: bool> Reader for &LevelDb<VERIFY> {
    #[inline]
    fn get(&self, key: &[u8]) -> Result<Option<usize>> {
        let (mut length, mut error) = (0, ptr::null_mut());
        // SAFETY: all pointers are alive during the call; what comes out is null, or ours to free,
        // with its length.
        unsafe {
            let (read, k) = (self.read, bytes(key));
            let value = leveldb_get(self.db, read, k, key.len(), &raw mut length, &raw mut error);
            check(error)?;
            if value.is_null() {
                return Ok(None);
            }
            let length = seen(slice::from_raw_parts(value.cast::<u8>(), length));
            leveldb_free(value.cast());
            Ok(Some(length))
        }
    }

    fn scan(&self, from: &[u8], limit: usize) -> Result<(usize, usize)> {
        let mut pairs = Pairs::from(self, from);
        let (mut count, mut bytes) = (0, 0);
        while count < limit {
            let Some((key, value)) = pairs.current() else { break };
            bytes += seen(key) + seen(value);
            count += 1;
            pairs.advance();
        }
        pairs.finish()?;
        Ok((count, bytes))
    }

    fn prefix(&self, prefix: &[u8]) -> Result<usize> {
        let mut pairs = Pairs::from(self, prefix);
        let mut count = 0;
        while let Some((_, value)) = pairs.current().filter(|(key, _)| key.starts_with(prefix)) {
            seen(value);
            count += 1;
            pairs.advance();
        }
        pairs.finish()?;
        Ok(count)
    }
}

struct Pairs(*mut Iterator);

impl Pairs {
    fn from<const VERIFY: bool>(store: &LevelDb<VERIFY>, key: &[u8]) -> Self {
        // SAFETY: the store outlives its readers' calls, in which alone this lives.
        unsafe {
            let iterator = leveldb_create_iterator(store.db, store.read);
            leveldb_iter_seek(iterator, bytes(key), key.len());
            Self(iterator)
        }
    }

    fn current(&self) -> Option<(&[u8], &[u8])> {
        let (mut key_len, mut value_len) = (0, 0);
        // SAFETY: only a valid iterator is asked; what it gives is alive until it is moved, which
        // takes `&mut self`.
        unsafe {
            if leveldb_iter_valid(self.0) == 0 {
                return None;
            }
            let key = leveldb_iter_key(self.0, &raw mut key_len).cast();
            let value = leveldb_iter_value(self.0, &raw mut value_len).cast();
            Some((slice::from_raw_parts(key, key_len), slice::from_raw_parts(value, value_len)))
        }
    }

    fn advance(&mut self) {
        // SAFETY: called after `current` gave something, so it is valid.
        unsafe { leveldb_iter_next(self.0) };
    }

    fn finish(self) -> Result<()> {
        let mut error = ptr::null_mut();
        // SAFETY: the iterator is alive.
        unsafe { leveldb_iter_get_error(self.0, &raw mut error) };
        check(error)
    }
}

impl Drop for Pairs {
    fn drop(&mut self) {
        // SAFETY: it was made by LevelDB, and is not used again.
        unsafe { leveldb_iter_destroy(self.0) };
    }
}
