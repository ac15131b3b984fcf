//! A node is its directory: what happens when that is emptied, swapped or copied.

mod nodes;

use std::fs;
use std::path::Path;
use std::time::Duration;

use criba::Options;
use nodes::{Nodes, Opening};

/// No leader within this time: none will be.
const SILENCE: Duration = Duration::from_secs(2);

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_node_loses_no_acknowledged_write() {
    let mut nodes = Nodes::three().await;
    let leader = nodes.leader(SILENCE).await.unwrap();
    let (wiped, behind) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    nodes.stop(behind).await;
    nodes.write(0..50).await;
    nodes.stop(leader).await;
    nodes.stop(wiped).await;
    fs::remove_dir_all(nodes.directory(wiped)).unwrap();
    nodes.start(Opening::New, wiped).await.unwrap();
    nodes.start(Opening::Existing, behind).await.unwrap();
    let without = nodes.leader(SILENCE).await;
    nodes.start(Opening::Existing, leader).await.unwrap();
    let lost = nodes.lost(0..50).await;
    assert!(lost.is_empty(), "lost {} of 50 acknowledged writes", lost.len());
    assert_eq!(without, None, "led by one vote of two");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_directory_is_no_existing_node() {
    let mut nodes = Nodes::three().await;
    nodes.stop(2).await;
    fs::remove_dir_all(nodes.directory(2)).unwrap();
    assert!(nodes.start(Opening::Existing, 2).await.is_err());
    assert!(!nodes.directory(2).exists());
    fs::create_dir(nodes.directory(2)).unwrap();
    assert!(nodes.start(Opening::Existing, 2).await.is_err());
    assert_eq!(fs::read_dir(nodes.directory(2)).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn swapped_directories_are_refused() {
    let mut nodes = Nodes::three().await;
    nodes.write(0..10).await;
    nodes.stop(1).await;
    nodes.stop(2).await;
    for (id, other) in [(1, 2), (2, 1)] {
        let directory = nodes.directory(other);
        let opened = nodes.start_with(Options::new(), Opening::Existing, id, directory).await;
        assert!(opened.is_err(), "node {id} in the directory of node {other}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_another_node_is_refused() {
    let mut nodes = Nodes::three().await;
    nodes.write(0..10).await;
    nodes.stop(1).await;
    nodes.stop(2).await;
    fs::remove_dir_all(nodes.directory(2)).unwrap();
    copy(&nodes.directory(1), &nodes.directory(2));
    assert!(nodes.start(Opening::Existing, 2).await.is_err());
}
