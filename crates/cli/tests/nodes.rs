//! Jobs on several nodes: the node of each rank, and the ranks that pass descriptors to each other. The ranks are this
//! program again.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tidegate_boot::TcpControl;
use tidegate_cli::{Bed, Job, LaunchError, Nodes, Outcome, Output, Signal};
use tidegate_hal::control::{
    Control, ControlError, Decision, Event, Handle, Letter, Packet, Proposal,
};
use tidegate_testbed::WireChoice;

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

/// This is not a test, but a rank's program.
#[test]
fn role_of_a_rank() {
    let Ok(role) = std::env::var("TEST_ROLE") else {
        return;
    };
    let control = match TcpControl::from_env() {
        Ok(control) => control,
        Err(error) => {
            println!("error {error}");
            std::process::exit(3);
        }
    };
    match &*role {
        "descriptors" => descriptors(control),
        "watch" => watch(control),
        other => panic!("no such role: {other}"),
    }
    // It does not return, because the test harness would go on.
    std::process::exit(0);
}

/// Every rank passes on a file with its number in it, and reads the files that it gets.
fn descriptors(control: TcpControl) {
    let me = control.rank();
    for round in 0..3u8 {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[me as u8, round]).unwrap();
        let packet = Packet {
            bytes: vec![me as u8],
            handles: vec![Handle::Fd(Arc::new(file.into()))],
        };
        let letters = (0..control.size()).map(|rank| {
            let packet = packet.clone();
            Letter { rank, packet }
        });
        let proposal = Proposal {
            letters: letters.collect(),
            ..Proposal::default()
        };
        let decision = control.confer("files", proposal).unwrap();
        let Decision::Agreed { letters, .. } = decision else {
            panic!("{decision:?}")
        };
        assert!(
            letters
                .iter()
                .map(|letter| letter.rank)
                .eq(0..control.size())
        );
        for Letter { rank, packet } in letters {
            assert_eq!(packet.bytes, [rank as u8]);
            let near = control.node(rank) == control.node(me);
            assert_eq!(packet.handles.len(), usize::from(near), "of rank {rank}");
            for handle in packet.handles {
                let Handle::Fd(fd) = handle else {
                    panic!("a handle of another kind")
                };
                let mut bytes = [0; 2];
                let file = File::from(fd.try_clone().unwrap());
                file.read_exact_at(&mut bytes, 0).unwrap();
                assert_eq!(bytes, [rank as u8, round]);
            }
        }
    }
    let nodes: Vec<_> = (0..control.size()).map(|rank| control.node(rank)).collect();
    println!("nodes {nodes:?}");
    control.leave();
}

