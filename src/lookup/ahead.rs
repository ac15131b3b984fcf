//! Announces the blocks of a batch of lookups, so that the operating system reads them from the disk at once.

use std::collections::HashSet;
use std::time::Duration;

use super::search::Search;
use super::{Lookups, Trace, When};
use crate::ledger::{Activity, Step, TableStep};
use crate::sstable::TableEnv;
use crate::sync::{Instant, Ordering};
use crate::view::ReadView;

/// The most blocks and bytes that are announced before they are read.
const MOST_BLOCKS: usize = 256;
const MOST_BYTES: u64 = 16 << 20;
/// The announcement of a block that the page cache has takes a third of this, of another block three times as
/// long.
const CACHED: Duration = Duration::from_micros(1);

/// Announces blocks of a batch after a slow read of its own.
pub(super) struct ReadAhead<'e> {
    env: &'e TableEnv,
    may_announce: bool,
    /// Whether a read was slow, and the next blocks may be announced.
    pub(super) slow: bool,
    /// Not made for a batch that announces nothing.
    wave: Option<Box<Wave>>,
}

/// The blocks that were announced and not read yet.
#[derive(Default)]
struct Wave {
    /// The keys up to this number were looked at.
    until: usize,
    /// Table and offset.
    announced: HashSet<(u64, u64)>,
}

impl<'e> ReadAhead<'e> {
    #[inline]
    pub(super) fn new(lookups: Lookups<'e>) -> Self {
        let env = lookups.env;
        let may_announce = !env.random.is_seeded();
        // Else the first block of each batch would be waited for before the others are announced.
        let slow = may_announce && env.reads_are_slow.load(Ordering::Relaxed);
        Self { env, may_announce, slow, wave: None }
    }

    /// Announces the blocks of the next keys, from number `done` on, if no announced one is left. Of each key this is
    /// the block of the first table whose filter says "maybe".
    #[inline(never)]
    pub(super) fn announce<K: AsRef<[u8]>>(
        &mut self,
        lookups: Lookups<'_>,
        view: &ReadView,
        when: &When<'_>,
        keys: &[K],
        done: usize,
    ) {
        if self.wave.as_ref().is_some_and(|wave| done < wave.until) {
            return;
        }
        self.end_wave();
        let (mut bytes_announced, mut spent) = (0, Duration::ZERO);
        let wave = self.wave.get_or_insert_default();
        wave.until = done;
        for key in keys.get(done..).unwrap_or_default() {
            if wave.announced.len() == MOST_BLOCKS {
                break;
            }
            wave.until += 1;
            let search = Search::new(lookups, view, when, key.as_ref());
            let Some((table, block)) = search.first_read() else { continue };
            let place = (table.id(), block.offset);
            if wave.announced.contains(&place) {
                continue;
            }
            if bytes_announced + block.length > MOST_BYTES {
                break;
            }
            let began = Instant::now();
            let Ok(bytes) = table.announce_block(block) else {
                self.may_announce = false;
                break;
            };
            spent += began.elapsed();
            bytes_announced += bytes;
            wave.announced.insert(place);
        }
        let blocks_announced = wave.announced.len() as u64;
        // Something else made the slow read slow: a busy processor, or a block that was an exception.
        if blocks_announced > 0 || !self.may_announce {
            self.slow = self.may_announce && spent > CACHED * blocks_announced as u32;
        }
        self.env.ledger.count(Activity {
            blocks_announced,
            bytes_announced,
            ..Activity::default()
        });
    }

    /// Counts what was announced and not read: another thread has put the block into the cache, or the batch failed.
    fn end_wave(&mut self) {
        let Some(wave) = &mut self.wave else { return };
        let announced_unread = wave.announced.len() as u64;
        wave.announced.clear();
        if announced_unread > 0 {
            self.env.ledger.count(Activity { announced_unread, ..Activity::default() });
        }
    }
}

impl Trace for ReadAhead<'_> {
    const STEPS: bool = false;
    const TIMED: bool = true;

    #[inline]
    fn step(&mut self, step: Step) {
        if let Step::Table { id, step: TableStep::Probed { block: Some(block), .. }, .. } = step
            && !block.from_cache
        {
            self.slow |= block.slow && self.may_announce;
            if let Some(wave) = &mut self.wave {
                wave.announced.remove(&(id, block.offset));
            }
        }
    }
}

impl Drop for ReadAhead<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.wave.is_some() {
            self.end_wave();
        }
        if self.slow != self.env.reads_are_slow.load(Ordering::Relaxed) && self.may_announce {
            self.env.reads_are_slow.store(self.slow, Ordering::Relaxed);
        }
    }
}
