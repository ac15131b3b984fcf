//! The instructions of this processor, found at run time. The scalar code of each kind is the reference.

/// Instructions that a function uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Instructions {
    Scalar,
    /// Vectors of 256 bits.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// Vectors of 512 bits, with the extensions that the filters use.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Instructions {
    /// The best first.
    const ALL: &[Self] = &[
        #[cfg(target_arch = "x86_64")]
        Self::Avx512,
        #[cfg(target_arch = "x86_64")]
        Self::Avx2,
        Self::Scalar,
    ];

    fn are_here(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("popcnt")
                    && is_x86_feature_detected!("bmi1")
                    && is_x86_feature_detected!("bmi2")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                Self::Avx2.are_here()
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

    /// The best that this processor has.
    pub(crate) fn best() -> Self {
        #[cfg(test)]
        if let Some(forced) = forced::get() {
            return forced;
        }
        Self::ALL.iter().copied().find(|each| each.are_here()).unwrap_or(Self::Scalar)
    }
}

/// Other instructions than the best, for tests.
#[cfg(test)]
pub(crate) mod forced {
    use std::cell::Cell;

    use super::Instructions;

    thread_local! {
        static FORCED: Cell<Option<Instructions>> = const { Cell::new(None) };
    }

    pub(super) fn get() -> Option<Instructions> {
        FORCED.get()
    }

    pub(crate) fn on_scalar(f: impl FnOnce()) {
        FORCED.set(Some(Instructions::Scalar));
        f();
        FORCED.set(None);
    }

    pub(crate) fn on_each(mut f: impl FnMut(Instructions)) {
        let mut compared = 0;
        for &instructions in Instructions::ALL {
            if !instructions.are_here() {
                println!("{instructions:?} is not on this machine");
                continue;
            }
            FORCED.set(Some(instructions));
            f(instructions);
            FORCED.set(None);
            compared += 1;
        }
        println!("sets of instructions compared: {compared} of {}", Instructions::ALL.len());
    }
}
