//! Work on stores that are closed or broken: verification and repair.

pub(crate) mod repair;
pub(crate) mod verify;
