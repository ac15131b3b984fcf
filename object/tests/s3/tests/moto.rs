//! A writer, a reader and the fence against another server of S3: moto, which is written in Python. `CRIBA_TEST_PYTHON`
//! names a Python that has `moto[server]`; else it is `python3`.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use criba_object::object_store::ObjectStore;
use criba_object::{Error, Options, Purpose, open, open_local, open_reader};
use criba_object_s3::{BUCKET, client};

struct Moto {
    child: Child,
    endpoint: String,
}

impl Moto {
    /// `None` without Python and moto.
    fn start() -> Option<Self> {
        let python = std::env::var("CRIBA_TEST_PYTHON").unwrap_or_else(|_| "python3".into());
        let mut probe = Command::new(&python);
        let probe = probe.args(["-c", "import moto.server"]).stderr(Stdio::null()).status();
        if !probe.is_ok_and(|status| status.success()) {
            return None;
        }
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/serve_moto.py");
        let mut command = Command::new(python);
        command.args([script, BUCKET]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut endpoint = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut endpoint).unwrap();
        Some(Self { child, endpoint: endpoint.trim().to_owned() })
    }

    fn client(&self) -> Arc<dyn ObjectStore> {
        Arc::new(client(&self.endpoint))
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

#[test]
fn a_writer_a_reader_and_the_fence_work_with_moto() {
    let Some(moto) = Moto::start() else {
        // Past the harness, which shows the output of failed tests only.
        std::io::stderr().write_all(b"skipped: no Python with moto[server]\n").unwrap();
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let options = || {
        let store = criba::Options::new().cache_bytes(0).memtable_bytes(1 << 20);
        Options::new().store(store).publish_every(None).local_bytes(0)
    };
    let first = open(moto.client(), at("first"), options()).unwrap();
    // The tables have more than one part of 8 MiB.
    for number in 0..20_000 {
        first.put(format!("user{:06}", 2 * number), [7; 600]).unwrap();
    }
    first.compact().unwrap();
    assert!(first.tables().iter().any(|table| table.file_bytes > 8 << 20));
    first.sync_remote().unwrap();

    let reader = open_reader(moto.client(), at("reader"), options()).unwrap();
    for number in 0..600 {
        let number = number * 61 % 40_000;
        let found = reader.get(format!("user{number:06}")).unwrap();
        assert_eq!(found.is_some(), number % 2 == 0, "{number}");
    }
    let blocks = reader.requests(Purpose::Blocks);
    assert_eq!(blocks.requests, reader.stats().total().disk_reads);
    assert!(blocks.requests >= 300 && blocks.repeated == 0, "{blocks:?}");
    assert_eq!(reader.iter().count(), 20_000);

    first.put("of the first", "").unwrap();
    let second = open(moto.client(), at("second"), options()).unwrap();
    second.put("of the second", "").unwrap();
    second.compact().unwrap();
    second.sync_remote().unwrap();
    let error = first.sync_remote().unwrap_err();
    assert!(matches!(error, Error::Fenced { unpublished: 1, .. }), "{error}");
    drop(first);
    let error = open(moto.client(), at("first"), options()).unwrap_err();
    assert!(matches!(error, Error::Fenced { .. }), "{error}");
    let local = open_local(moto.client(), at("first"), options()).unwrap();
    assert!(local.get("of the first").unwrap().is_some());

    assert!(reader.refresh().unwrap());
    assert!(reader.get("of the second").unwrap().is_some());
    assert_eq!(reader.get("of the first").unwrap(), None);
    assert_eq!(reader.iter().count(), 20_001);
}
