//! A server that speaks the protocol of S3, in the process of the tests.

mod client;
mod process;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::Method;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s_fs::FileSystem;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::Mutex;

pub use client::client;
pub use process::{Process, end_with_the_parent, report};

/// The key with which clients sign their requests.
pub const ACCESS_KEY: &str = "test-access-key";
/// Its secret.
pub const SECRET_KEY: &str = "test-secret-key";
/// The bucket that is there.
pub const BUCKET: &str = "bucket";

/// A running server.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    state: Arc<State>,
    _runtime: Runtime,
}

#[derive(Debug, Default)]
struct State {
    gets: AtomicU64,
    puts: AtomicU64,
    /// Refuses so many of the next requests.
    refusals: AtomicU64,
    /// The server's conditional PUT is not atomic.
    conditional: Mutex<()>,
}

impl Server {
    /// Starts a server of an empty bucket whose files are in `root`.
    ///
    /// # Panics
    /// No port or no directory can be had.
    pub fn start(root: &Path) -> Self {
        std::fs::create_dir(root.join(BUCKET)).expect("a new directory");
        let mut service =
            S3ServiceBuilder::new(FileSystem::new(root).expect("a directory of files"));
        service.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
        let service = service.build();
        let runtime = Runtime::new().expect("threads");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let address = listener.local_addr().expect("a bound one");
        let state = Arc::<State>::default();
        let of_task = Arc::clone(&state);
        runtime.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                // Else an answer in two packets waits 40 ms for the first one's acknowledgement.
                let _ = socket.set_nodelay(true);
                let (service, state) = (service.clone(), Arc::clone(&of_task));
                tokio::spawn(async move {
                    let answer = service_fn(move |request| {
                        answer(service.clone(), Arc::clone(&state), request)
                    });
                    // A client that closes its connection is no failure.
                    let _ = Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(socket), answer)
                        .await;
                });
            }
        });
        Self { address, state, _runtime: runtime }
    }

    /// The address of the server.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The GETs of objects so far, listings not counted.
    pub fn gets(&self) -> u64 {
        self.state.gets.load(Ordering::SeqCst)
    }

    /// The PUTs so far.
    pub fn puts(&self) -> u64 {
        self.state.puts.load(Ordering::SeqCst)
    }

    /// Lets the next requests fail with 503.
    pub fn refuse(&self, requests: u64) {
        self.state.refusals.store(requests, Ordering::SeqCst);
    }
}

async fn answer(
    service: S3Service,
    state: Arc<State>,
    request: hyper::Request<hyper::body::Incoming>,
) -> Result<s3s::HttpResponse, s3s::HttpError> {
    let is_listing = request.uri().query().is_some_and(|query| query.contains("list-type"));
    if request.method() == Method::GET && !is_listing {
        state.gets.fetch_add(1, Ordering::SeqCst);
    }
    if request.method() == Method::PUT {
        state.puts.fetch_add(1, Ordering::SeqCst);
    }
    let refuse = |left: u64| left.checked_sub(1);
    if state.refusals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, refuse).is_ok() {
        let mut refused = s3s::HttpResponse::new(s3s::Body::empty());
        *refused.status_mut() = hyper::StatusCode::SERVICE_UNAVAILABLE;
        return Ok(refused);
    }
    let is_conditional = request.headers().contains_key("if-none-match");
    let _alone = if is_conditional { Some(state.conditional.lock().await) } else { None };
    hyper::service::Service::call(&service, request).await
}
