//! The client side of HTTP, for nodes and for the program that starts them.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::TokioExecutor;

/// Whether there was no connection, so that the request was not sent.
pub(crate) fn is_refused(error: &Failure) -> bool {
    error.downcast_ref::<legacy::Error>().is_some_and(legacy::Error::is_connect)
}

/// Keeps connections to all addresses.
#[derive(Clone)]
pub(crate) struct Http(Client<HttpConnector, Body>);

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

impl Http {
    pub(crate) fn new() -> Self {
        Self(Client::builder(TokioExecutor::new()).build_http())
    }

    /// Sends a request and waits for the whole answer, at most this long.
    pub(crate) async fn send(
        &self,
        method: Method,
        address: &str,
        path: &str,
        body: impl Into<Body>,
        limit: Duration,
    ) -> Result<(StatusCode, Vec<u8>), Failure> {
        let uri = format!("http://{address}{path}");
        let request = Request::builder().method(method).uri(uri).body(body.into())?;
        let answer = async {
            let response = self.0.request(request).await?;
            let status = response.status();
            let body = response.into_body().collect().await?.to_bytes();
            Ok::<_, Failure>((status, body.to_vec()))
        };
        tokio::time::timeout(limit, answer).await?
    }
}
