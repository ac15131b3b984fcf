//! The place of a store's objects.

use std::sync::Arc;

use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreScheme};
use url::Url;

use crate::error::{Error, Result, without_queries};

/// The place of a store's objects: a URL, or an object store that the program made. Each place has one store.
///
/// A URL is `s3://BUCKET/PATH` (feature `aws`), `gs://BUCKET/PATH` (`gcp`), `az://CONTAINER/PATH` (`azure`),
/// `file:///PATH` or `memory:///PATH`. Keys, regions and endpoints come from the environment, by the names that
/// the crate `object_store` gives them (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT`).
#[derive(Debug, Clone)]
pub struct Location(Place);

#[derive(Debug, Clone)]
enum Place {
    Url(String),
    Store(Arc<dyn ObjectStore>, Path),
}

impl Location {
    /// A path in an object store.
    pub fn new(store: Arc<dyn ObjectStore>, path: impl Into<Path>) -> Self {
        Self(Place::Store(store, path.into()))
    }

    /// The object store, and the path there. No request.
    ///
    /// # Errors
    /// [`Error::Url`].
    pub fn connect(self) -> Result<(Arc<dyn ObjectStore>, Path)> {
        let url = match self.0 {
            Place::Store(store, path) => return Ok((store, path)),
            Place::Url(url) => url,
        };
        let refused = |url: &str, reason: String| Error::Url {
            url: url.to_owned(),
            reason: without_queries(&reason),
        };
        let parsed = Url::parse(&url).map_err(|error| refused("the URL", error.to_string()))?;
        let mut shown = parsed.clone();
        shown.set_query(None);
        // Only a URL without a host has no place for these.
        let _ = shown.set_username("").and_then(|()| shown.set_password(None));
        let refused = |reason: String| refused(shown.as_str(), reason);
        // Retries are this package's; `object_store` would repeat each request ten times on its own.
        let (scheme, path) =
            ObjectStoreScheme::parse(&parsed).map_err(|error| refused(error.to_string()))?;
        let store = connect(&scheme, &parsed).map_err(|error| refused(error.to_string()))?;
        Ok((store, path))
    }
}

fn connect(scheme: &ObjectStoreScheme, url: &Url) -> object_store::Result<Arc<dyn ObjectStore>> {
    let unsupported = || object_store::Error::Generic {
        store: "url",
        source: format!("this build has no feature for {scheme:?}").into(),
    };
    Ok(match scheme {
        ObjectStoreScheme::Local => Arc::new(object_store::local::LocalFileSystem::new()),
        ObjectStoreScheme::Memory => Arc::new(object_store::memory::InMemory::new()),
        #[cfg(feature = "aws")]
        ObjectStoreScheme::AmazonS3 => Arc::new(
            object_store::aws::AmazonS3Builder::from_env()
                .with_url(url.as_str())
                .with_retry(no_retries())
                .build()?,
        ),
        #[cfg(feature = "gcp")]
        ObjectStoreScheme::GoogleCloudStorage => Arc::new(
            object_store::gcp::GoogleCloudStorageBuilder::from_env()
                .with_url(url.as_str())
                .with_retry(no_retries())
                .build()?,
        ),
        #[cfg(feature = "azure")]
        ObjectStoreScheme::MicrosoftAzure => Arc::new(
            object_store::azure::MicrosoftAzureBuilder::from_env()
                .with_url(url.as_str())
                .with_retry(no_retries())
                .build()?,
        ),
        _ => {
            let _ = url;
            return Err(unsupported());
        }
    })
}

#[cfg(any(feature = "aws", feature = "gcp", feature = "azure"))]
fn no_retries() -> object_store::RetryConfig {
    object_store::RetryConfig { max_retries: 0, ..object_store::RetryConfig::default() }
}

impl From<&str> for Location {
    fn from(url: &str) -> Self {
        Self(Place::Url(url.to_owned()))
    }
}

impl From<Arc<dyn ObjectStore>> for Location {
    fn from(store: Arc<dyn ObjectStore>) -> Self {
        Self::new(store, Path::default())
    }
}
