//! The items that the source takes from `sync`.

pub(crate) use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use loom::sync::Mutex;
use loom::sync::atomic::AtomicBool;

/// A value that is set once: loom has none. A reader of it acquires what the setter released.
#[derive(Debug)]
pub(crate) struct OnceLock<T> {
    value: std::sync::OnceLock<T>,
    ready: AtomicBool,
    making: Mutex<()>,
}

impl<T> OnceLock<T> {
    pub(crate) fn new() -> Self {
        let ready = AtomicBool::new(false);
        Self { value: std::sync::OnceLock::new(), ready, making: Mutex::new(()) }
    }

    pub(crate) fn get(&self) -> Option<&T> {
        if self.ready.load(Ordering::Acquire) { self.value.get() } else { None }
    }

    pub(crate) fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if self.get().is_none() {
            let _making = self.making.lock();
            if !self.ready.load(Ordering::Acquire) {
                // Made here, where loom may switch; put there, where it may not.
                let _ = self.value.set(make());
                self.ready.store(true, Ordering::Release);
            }
        }
        self.value.get_or_init(|| unreachable!("it is made by now"))
    }
}
