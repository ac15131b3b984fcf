//! The network between nodes: messages as the bodies of HTTP requests.

use std::time::Duration;

use axum::http::Method;
use criba_raft::{Failure, Member};

use crate::http::Http;

pub(crate) struct Network(pub(crate) Http);

/// The longest wait for the answer to a part of a snapshot. openraft waits less for others.
const LIMIT: Duration = Duration::from_secs(600);

impl criba_raft::Network for Network {
    async fn send(&self, to: &Member, message: Vec<u8>) -> Result<Vec<u8>, Failure> {
        let (status, answer) =
            self.0.send(Method::POST, &to.address, "/raft", message, LIMIT).await?;
        if !status.is_success() {
            return Err(format!("{status}: {}", String::from_utf8_lossy(&answer)).into());
        }
        Ok(answer)
    }
}
