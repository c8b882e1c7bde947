use super::super::figures::Figure;
use super::super::reach::Clock;
use super::*;
use crate::info::{NicTold, Place, SharedGpu, runs};

/// Ranks of these nodes, which are hosts with enough processors.
pub(in super::super) fn joined(nodes: &[usize]) -> Vec<Joined> {
    let way = |rank: usize, peer: usize| match nodes[rank] == nodes[peer] {
        true => Way::Mapped,
        false => Way::OtherNode,
    };
    let one = |rank: usize| Joined {
        told: Told {
            place: Place {
                host: format!("host{}", nodes[rank]),
                device: "host streams".into(),
                processors: "0-99".into(),
                memory: "0".into(),
            },
            ways: runs((0..nodes.len()).map(|peer| way(rank, peer))),
            staged: false,
            route: "auto".into(),
            nic: Some(NicTold {
                name: "tcp, software engine".into(),
                why: "chosen".into(),
                slots: 64,
            }),
            settings: Vec::new(),
        },
        gpu: None,
    };
    (0..nodes.len()).map(one).collect()
}

/// Ranks without a flaw.
fn here(size: usize) -> (Vec<Here>, Vec<String>) {
    let one = |rank: usize| Here {
        processors: rank.to_string(),
        locked: None,
        descriptors: (Some(1024), Some(4096)),
        used: 10,
        ..Here::default()
    };
    ((0..size).map(one).collect(), vec!["host".into(); size])
}

fn gpu(number: usize, mps: bool, queues: usize) -> Option<SharedGpu> {
    Some(SharedGpu {
        number,
        uuid: [number as u8; 16],
        mps,
        queues,
    })
}

fn texts(found: &[Finding]) -> Vec<String> {
    found.iter().map(Finding::what).collect()
}

#[test]
fn ranks_without_a_flaw_have_no_findings() {
    let nodes = [0, 0, 1, 1];
    let ((here, hosts), joined) = (here(4), joined(&nodes));
    assert_eq!(before(&here, &hosts, &nodes), []);
    assert_eq!(of_locked(&here, Some(&joined), &nodes), []);
    assert_eq!(after(&joined, &Routes::of(&joined), &nodes), []);
}

#[test]
fn ranks_with_the_same_flaw_are_one_finding() {
    let nodes = [0, 0, 1, 1];
    let (mut here, hosts) = here(4);
    for each in &mut here[1..] {
        each.processors = "7".into();
        each.descriptors = (Some(64), Some(64));
        each.complaints = vec!["TIDEGATE_X is wrong".into()];
    }
    here[3].address = Some("192.0.2.1".into());
    here[3].foreign = Some("no".into());
    assert_eq!(
        texts(&before(&here, &hosts, &nodes)),
        [
            "ranks 1-3 on nodes 0-1: TIDEGATE_X is wrong",
            "rank 3 on node 1: TIDEGATE_ADDRESS=192.0.2.1 is no address of their host: no",
            "ranks 1-3 on nodes 0-1 may have 64 descriptors: 10 are in use before the job begins, \
             and opening windows needs 256",
            "ranks 1-3 on nodes 0-1 share processor 7, and may use no other",
        ]
    );
}

#[test]
fn a_processor_of_its_own_or_of_another_host_is_no_flaw() {
    let (mut here, mut hosts) = here(2);
    here[1].processors = "0".into();
    hosts[1] = "other".into();
    assert_eq!(before(&here, &hosts, &[0, 1]), []);
    // Two processors for two ranks are enough.
    let (mut here, hosts) = self::here(2);
    here.iter_mut()
        .for_each(|each| each.processors = "0-1".into());
    assert_eq!(before(&here, &hosts, &[0, 0]), []);
}

#[test]
fn descriptors_are_needed_by_the_number_of_ranks() {
    let nodes = [0; 1000];
    let (here, hosts) = here(1000);
    let needed: u64 = 2048; // two descriptors for each of 1002, and those in use
    match &before(&here, &hosts, &nodes)[..] {
        [
            Finding::Descriptors {
                limit: 1024,
                needed: more,
                ..
            },
        ] => assert_eq!(*more, needed),
        other => panic!("{other:?}"),
    }
}

#[test]
fn locked_memory_matters_if_the_provider_locks_it() {
    let nodes = [0, 1];
    let (mut here, _) = here(2);
    here[1].locked = Some(64 << 10);
    let mut joined = joined(&nodes);
    let by = |joined: Option<&[Joined]>| match of_locked(&here, joined, &nodes).remove(0) {
        Finding::LockedMemory { by, .. } => by,
        other => panic!("{other:?}"),
    };
    assert_eq!(by(None), None);
    assert_eq!(by(Some(&joined)), None);
    joined[1].told.nic.as_mut().unwrap().name = "verbs;ofi_rxm, software engine".into();
    assert_eq!(by(Some(&joined)).as_deref(), Some("verbs;ofi_rxm"));
    // 8 MiB are enough where nothing locks memory.
    here[1].locked = Some(8 << 20);
    assert_eq!(of_locked(&here, None, &nodes), []);
    assert_eq!(of_locked(&here, Some(&joined), &nodes).len(), 1);
}

