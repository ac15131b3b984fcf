//! Code for one processor, selected at run time, and code without checks. The scalar code is its reference. A
//! [`Probe`] takes any array; a [`Prober`] has one array, which it has checked.

#[cfg(target_arch = "x86_64")]
pub(super) mod blocked;
mod probe;
mod prober;
#[cfg(target_arch = "x86_64")]
pub(super) mod ribbon;
#[cfg(target_arch = "x86_64")]
mod ribbon_shape;

pub(super) use probe::Probe;
pub use prober::Prober;
pub(super) use prober::{Touched, Unchecked};

/// A set of instructions that a function uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Path {
    Scalar,
    /// Vectors of 256 bits.
    Avx2,
    /// Vectors of 512 bits, with the extensions that the filters use.
    Avx512,
}

impl Path {
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

    #[cfg(not(target_arch = "x86_64"))]
    fn is_here(self) -> bool {
        self == Self::Scalar
    }

    pub(super) fn best() -> Self {
        #[cfg(test)]
        if let Some(path) = forced::path() {
            return path;
        }
        [Self::Avx512, Self::Avx2].into_iter().find(|path| path.is_here()).unwrap_or(Self::Scalar)
    }
}

/// For tests: forces another path than the best.
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

    pub(crate) fn on_scalar(f: impl FnOnce()) {
        FORCED.set(Some(Path::Scalar));
        f();
        FORCED.set(None);
    }

    pub(crate) fn on_each_path(mut f: impl FnMut(Path)) {
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
