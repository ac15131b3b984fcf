//! The command's counts of requests are the server's.

use std::sync::Arc;
use std::time::Duration;

use criba_cli::readamp::input::Input;
use criba_object::object_store::ObjectStore;
use criba_object_cli::measure::{Settings, measure};
use criba_object_cli::report::Prices;
use criba_object_s3::Server;

#[test]
fn the_gets_of_readamp_are_those_of_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let store: Arc<dyn ObjectStore> = Arc::new(criba_object_s3::client(&server.endpoint()));
    let settings = Settings {
        bits_per_key: 10.0,
        delay: Duration::ZERO,
        lookups: 300,
        threads: 4,
        seed: 1,
        table_bytes: 16 << 10,
        prices: Prices { thousand_gets: 0.0004, thousand_puts: 0.005 },
        lookups_a_second: 1.0,
    };
    let input = Input::made_up(6000, 10_000, 1);
    let report = measure((store, "below".into()), &input, &settings, &|_| {}).unwrap();
    assert!(report.checks_hold, "{report:?}");
    let mut gets = report.loading.gets + report.rebuilding.gets;
    let mut reads = 0;
    for run in &report.runs {
        gets += run.opening.gets + run.absent.requests.gets + run.present.requests.gets;
        reads += run.absent.disk_reads + run.present.disk_reads;
    }
    assert!(reads > 1000, "{reads}");
    assert_eq!(server.gets(), gets);
    assert!(server.puts() >= report.loading.puts + report.rebuilding.puts);
}