#[test]
fn gpus_are_shared_by_mps_and_have_queues() {
    let nodes = [0, 0, 0, 0];
    let mut joined = joined(&nodes);
    let mut judged = |gpus: [Option<SharedGpu>; 4]| {
        for (each, gpu) in joined.iter_mut().zip(gpus) {
            each.gpu = gpu;
        }
        texts(&after(&joined, &Routes::of(&joined), &nodes))
    };
    let own = [0, 1, 2, 3].map(|number| gpu(number, false, 32));
    assert_eq!(judged(own), [""; 0]);
    let in_turn = [0, 0, 1, 2].map(|number| gpu(number, false, 32));
    let words = "ranks 0-1 on node 0 share GPU 0 without MPS, so their kernels run in turn";
    assert_eq!(judged(in_turn), [words]);
    let by_mps = [0, 0, 0, 0].map(|number| gpu(number, true, 24));
    assert_eq!(judged(by_mps), [""; 0]);
    // The driver's own number under MPS.
    let two = [0, 0, 0, 0].map(|number| gpu(number, true, 2));
    let words = "ranks 0-3 on node 0 have 2 hardware queues of the GPU: room for 0 streams";
    assert_eq!(judged(two), [words]);
    // The same on GPUs of their own is one finding.
    let few = [0, 1, 2, 3].map(|number| gpu(number, false, 3));
    let words = "ranks 0-3 on node 0 have 3 hardware queues of the GPU: room for 1 stream";
    assert_eq!(judged(few), [words]);
}

#[test]
fn routes_that_are_missing_are_found() {
    let nodes = [0, 0, 1];
    let mut all = joined(&nodes);
    all[0].told.ways = runs([Way::Mapped, Way::Unmappable, Way::OtherNode]);
    all[1].told.ways = runs([Way::Mapped, Way::Mapped, Way::Refused]);
    all[1].told.nic = None;
    let routes = Routes::of(&all);
    assert_eq!(
        texts(&after(&all, &routes, &nodes)),
        [
            "rank 0 on node 0 cannot map the memory of rank 1, although on the same node",
            "rank 1 on node 0 has no route to rank 2: another node, and TIDEGATE_ROUTE allows no NIC",
        ]
    );
    assert!(routes.joins(0, 2) && routes.joins(0, 1) && !routes.joins(1, 2));
}

#[test]
fn calls_show_addresses_and_clocks() {
    let nodes = [0, 1, 2];
    let (mut here, _) = here(3);
    here[1].address = Some("10.0.0.2".into());
    let call = |from, to, answer| Call { from, to, answer };
    let clock = |ahead, error| Ok(Clock { ahead, error });
    let refused = || Err("refused".to_owned());
    let calls = [
        call(0, 1, clock(2_000_000_000, 40_000)),
        // Within the error, and of no importance.
        call(0, 2, clock(30_000_000, 20_000_000)),
        call(1, 2, clock(-2_000_000_000, 40_000)),
        call(2, 1, refused()),
        call(1, 2, refused()),
    ];
    assert_eq!(
        texts(&of_calls(&calls, &here, &nodes)),
        [
            "the clock of rank 1 on node 1 is 2000.0 ms ahead of that of rank 0 (within 0.0 ms)",
            "rank 2 on node 2 does not reach rank 1 on node 1 at TIDEGATE_ADDRESS=10.0.0.2: refused",
            "rank 1 on node 1 does not reach rank 2 on node 2 at 127.0.0.1, \
             since TIDEGATE_ADDRESS is not set there: refused",
        ]
    );
}

#[test]
fn a_slow_pair_is_a_finding_unless_ranks_take_turns() {
    let nodes = [0, 1, 2, 3];
    let mut all = joined(&nodes);
    let mut figures = Figures::new(4, 6);
    for high in 1..4 {
        for low in 0..high {
            let latency = 2.0;
            let bandwidth = [if (low, high) == (1, 2) { 1.0 } else { 9.0 }, 9.0];
            figures.note((low, high), Figure { latency, bandwidth });
        }
    }
    let words = "the way from rank 1 on node 1 to rank 2 on node 2 has 1.00 GB/s; \
                 the median by NIC (tcp, software engine) is 9.00 GB/s";
    let slow = Routes::of(&all).slow(&figures, &nodes);
    assert_eq!(slow.len(), 1);
    assert_eq!((slow[0].0, slow[0].1.what().as_str()), ((1, 2), words));
    for (mps, found) in [(true, 1), (false, 0)] {
        // Each pair of neighbours has a GPU.
        for (rank, each) in all.iter_mut().enumerate() {
            each.gpu = gpu(rank / 2, mps, 32);
        }
        assert_eq!(Routes::of(&all).slow(&figures, &nodes).len(), found);
    }
    for each in &mut all {
        (each.told.place.host, each.told.place.processors) = ("one".into(), "0-2".into());
    }
    assert!(Routes::of(&all).slow(&figures, &nodes).is_empty());
}
