//! Collectives of ranks on several nodes: with the data of the oracle, and as few bytes between nodes as there can be.

use tidegate_fabric::Fabric;
use tidegate_fake::wire::{Faults, Net};

use super::*;

/// The options of a rank whose NIC is on a network in memory.
fn nic(net: &Net, rank: usize) -> WorldOptions {
    WorldOptions::new().nic(Fabric::over(net.wire(rank), Default::default()))
}

#[test]
fn ranks_of_several_nodes_have_all_of_them_too() {
    let shapes: [&[usize]; 5] = [
        &[0, 0, 1],
        &[0, 1, 0, 1],
        &[0, 0, 0, 1, 1],
        &[0, 1, 1, 2],
        &[0, 0, 1, 1, 2, 2],
    ];
    for (number, nodes) in shapes.into_iter().enumerate() {
        // The network also delivers in any order.
        let faults = Faults {
            seed: number as u64,
            full: 300,
            delay: 20,
            ..Faults::default()
        };
        let net = Net::new(nodes.len(), faults);
        let options = |rank| match number % 2 {
            0 => nic(&net, rank),
            _ => nic(&net, rank).staged(),
        };
        let program = |world: World<Host>| -> Result<()> {
            rounds(&world, 2, number as u64)?;
            // In a team, other ranks share nodes, and come in another order.
            let size = world.size();
            let team = world.split("turned", world.rank() % 3 % 2, size - world.rank())?;
            rounds_in(&team.expect("there is a color"), 1, 5)
        };
        let results = World::local_on(nodes, options, program);
        results.into_iter().collect::<Result<()>>().unwrap();
    }
}

/// The bytes that NICs carry in a call, for each of some collectives.
fn carried(nodes: &[usize], len: usize, by_node: bool) -> Vec<u64> {
    let net = Net::new(nodes.len(), Faults::default());
    let counts = World::<Host>::local_on(
        nodes,
        |rank| nic(&net, rank),
        |world| {
            stream!(let s = world.stream().unwrap());
            let ranks = world.size();
            let choice = Choice {
                by_node,
                ..Choice::on(&s)
            };
            let mut news = Broadcast::open_with(&s, "news", 1, len, choice).unwrap();
            let mut all = AllGather::open_with(&s, "all", len, choice).unwrap();
            let mut sums = AllReduce::open_with(&s, "sums", len, Op::Sum, choice).unwrap();
            let mut start = Barrier::open(&s, "start").unwrap();
            let mut x = Region::<u64, _>::zeroed(&world, len)
                .unwrap()
                .on(&s)
                .unwrap();
            let mut y = Region::zeroed(&world, ranks * len).unwrap().on(&s).unwrap();
            let mut counts = Vec::new();
            for call in 0..3 {
                // Nothing is carried at these moments: a barrier has no data.
                start.enqueue(&s).unwrap();
                s.synchronize().unwrap();
                let before = net.carried();
                start.enqueue(&s).unwrap();
                match call {
                    0 => news.enqueue(&s, &mut x).unwrap(),
                    1 => all.enqueue(&s, &x, &mut y).unwrap(),
                    _ => sums.enqueue(&s, &mut x).unwrap(),
                }
                start.enqueue(&s).unwrap();
                s.synchronize().unwrap();
                counts.push(net.carried() - before);
            }
            counts
        },
    );
    assert!(counts.iter().all(|all| *all == counts[0]), "{counts:?}");
    counts.into_iter().next().expect("there is a rank")
}

#[test]
fn nics_carry_each_datum_once_a_node() {
    let len = 3000;
    let bytes = |vectors: usize| (8 * len * vectors) as u64;
    for (nodes, each) in [(2, 4), (3, 2)] {
        let ranks = nodes * each;
        let shape: Vec<_> = (0..ranks).map(|rank| rank / each).collect();
        let others = nodes - 1;
        let expected = [others, others * ranks, 2 * others].map(bytes);
        assert_eq!(carried(&shape, len, true), expected);
        // Without it, each rank gets the data of other nodes by the network.
        let flat = carried(&shape, len, false);
        assert_eq!(flat[1], bytes(ranks * (ranks - each)));
        assert!(flat[0] > expected[0] && flat[2] > expected[2], "{flat:?}");
    }
}

/// With so many ranks a stage takes several rounds, and a rank reads in one what came in an earlier one.
#[test]
fn more_ranks_than_a_round_has_peers() {
    const LEN: usize = 128;
    for (nodes, each) in [(17, 2), (5, 8)] {
        let shape: Vec<_> = (0..nodes * each).map(|rank| rank / each).collect();
        let net = Net::new(shape.len(), Faults::default());
        let program = |world: World<Host>| -> Result<()> {
            stream!(let s = world.stream()?);
            let (rank, ranks) = (world.rank(), world.size());
            let sum = |to: usize| (to * (to + 1) / 2) as f64;
            let (mut all, mut one) = (
                AllReduce::open(&s, "all", LEN, Op::Sum)?,
                Reduce::open(&s, "one", ranks - 1, LEN, Op::Sum)?,
            );
            let mut parts = ReduceScatter::open(&s, "parts", LEN, Op::Sum)?;
            let mut scan = Scan::open(&s, "scan", LEN, Op::Sum)?;
            let mine = |len| Region::from_slice(&world, &vec![rank as f64 + 1.0; len])?.on(&s);
            let (mut x, mut at_root, blocks) = (mine(LEN)?, mine(LEN)?, mine(LEN * ranks)?);
            let [mut y, mut part, mut below] = [0; 3].map(|_| mine(LEN).unwrap());
            for _ in 0..2 {
                scan.enqueue_into(&s, &x, &mut below)?;
                all.enqueue_into(&s, &x, &mut y)?;
                parts.enqueue(&s, &blocks, &mut part)?;
            }
            one.enqueue(&s, &mut at_root)?;
            all.enqueue(&s, &mut x)?;
            let expected = [sum(ranks), sum(ranks), sum(ranks), sum(rank + 1)];
            for (came, expected) in [x, y, part, below].into_iter().zip(expected) {
                assert_eq!(
                    came.into_host(&s)?[..],
                    [expected; LEN],
                    "{rank} of {ranks}"
                );
            }
            let expected = [rank as f64 + 1.0, sum(ranks)][usize::from(rank == ranks - 1)];
            assert_eq!(at_root.into_host(&s)?[..], [expected; LEN]);
            Ok(())
        };
        let results = World::local_on(&shape, |rank| nic(&net, rank), program);
        results.into_iter().collect::<Result<()>>().unwrap();
    }
}

/// Rank 1 ends when it has enqueued its part of some calls. It also brings data to its node, and from there to another.
/// The others wait for it, and all of them are told.
#[test]
fn of_a_rank_that_leaves_all_nodes_hear() {
    for nodes in [[0, 0, 1, 1], [0, 1, 1, 1], [0, 1, 0, 1]] {
        let net = Net::new(nodes.len(), Faults::default());
        leave_in_the_middle(&nodes, |rank| nic(&net, rank));
    }
}
