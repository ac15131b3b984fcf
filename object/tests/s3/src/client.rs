//! A client of the server: HTTP by hyper, without TLS.

use async_trait::async_trait;
use criba_object::object_store::aws::{AmazonS3, AmazonS3Builder};
use criba_object::object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest,
    HttpRequestBody, HttpResponse, HttpResponseBody, HttpService,
};
use criba_object::object_store::{Result, RetryConfig};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector as Connector;
use hyper_util::rt::TokioExecutor;

use crate::{ACCESS_KEY, BUCKET, SECRET_KEY};

#[derive(Debug)]
struct Plain(Client<Connector, HttpRequestBody>);

#[async_trait]
impl HttpService for Plain {
    async fn call(&self, request: HttpRequest) -> std::result::Result<HttpResponse, HttpError> {
        let failed = |error| HttpError::new(HttpErrorKind::Request, error);
        let (parts, body) = self.0.request(request).await.map_err(failed)?.into_parts();
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(Answer(body))))
    }
}

/// The body of an answer, with the errors of the interface.
struct Answer(hyper::body::Incoming);

impl hyper::body::Body for Answer {
    type Data = hyper::body::Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<std::result::Result<hyper::body::Frame<Self::Data>, HttpError>>>
    {
        let body = std::pin::Pin::new(&mut self.0);
        let failed = |error| HttpError::new(HttpErrorKind::Decode, error);
        body.poll_frame(context).map(|frame| frame.map(|frame| frame.map_err(failed)))
    }
}

#[derive(Debug)]
struct WithoutTls;

impl HttpConnector for WithoutTls {
    fn connect(&self, _: &ClientOptions) -> Result<HttpClient> {
        Ok(HttpClient::new(Plain(Client::builder(TokioExecutor::new()).build_http())))
    }
}

/// A client that signs its requests, and repeats none.
///
/// # Panics
/// Never: the settings are complete.
pub fn client(endpoint: &str) -> AmazonS3 {
    AmazonS3Builder::new()
        .with_http_connector(WithoutTls)
        .with_endpoint(endpoint)
        .with_bucket_name(BUCKET)
        .with_region("us-east-1")
        .with_access_key_id(ACCESS_KEY)
        .with_secret_access_key(SECRET_KEY)
        .with_allow_http(true)
        .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
        .build()
        .expect("complete settings")
}