/// Exchanges until an exchange fails, and prints why, and which ranks were lost.
fn watch(control: TcpControl) {
    let (sender, events) = channel();
    let sender = Mutex::new(sender);
    control.subscribe(Arc::new(move |event| {
        let _ = sender.lock().unwrap().send(event);
    }));
    control.exchange("start", Vec::new()).unwrap();
    let marks = std::path::PathBuf::from(std::env::var_os("TEST_MARKS").unwrap());
    std::fs::write(marks.join(control.rank().to_string()), "").unwrap();
    let error = loop {
        if let Err(error) = control.exchange("step", Vec::new()) {
            break error;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let ControlError::PeerLost { rank, reason, .. } = error else {
        panic!("{error}")
    };
    println!("exchange missed {rank}: {reason}");
    // If the link was cut, the other ranks of its node are lost, too. Further losses would come a moment later.
    let expected = match rank {
        0 => control.size() - 1,
        _ => std::env::var("TEST_LOST").unwrap().parse().unwrap(),
    };
    let mut count = 0;
    let patience = |count| {
        if count < expected {
            LONG
        } else {
            Duration::from_millis(1000)
        }
    };
    while let Ok(event) = events.recv_timeout(patience(count)) {
        if let Event::Lost { rank, reason } = event {
            println!("lost {rank}: {reason}");
            count += 1;
        }
    }
    control.leave();
}

fn assert_all_say(outcome: &Outcome, what: &str) {
    assert!(outcome.success(), "{outcome:?}");
    for rank in &outcome.ranks {
        let text = String::from_utf8_lossy(&rank.stdout);
        assert!(text.lines().any(|line| line == what), "no {what}: {text}");
    }
}

/// The output of the ranks of `descriptors`.
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
            "echo $RANK $TIDEGATE_NODE $LOCAL_RANK $LOCAL_WORLD_SIZE $TIDEGATE_DEVICE $TIDEGATE_RANKS_HERE",
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
        [
            "0 node0 0 3 0 4",
            "1 node0 1 3 1 4",
            "2 node0 2 3 2 4",
            "3 node1 0 1 3 4"
        ]
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

/// Runs `body` with both wires, as far as this machine can make them.
fn each_wire(test: &str, nodes: usize, body: impl Fn(Bed)) {
    for wire in [WireChoice::Auto, WireChoice::Relay] {
        if let Some(bed) = Bed::builder(nodes).wire(wire).build_or_skip(test) {
            body(bed);
        }
    }
}

#[test]
fn ranks_meet_across_namespaces() {
    for nodes in [
        Nodes::split(2, 1),
        Nodes::split(2, 4),
        Nodes::split(4, 2),
        Nodes::split(8, 1),
        Nodes::split(8, 2),
        Nodes::of([1, 3]),
    ] {
        each_wire("ranks_meet_across_namespaces", nodes.count(), |bed| {
            let outcome = job("descriptors", &nodes).bed(&bed).run().unwrap();
            assert_all_say(&outcome, &numbered(&nodes));
        });
    }
}

#[test]
fn a_bed_serves_several_jobs_and_a_user_without_privileges() {
    let bed = Bed::builder(2).user_namespace();
    let Some(bed) = bed.build_or_skip("a_bed_serves_several_jobs") else {
        return;
    };
    let nodes = Nodes::split(2, 2);
    let run = || job("descriptors", &nodes).bed(&bed).run().unwrap();
    std::thread::scope(|scope| {
        let both = [scope.spawn(run), scope.spawn(run)];
        for outcome in both {
            assert_all_say(&outcome.join().unwrap(), &numbered(&nodes));
        }
    });
    assert_all_say(&run(), &numbered(&nodes));
}

#[test]
fn ranks_meet_over_a_slow_and_lossy_wire() {
    let bed = Bed::builder(4)
        .delay(Duration::from_millis(1))
        .loss(0.01)
        .seed(1);
    let Some(bed) = bed.build_or_skip("ranks_meet_over_a_slow_and_lossy_wire") else {
        return;
    };
    let nodes = Nodes::split(4, 2);
    for _ in 0..5 {
        let outcome = job("descriptors", &nodes).bed(&bed).run().unwrap();
        assert_all_say(&outcome, &numbered(&nodes));
    }
    let traffic = bed.traffic().unwrap();
    assert!(traffic.delivered > 100 && traffic.lost > 0, "{traffic}");
}

#[test]
fn ranks_know_the_address_of_their_node() {
    let said = |job: Job| -> Vec<String> {
        let outcome = job.output(Output::Captured).run().unwrap();
        let said = outcome
            .ranks
            .iter()
            .map(|rank| String::from_utf8_lossy(&rank.stdout).into_owned());
        said.map(|text| text.trim().to_owned()).collect()
    };
    let ranks = |nodes: Nodes| {
        let job = Job::new("/bin/sh", nodes.ranks()).nodes(nodes);
        job.args(["-c", "echo $TIDEGATE_ADDRESS"])
    };
    assert_eq!(said(ranks(Nodes::split(2, 1))), ["127.0.0.1"; 2]);
    let two = ranks(Nodes::split(2, 1)).rank_env(1, "TIDEGATE_ADDRESS", "::1");
    assert_eq!(said(two), ["127.0.0.1", "::1"]);
    let Some(bed) = Bed::builder(3).build_or_skip("ranks_know_the_address_of_their_node") else {
        return;
    };
    let two = ranks(Nodes::of([1, 2])).bed(&bed);
    assert_eq!(said(two), ["10.77.0.1", "10.77.0.2", "10.77.0.2"]);
    let error = ranks(Nodes::split(4, 1)).bed(&bed).run().unwrap_err();
    assert!(
        matches!(error, LaunchError::SmallBed { nodes: 4, bed: 3 }),
        "{error}"
    );
}

/// A job whose ranks are known to be running.
struct Watched {
    job: tidegate_cli::Running,
    _marks: tempfile::TempDir,
}

/// A job in the role `watch`, which should lose `lost` ranks.
fn watched(nodes: &Nodes, bed: &Bed, silence: &str, lost: usize) -> Watched {
    let marks = tempfile::tempdir().unwrap();
    let job = job("watch", nodes)
        .bed(bed)
        .env("TEST_MARKS", marks.path())
        .env("TIDEGATE_HEARTBEAT_MS", "100")
        .env("TIDEGATE_SILENCE_MS", silence)
        .env("TEST_LOST", lost.to_string())
        .spawn()
        .unwrap();
    let started = Instant::now();
    let all_here = || (0..nodes.ranks()).all(|rank| marks.path().join(rank.to_string()).exists());
    while !all_here() {
        assert!(started.elapsed() < LONG, "the ranks do not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    Watched { job, _marks: marks }
}

/// The output of a rank: the rank that the exchange needed, the reason, and the ranks that it lost.
fn lost(outcome: &Outcome, rank: usize) -> (usize, String, Vec<usize>) {
    let text = String::from_utf8_lossy(&outcome.ranks[rank].stdout);
    let missed = text.lines().find_map(|line| {
        let (rank, why) = line.strip_prefix("exchange missed ")?.split_once(": ")?;
        Some((rank.parse().ok()?, why.to_owned()))
    });
    let (missed, why) = missed.unwrap_or_else(|| panic!("{:?}", outcome.ranks[rank]));
    let lost = text.lines().filter_map(|line| {
        let (rank, _) = line.strip_prefix("lost ")?.split_once(':')?;
        rank.parse().ok()
    });
    let mut lost: Vec<usize> = lost.collect();
    lost.sort_unstable();
    (missed, why, lost)
}

#[test]
fn a_rank_that_is_killed_on_another_node_is_noticed_at_once() {
    each_wire("a_rank_that_is_killed_on_another_node", 3, |bed| {
        let nodes = Nodes::split(3, 2);
        let watched = watched(&nodes, &bed, "60000", 1);
        watched.job.signal(3, Signal::KILL).unwrap();
        let outcome = watched.job.wait();
        assert_eq!(outcome.first_failure, Some(3), "{outcome:?}");
        for rank in [0, 1, 2, 4, 5] {
            let (missed, why, gone) = lost(&outcome, rank);
            assert_eq!((missed, &*gone), (3, &[3][..]), "rank {rank}: {outcome:?}");
            // The end of the connection shows it, and not silence.
            assert!(why.contains("the connection "), "{why}");
        }
    });
}

#[test]
fn a_node_that_vanishes_is_noticed_within_the_silence() {
    each_wire("a_node_that_vanishes", 3, |bed| {
        let nodes = Nodes::split(3, 2);
        let watched = watched(&nodes, &bed, "5000", 2);
        bed.cut(1).unwrap();
        let outcome = watched.job.wait();
        assert!(outcome.success(), "{outcome:?}");
        // There is no FIN and no RST, so only silence for the allowed time shows it. (Each side counts silence in
        // intervals of its own: rank 0 in 50 of 100 ms, the others in 34 of 150 ms.)
        for rank in [0, 1, 4, 5] {
            let (missed, why, gone) = lost(&outcome, rank);
            assert!([2, 3].contains(&missed), "rank {rank} missed {missed}");
            assert_eq!(gone, [2, 3], "rank {rank}: {outcome:?}");
            assert!(why.contains("nothing was heard of it for 5.0s"), "{why}");
        }
        // On the other side of the cut, rank 0 vanishes, and with it all news of the others.
        for rank in [2, 3] {
            let (missed, why, gone) = lost(&outcome, rank);
            let others: Vec<usize> = (0..6).filter(|other| *other != rank).collect();
            assert_eq!(missed, 0, "rank {rank}");
            assert_eq!(gone, others, "rank {rank}: {outcome:?}");
            assert!(why.contains("nothing was heard of it for 5.1s"), "{why}");
        }
    });
}

#[test]
fn a_node_that_cannot_be_reached_is_named() {
    let Some(bed) = Bed::builder(2).build_or_skip("a_node_that_cannot_be_reached_is_named") else {
        return;
    };
    bed.cut(1).unwrap();
    let job = job("descriptors", &Nodes::split(2, 1)).bed(&bed);
    let outcome = job.env("TIDEGATE_RENDEZVOUS_TIMEOUT", "2").run().unwrap();
    for (rank, what) in [(0, "had not joined: [1]"), (1, "was not met at 10.77.0.1:")] {
        let end = &outcome.ranks[rank];
        assert_eq!(end.status.code(), Some(3), "{end:?}");
        assert!(
            String::from_utf8_lossy(&end.stdout).contains(what),
            "{end:?}"
        );
        assert!(end.after < Duration::from_secs(20), "{end:?}");
    }
}

#[test]
fn a_link_that_is_mended_in_time_was_never_cut() {
    each_wire("a_link_that_is_mended_in_time", 2, |bed| {
        let nodes = Nodes::split(2, 1);
        let watched = watched(&nodes, &bed, "20000", 1);
        bed.cut(1).unwrap();
        std::thread::sleep(Duration::from_millis(700));
        bed.mend(1).unwrap();
        std::thread::sleep(Duration::from_secs(2));
        // Both are alive and go on. This shows in the ranks that are lost when one is killed.
        watched.job.signal(1, Signal::KILL).unwrap();
        let outcome = watched.job.wait();
        let (missed, why, _) = lost(&outcome, 0);
        assert_eq!(missed, 1);
        assert!(why.contains("the connection "), "{outcome:?}");
    });
}
