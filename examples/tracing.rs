//! Events of a store as spans and events of `tracing`, and its figures as a page for Prometheus.
//!
//! `cargo run --example tracing`

use criba::{Db, Event, Options};
use tracing::{error, info, warn};

fn trace(event: &Event) {
    match event {
        Event::FlushEnded { tables, bytes, duration, error: None, .. } => {
            info!(?tables, bytes, seconds = duration.as_secs_f64(), "flushed");
        }
        Event::CompactionEnded { output_level, bytes, duration, error: None, .. } => {
            info!(output_level, bytes, seconds = duration.as_secs_f64(), "compacted");
        }
        Event::FilterDegraded { table, .. } => warn!(table, "{event}"),
        Event::TableDamaged { table, .. } => error!(table, "{event}"),
        Event::BackgroundFailed { work, error, .. } => error!(work, error, "background work fails"),
        other => info!("{other}"),
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_target(false).without_time().init();
    let dir = tempfile::tempdir()?;
    let db: Db = Options::new().latencies(true).on_event(trace).open(dir.path())?;
    for key in 0..1000_u32 {
        db.put(key.to_be_bytes(), "value")?;
    }
    db.flush()?;
    db.get("absent")?;
    println!("{}", db.openmetrics());
    Ok(db.close()?)
}
