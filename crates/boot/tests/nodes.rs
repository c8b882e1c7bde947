//! Jobs on several nodes: who is on which, and who passes descriptors to whom. The ranks are this program again.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::time::Duration;
use tidegate_boot::TcpControl;
use tidegate_boot::launch::{Job, LaunchError, Nodes, Outcome, Output};
use tidegate_hal::control::{Control, Handle, Packet};

/// Long enough for a loaded machine.
const LONG: Duration = Duration::from_secs(60);

fn job(role: &str, nodes: &Nodes) -> Job {
    Job::this_program(nodes.ranks())
        .unwrap()
        .nodes(nodes.clone())
        .args(["--exact", "role_of_a_rank", "--nocapture", "--quiet"])
        .env("TEST_ROLE", role)
        .output(Output::Captured)
        .grace(LONG)
}

/// Not a test: what a rank does.
#[test]
fn role_of_a_rank() {
    let Ok(role) = std::env::var("TEST_ROLE") else {
        return;
    };
    let control = TcpControl::from_env().unwrap();
    match &*role {
        "descriptors" => descriptors(control),
        other => panic!("no such role: {other}"),
    }
    // Not by returning: the test harness would go on.
    std::process::exit(0);
}

/// Every rank gives away a file with its number in it, and looks at what it got.
fn descriptors(control: TcpControl) {
    let me = control.rank();
    for round in 0..3u8 {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[me as u8, round]).unwrap();
        let packet = Packet {
            bytes: vec![me as u8],
            handles: vec![Handle::Fd(file.into())],
        };
        let packets = control.exchange("files", packet).unwrap();
        for (rank, packet) in packets.into_iter().enumerate() {
            assert_eq!(packet.bytes, [rank as u8]);
            let near = control.node(rank) == control.node(me);
            assert_eq!(packet.handles.len(), usize::from(near), "of rank {rank}");
            for handle in packet.handles {
                let Handle::Fd(fd) = handle else {
                    panic!("a handle of another kind")
                };
                let mut bytes = [0; 2];
                File::from(fd).read_exact_at(&mut bytes, 0).unwrap();
                assert_eq!(bytes, [rank as u8, round]);
            }
        }
    }
    let nodes: Vec<_> = (0..control.size()).map(|rank| control.node(rank)).collect();
    println!("nodes {nodes:?}");
    control.leave();
}

fn assert_all_say(outcome: &Outcome, what: &str) {
    assert!(outcome.success(), "{outcome:?}");
    for rank in &outcome.ranks {
        let text = String::from_utf8_lossy(&rank.stdout);
        assert!(text.lines().any(|line| line == what), "no {what}: {text}");
    }
}

/// What the ranks of `descriptors` print.
fn numbered(nodes: &Nodes) -> String {
    let numbers: Vec<_> = (0..nodes.ranks())
        .filter_map(|rank| nodes.node(rank))
        .collect();
    format!("nodes {numbers:?}")
}

#[test]
fn one_machine_is_several_nodes_by_name() {
    for nodes in [
        Nodes::split(1, 3),
        Nodes::split(2, 1),
        Nodes::split(2, 4),
        Nodes::split(8, 1),
        Nodes::of([3, 1, 2]),
    ] {
        let outcome = job("descriptors", &nodes).run().unwrap();
        assert_all_say(&outcome, &numbered(&nodes));
    }
}

#[test]
fn ranks_know_their_place_on_their_node() {
    let outcome = Job::new("/bin/sh", 4)
        .nodes(Nodes::of([3, 1]))
        .args([
            "-c",
            "echo $RANK $TIDEGATE_NODE $LOCAL_RANK $LOCAL_WORLD_SIZE",
        ])
        .env("TIDEGATE_NODE", "not this one")
        .output(Output::Captured)
        .run()
        .unwrap();
    let said: Vec<_> = outcome
        .ranks
        .iter()
        .map(|rank| String::from_utf8_lossy(&rank.stdout).trim().to_owned())
        .collect();
    assert_eq!(
        said,
        ["0 node0 0 3", "1 node0 1 3", "2 node0 2 3", "3 node1 0 1"]
    );
}

#[test]
fn a_job_has_the_ranks_of_its_nodes() {
    let job = Job::new("true", 3).nodes(Nodes::split(2, 2));
    let error = job.run().unwrap_err();
    assert!(
        matches!(error, LaunchError::Nodes { ranks: 3, .. }),
        "{error}"
    );
    let text = error.to_string();
    assert_eq!(text, "the nodes 2x2 have 4 ranks, and the job 3");
}
