//! How much the schedules of all ranks send, within nodes and between them.

use super::*;

/// What all ranks send in a call.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sums {
    elements: usize,
    /// Between nodes: elements and messages.
    far: usize,
    messages: usize,
    /// The most stages of a rank.
    stages: usize,
}

fn sent_between(
    kind: JointKind,
    nodes: &Nodes,
    ranks: usize,
    count: usize,
    choice: Choice,
) -> Sums {
    let mut sums = Sums::default();
    for rank in 0..ranks {
        let job = Job {
            rank,
            ranks,
            size: 8,
            peers: 32,
            piece: choice.piece(ranks, 8, 1),
            nodes: nodes.clone(),
        };
        let counts = Counts::Equal(count);
        let made = schedule(
            &job,
            &choice,
            &What {
                kind,
                counts,
                reduction: None,
            },
            true,
        );
        sums.stages = made.stages.len().max(sums.stages);
        for send in made.stages.iter().flat_map(|stage| &stage.sends) {
            sums.elements += send.count;
            if nodes.of(send.to.rank) != nodes.of(rank) {
                sums.far += send.count;
                sums.messages += 1;
            }
        }
    }
    sums
}

/// The elements that all ranks of a node send in a call, and the most stages.
fn sent(kind: JointKind, ranks: usize, count: usize, choice: Choice) -> (usize, usize) {
    let sums = sent_between(kind, &Nodes::one(ranks), ranks, count, choice);
    (sums.elements, sums.stages)
}

/// Each datum crosses the network once for each node that needs it.
#[test]
fn between_nodes_data_goes_once_a_node() {
    let (short, long) = (4, 1 << 20);
    for (nodes, each) in [(2, 4), (4, 2), (3, 5)] {
        let ranks = nodes * each;
        let in_order = Nodes::new((0..ranks).map(|rank| rank / each));
        let dealt = Nodes::new((0..ranks).map(|rank| rank % nodes));
        for shape in [&in_order, &dealt] {
            let sent = |kind, count| sent_between(kind, shape, ranks, count, Choice::default());
            for count in [short, long] {
                let far = |kind| sent(kind, count).far;
                assert_eq!(far(JointKind::Broadcast { root: 1 }), (nodes - 1) * count);
                assert_eq!(far(JointKind::AllGather), (nodes - 1) * ranks * count);
                for kind in [
                    JointKind::Gather { root: 1 },
                    JointKind::Scatter { root: 1 },
                ] {
                    assert_eq!(far(kind), (ranks - each) * count);
                }
            }
            // A short message goes once a node, too.
            for kind in [
                JointKind::Broadcast { root: 1 },
                JointKind::Gather { root: 1 },
                JointKind::Scatter { root: 1 },
                JointKind::Reduce { root: 1 },
            ] {
                assert_eq!(sent(kind, short).messages, nodes - 1);
            }
            assert_eq!(
                sent(JointKind::AllGather, short).messages,
                ranks * (nodes - 1)
            );
            // Of a short all-reduce, all nodes get all vectors.
            let sums = sent(JointKind::AllReduce, 1);
            assert_eq!(
                (sums.far, sums.messages),
                (ranks * (nodes - 1), ranks * (nodes - 1))
            );
        }
        // Sums go from node to node, in the order of the ranks, and back.
        let far = |kind| sent_between(kind, &in_order, ranks, long, Choice::default()).far;
        assert_eq!(far(JointKind::AllReduce), 2 * (nodes - 1) * long);
        let last = ranks - 1;
        assert_eq!(far(JointKind::Reduce { root: last }), (nodes - 1) * long);
        assert_eq!(far(JointKind::Reduce { root: 0 }), nodes * long);
        let blocks = (nodes - 1) * ranks * long;
        assert_eq!(
            far(JointKind::ReduceScatter),
            blocks + (ranks - each) * long
        );
        // Where the order of the ranks goes to and fro between nodes, only the sums go once a node.
        let far = |kind| sent_between(kind, &dealt, ranks, long, Choice::default()).far;
        assert_eq!(
            far(JointKind::AllReduce),
            (ranks - each) * long + (nodes - 1) * long
        );
    }
}

/// From a chosen length on, sums go from node to node. Shorter vectors go in chunks, and cross more often.
#[test]
fn sums_go_from_node_to_node_from_a_chosen_length_on() {
    for (nodes, each) in [(2, 2), (4, 2)] {
        let ranks = nodes * each;
        let shape = Nodes::new((0..ranks).map(|rank| rank / each));
        for along in [1 << 16, 1 << 18] {
            let choice = Choice {
                along,
                ..Choice::default()
            };
            let far = |kind, count| sent_between(kind, &shape, ranks, count, choice).far;
            let (bound, below) = (along / 8, along / 8 - ranks);
            let least = |count| 2 * (nodes - 1) * count;
            assert_eq!(far(JointKind::AllReduce, bound), least(bound));
            assert!(far(JointKind::AllReduce, below) > least(below));
            let root = ranks - 1;
            let least = |count| (nodes - 1) * count;
            assert_eq!(far(JointKind::Reduce { root }, bound), least(bound));
            assert!(far(JointKind::Reduce { root }, below) > least(below));
        }
    }
}

#[test]
fn long_vectors_cost_as_few_bytes_as_a_ring() {
    for ranks in [2, 3, 8] {
        let count = 1 << 20;
        let (all, stages) = sent(JointKind::AllReduce, ranks, count, Choice::default());
        let ring = 2 * (ranks - 1) * count;
        assert!(all <= ring + ring / 20, "{all} instead of {ring}");
        // One piece for each stage, and one stage more.
        assert_eq!(stages, count.div_ceil(ranks).div_ceil((256 << 10) / 8) + 1);
        let (all, _) = sent(
            JointKind::Broadcast { root: 1 },
            ranks,
            count,
            Choice::default(),
        );
        assert_eq!(all, (ranks - 1) * count);
    }
    let (all, stages) = sent(JointKind::AllReduce, 8, 10, Choice::default());
    assert_eq!((all, stages), (8 * 7 * 10, 1));
    let (_, stages) = sent(JointKind::AllReduce, 64, 1, Choice::default());
    assert_eq!(stages, 1 + 6 + 1);
}

/// Whole vectors go in fewer stages than chunks do. Where they end depends on how many ranks share the time of a rank.
#[test]
fn the_bound_of_short_vectors_falls_with_the_number_of_ranks() {
    let (broadcast, reduce) = (
        JointKind::Broadcast { root: 1 },
        JointKind::Reduce { root: 1 },
    );
    let bytes = 49 << 10;
    for (kind, at_once, bound) in [
        (broadcast, false, bytes / 49),
        (broadcast, true, bytes / 7),
        (JointKind::AllReduce, false, bytes / 49),
        (JointKind::AllReduce, true, bytes / 7),
        (reduce, false, bytes / 49),
        (reduce, true, 4 * bytes / 7),
    ] {
        let choice = Choice {
            short: bytes,
            at_once,
            ..Choice::default()
        };
        let stages = |count| sent(kind, 8, count, choice).1;
        let most = bound / 8;
        assert_eq!(stages(most), stages(1), "{kind:?}, {at_once}");
        assert!(stages(most + 1) > stages(1), "{kind:?}, {at_once}");
    }
    // A scan sends to all higher ranks, or to the next one.
    for at_once in [false, true] {
        let choice = Choice {
            short: bytes,
            at_once,
            scan: 8,
            ..Choice::default()
        };
        let each = |count| sent(JointKind::Scan { exclusive: false }, 8, count, choice).0 / count;
        assert_eq!([128, 129].map(each), [28, 7]);
    }
}
