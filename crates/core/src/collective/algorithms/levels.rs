//! Algorithms of two levels: between nodes each datum goes once a node, and not once a rank.
//!
//! Work is divided among the ranks of a node, so that each of them uses its own NIC. If all ranks are on one node, or
//! each on its own, [`share`] is a direct exchange.

use super::super::schedule::{Blocks, Buffer, From, Job, Schedule, Spot};
use super::direct::{INPUT, OUTPUT, SCRATCH};

/// Steps and slots of a part of a schedule.
pub(super) struct Part {
    /// The step in which the first pieces are sent.
    pub(super) step: usize,
    pub(super) pieces: usize,
    /// The lowest key of its slots.
    pub(super) key: u64,
}

/// Each rank of some groups has a datum, which all ranks of the groups get. A rank sends a piece to the ranks of its
/// own group, and to one rank of each other group. In the next step, that rank sends it to the others of its group.
/// `own` says where the own datum is, and `piece` where a piece of a rank goes, and how long it is.
pub(super) fn share(
    made: &mut Schedule,
    job: &Job,
    groups: &[Vec<usize>],
    part: &Part,
    own: impl Fn(usize) -> Spot,
    piece: impl Fn(usize, usize) -> (Spot, usize),
) {
    let seat_in = |group: &Vec<usize>| group.iter().position(|rank| *rank == job.rank);
    let mut found = groups.iter().enumerate();
    let Some((home, seat)) = found.find_map(|(at, group)| Some((at, seat_in(group)?))) else {
        return;
    };
    let near = &groups[home];
    let others = || near.iter().copied().filter(|rank| *rank != job.rank);
    let far = || {
        let far = groups.iter().enumerate();
        far.filter_map(|(group, ranks)| (group != home).then_some(ranks))
    };
    // The far ranks whose data comes to this group by the rank on a seat.
    let come_by = |seat: usize| -> Vec<usize> {
        let those = far().flat_map(|ranks| ranks.iter().skip(seat).step_by(near.len()));
        those.copied().collect()
    };
    let mine = come_by(seat);
    let seats = near.iter().enumerate().filter(|(at, _)| *at != seat);
    let theirs: Vec<_> = seats.map(|(at, rank)| (*rank, come_by(at))).collect();
    for number in 0..=part.pieces {
        let step = part.step + number;
        let (_, count) = piece(job.rank, number);
        for other in others() {
            made.send(job, step, (other, part.key), own(number), count);
            let (to, count) = piece(other, number);
            made.take(job, step, (other, part.key), to, count);
        }
        for ranks in far() {
            let relay = ranks[seat % ranks.len()];
            made.send(job, step, (relay, part.key), own(number), count);
        }
        for from in &mine {
            let (to, count) = piece(*from, number);
            made.take(job, step, (*from, part.key), to, count);
        }
        let Some(before) = number.checked_sub(1) else {
            continue;
        };
        let keys = || part.key + 1..;
        for (key, from) in keys().zip(&mine) {
            let (spot, count) = piece(*from, before);
            for other in others() {
                made.send(job, step, (other, key), spot, count);
            }
        }
        for (relay, ranks) in &theirs {
            for (key, from) in keys().zip(ranks) {
                let (to, count) = piece(*from, before);
                made.take(job, step, (*relay, key), to, count);
            }
        }
    }
}

/// All ranks get the blocks of all ranks.
pub(super) fn all_gather(job: &Job, input: Buffer, blocks: &Blocks) -> Schedule {
    let mut made = Schedule::default();
    let (mine, own) = (blocks.count(job.rank), OUTPUT.plus(blocks.first(job.rank)));
    let part = Part {
        step: 0,
        pieces: job.pieces_of(blocks.longest()),
        key: 0,
    };
    let source = match input {
        Buffer::Input => INPUT,
        _ => own,
    };
    if input == Buffer::Input {
        // Each piece goes beside its puts, and is in the caches then.
        made.copy_pieces_beside(job, INPUT, own, mine);
    }
    let from = |number| source.plus(job.piece_of(mine, number).0);
    let piece = |rank: usize, number| {
        let (first, count) = job.piece_of(blocks.count(rank), number);
        (OUTPUT.plus(blocks.first(rank) + first), count)
    };
    share(&mut made, job, job.nodes.groups(), &part, from, piece);
    made
}

