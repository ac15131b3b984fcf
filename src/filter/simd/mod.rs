//! The same answers, faster: what a processor has beyond the base of its architecture, found at run
//! time. A kind's file here has its vector code, and is the only place of that kind where `unsafe` stands;
//! the kind's own file has the plain code that says what the answer is. [`Prober`] is the way to it.

#[cfg(target_arch = "x86_64")]
pub(super) mod blocked;
mod prober;
#[cfg(target_arch = "x86_64")]
pub(super) mod ribbon;

pub(super) use prober::Prober;

/// A probe before it is known that the processor has its instructions.
#[cfg(target_arch = "x86_64")]
type Unproved = unsafe fn(&super::kind::Geometry, &[u8], u64) -> bool;

/// The same for many hashes.
#[cfg(target_arch = "x86_64")]
type UnprovedMany = unsafe fn(&super::kind::Geometry, &[u8], &[u64], &mut [bool]);

/// A way through the same arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Path {
    /// Plain Rust without branches, on every processor.
    Scalar,
    /// 256 bits at a time.
    Avx2,
    /// 512 bits at a time, and the instructions that count bits in them, shift across two of them and
    /// look bits up: all processors that have the first of these have all.
    Avx512,
}

impl Path {
    /// Whether this processor can go it.
    #[cfg(target_arch = "x86_64")]
    fn is_here(self) -> bool {
        match self {
            Self::Scalar => true,
            Self::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("popcnt")
                    && is_x86_feature_detected!("bmi1")
                    && is_x86_feature_detected!("bmi2")
            }
            Self::Avx512 => {
                Self::Avx2.is_here()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vbmi")
                    && is_x86_feature_detected!("avx512vbmi2")
                    && is_x86_feature_detected!("avx512bitalg")
                    && is_x86_feature_detected!("avx512vpopcntdq")
            }
        }
    }

    /// Whether this processor can go it.
    #[cfg(not(target_arch = "x86_64"))]
    fn is_here(self) -> bool {
        self == Self::Scalar
    }

    /// The fastest that this processor has.
    pub(super) fn best() -> Self {
        #[cfg(test)]
        if let Some(path) = forced::path() {
            return path;
        }
        [Self::Avx512, Self::Avx2].into_iter().find(|path| path.is_here()).unwrap_or(Self::Scalar)
    }
}

/// For tests: another path than the best one.
#[cfg(test)]
pub(super) mod forced {
    use std::cell::Cell;

    use super::Path;

    thread_local! {
        static FORCED: Cell<Option<Path>> = const { Cell::new(None) };
    }

    pub(super) fn path() -> Option<Path> {
        FORCED.get()
    }

    /// Calls `f` on the plain path.
    pub(in crate::filter) fn on_scalar(f: impl FnOnce()) {
        FORCED.set(Some(Path::Scalar));
        f();
        FORCED.set(None);
    }

    /// Calls `f` once for each path that this machine has, which all of this thread's filters take
    /// meanwhile, and prints how many there were.
    pub(in crate::filter) fn on_each_path(mut f: impl FnMut(Path)) {
        let all = [Path::Scalar, Path::Avx2, Path::Avx512];
        let (here, missing): (Vec<_>, Vec<_>) = all.into_iter().partition(|path| path.is_here());
        assert_eq!(here[0], Path::Scalar);
        for &path in &here {
            FORCED.set(Some(path));
            f(path);
            FORCED.set(None);
        }
        let missing = missing.iter().map(|path| format!(", {path:?} is not on this machine"));
        println!("paths compared: {} of {}{}", here.len(), all.len(), missing.collect::<String>());
    }
}
