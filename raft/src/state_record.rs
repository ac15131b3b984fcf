use openraft::{LogId, StoredMembership};
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::identity::Member;
use crate::layout::STATE;
use crate::records::read;

/// Where the pairs are, and what they include. Written by the batch that changes the pairs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct StateRecord {
    pub(crate) epoch: u64,
    pub(crate) last_applied: Option<LogId<u64>>,
    pub(crate) membership: StoredMembership<u64, Member>,
}

impl StateRecord {
    pub(crate) fn read(store: &impl criba::Reader) -> Result<Self> {
        Ok(read(store, STATE, "the state's record")?.unwrap_or_default())
    }
}