/// An all-reduce of short vectors: each rank gets all vectors, and reduces them.
pub(super) fn share_and_reduce(job: &Job, input: Buffer, count: usize) -> Schedule {
    let mut made = Schedule::default();
    let part = Part {
        step: 0,
        pieces: job.pieces_of(count),
        key: 0,
    };
    made.copy_beside(
        0,
        Spot::new(input, 0),
        SCRATCH.plus(job.rank * count),
        count,
    );
    let own = |number| Spot::new(input, job.piece_of(count, number).0);
    let piece = |rank: usize, number| {
        let (first, len) = job.piece_of(count, number);
        (SCRATCH.plus(rank * count + first), len)
    };
    share(&mut made, job, job.nodes.groups(), &part, own, piece);
    reduce_scratch(&mut made, job, job.end(part.pieces) + 1, count);
    made
}

/// Reduces the vectors of all ranks, which lie in the scratch buffer, to the output.
pub(super) fn reduce_scratch(made: &mut Schedule, job: &Job, stage: usize, count: usize) {
    made.needs_scratch(job.ranks * count);
    let vectors: Vec<_> = (0..job.ranks)
        .map(|rank| From::Spot(SCRATCH.plus(rank * count)))
        .collect();
    made.fold_behind(stage, &vectors, OUTPUT, count);
}

/// A broadcast of a long vector. The root deals out the vector among the other ranks of its node, and once more among
/// the ranks of other nodes. In both sets, each rank sends its chunk to the others.
pub(super) fn deal(job: &Job, root: usize, count: usize) -> Schedule {
    let mut made = Schedule::default();
    let nodes = &job.nodes;
    let home = nodes.of(root);
    let near: Vec<_> = nodes.groups()[home]
        .iter()
        .copied()
        .filter(|rank| *rank != root)
        .collect();
    let far = nodes.others(home).cloned().collect();
    for groups in [vec![near], far] {
        // The chunks belong to the ranks in the order in which they come behind the root.
        let mut ranks: Vec<_> = groups.iter().flatten().copied().collect();
        ranks.sort_unstable_by_key(|rank| (rank + job.ranks - root) % job.ranks);
        if ranks.is_empty() {
            continue;
        }
        let chunks = Blocks::split(ranks.len(), count);
        let pieces = job.pieces_of(chunks.longest());
        let mut chunk_of = vec![0; job.ranks];
        for (chunk, rank) in ranks.iter().enumerate() {
            chunk_of[*rank] = chunk;
        }
        let piece = |rank: usize, number: usize| {
            let chunk = chunk_of[rank];
            let (first, count) = job.piece_of(chunks.count(chunk), number);
            (OUTPUT.plus(chunks.first(chunk) + first), count)
        };
        for number in 0..pieces {
            for rank in &ranks {
                let (spot, count) = piece(*rank, number);
                if job.rank == root {
                    made.send(job, number, (*rank, 0), spot, count);
                } else if job.rank == *rank {
                    made.take(job, number, (root, 0), spot, count);
                }
            }
        }
        let part = Part {
            step: 1,
            pieces,
            key: 0,
        };
        share(
            &mut made,
            job,
            &groups,
            &part,
            |number| piece(job.rank, number).0,
            piece,
        );
    }
    made
}

/// The tree of a broadcast: the root sends to one rank of some other nodes, these to one of others, and each of these
/// ranks is the root of a tree of its node. Returns this rank's parent, and its children, those on other nodes first.
pub(super) fn family(
    job: &Job,
    root: usize,
    tree: impl Fn(usize, usize) -> (Option<usize>, Vec<usize>),
) -> (Option<usize>, Vec<usize>) {
    let nodes = &job.nodes;
    let (here, home) = (nodes.of(job.rank), nodes.of(root));
    let leader = |node: usize| match node == home {
        true => root,
        false => nodes.worker(node, 0),
    };
    let ranks = &nodes.groups()[here];
    let first = nodes.seat(leader(here));
    let place = (nodes.seat(job.rank) + ranks.len() - first) % ranks.len();
    let rank_at = |place: usize| ranks[(place + first) % ranks.len()];
    let (parent, near) = tree(place, ranks.len());
    let near = near.into_iter().map(rank_at);
    if job.rank != leader(here) {
        return (parent.map(rank_at), near.collect());
    }
    let all = nodes.groups().len();
    let leader_at = |place: usize| leader((place + home) % all);
    let (parent, far) = tree((here + all - home) % all, all);
    let far = far.into_iter().map(leader_at);
    (parent.map(leader_at), far.chain(near).collect())
}
