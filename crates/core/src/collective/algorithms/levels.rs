//! Algorithms of two levels: between nodes each datum goes once a node, and not once a rank.
//!
//! Work is divided among the ranks of a node, so that each of them uses its own NIC. If all ranks are on one node, or
//! each on its own, [`share`] is a direct exchange.

use super::super::nodes::Nodes;
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
    let found = groups.iter().enumerate();
    let Some((home, seat)) = found
        .filter_map(|(at, group)| Some((at, seat_in(group)?)))
        .next()
    else {
        return;
    };
    let near = &groups[home];
    let others = || {
        near.iter()
            .enumerate()
            .filter(|(_, rank)| **rank != job.rank)
    };
    let far = || {
        groups
            .iter()
            .enumerate()
            .filter(|(group, _)| *group != home)
            .map(|(_, ranks)| ranks)
    };
    // The far ranks whose data comes to this node by the rank on a seat.
    let come_by = |seat: usize| -> Vec<usize> {
        let of = |ranks: &Vec<usize>| {
            let those = ranks
                .iter()
                .enumerate()
                .filter(|(number, _)| number % near.len() == seat);
            those.map(|(_, rank)| *rank).collect::<Vec<_>>()
        };
        far().flat_map(of).collect()
    };
    let mine = come_by(seat);
    let theirs: Vec<_> = others()
        .map(|(seat, rank)| (*rank, come_by(seat)))
        .collect();
    for number in 0..=part.pieces {
        let step = part.step + number;
        let (_, count) = piece(job.rank, number);
        for (_, other) in others() {
            made.send(job, step, (*other, part.key), own(number), count);
            let (to, count) = piece(*other, number);
            made.take(job, step, (*other, part.key), to, count);
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
            for (_, other) in others() {
                made.send(job, step, (*other, key), spot, count);
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
        // Beside the puts of the same piece, which is in the caches then.
        for number in 0..part.pieces {
            let (first, count) = job.piece_of(mine, number);
            let stage = number * job.turns();
            made.copy_beside(stage, INPUT.plus(first), own.plus(first), count);
        }
    }
    let from = |number| source.plus(job.piece_of(mine, number).0);
    let piece = |rank: usize, number| {
        let (first, count) = job.piece_of(blocks.count(rank), number);
        (OUTPUT.plus(blocks.first(rank) + first), count)
    };
    share(&mut made, job, job.nodes.groups(), &part, from, piece);
    made
}

/// The blocks of a node in one message: where the block of each of its ranks begins, and how long it is.
fn bundle(ranks: &[usize], blocks: &Blocks) -> (Vec<(usize, usize, usize)>, usize) {
    let mut all = 0;
    let each = ranks.iter().map(|rank| {
        let (at, count) = (all, blocks.count(*rank));
        all += count;
        (*rank, at, count)
    });
    (each.collect(), all)
}

/// The most elements of the blocks of one node.
pub(super) fn longest_bundle(nodes: &Nodes, blocks: &Blocks) -> usize {
    let each = nodes.groups().iter().map(|ranks| bundle(ranks, blocks).1);
    each.max().unwrap_or(0)
}

/// The root gets the blocks of all ranks, those of another node in one message. `own` is this rank's block, and `to` says
/// where a block goes. Returns the schedule, and its last stage.
pub(super) fn gather(
    job: &Job,
    root: usize,
    blocks: &Blocks,
    own: Spot,
    to: impl Fn(usize) -> Spot,
) -> (Schedule, usize) {
    let mut made = Schedule::default();
    let nodes = &job.nodes;
    let (here, home) = (nodes.of(job.rank), nodes.of(root));
    let mine = blocks.count(job.rank);
    let last = job.end(1);
    if job.rank == root {
        made.copy_beside(0, own, to(root), mine);
        for other in nodes.groups()[home].iter().filter(|rank| **rank != root) {
            made.take(job, 0, (*other, 0), to(*other), blocks.count(*other));
        }
        for (_, ranks) in nodes
            .groups()
            .iter()
            .enumerate()
            .filter(|(node, _)| *node != home)
        {
            let (each, all) = bundle(ranks, blocks);
            let from = made.receive(job, 1, (ranks[0], 0), all);
            // Blocks that lie side by side at both ends are one copy.
            let mut copies: Vec<(usize, Spot, usize)> = Vec::new();
            for (rank, at, count) in each {
                match copies.last_mut() {
                    Some((first, spot, len))
                        if *first + *len == at && spot.plus(*len) == to(rank) =>
                    {
                        *len += count
                    }
                    _ => copies.push((at, to(rank), count)),
                }
            }
            for (at, spot, count) in copies {
                made.copy_behind_from(job, 1, ranks[0], from.plus(at), spot, count);
            }
        }
        return (made, last);
    }
    let leader = nodes.worker(here, 0);
    if here == home {
        made.send(job, 0, (root, 0), own, mine);
    } else if job.rank != leader {
        made.send(job, 0, (leader, 0), own, mine);
    } else {
        let (each, all) = bundle(&nodes.groups()[here], blocks);
        made.needs_scratch(all);
        for (rank, at, count) in each {
            match rank == job.rank {
                true => made.copy_beside(0, own, SCRATCH.plus(at), count),
                false => made.take(job, 0, (rank, 0), SCRATCH.plus(at), count),
            }
        }
        made.send(job, 1, (root, 0), SCRATCH, all);
    }
    (made, last)
}

/// Each rank gets its block of the root's. The root sends the blocks of another node in one message.
pub(super) fn scatter(job: &Job, root: usize, blocks: &Blocks) -> Schedule {
    let mut made = Schedule::default();
    let nodes = &job.nodes;
    let (here, home) = (nodes.of(job.rank), nodes.of(root));
    let mine = blocks.count(job.rank);
    // If the blocks of a node do not lie side by side, the root copies them first.
    let begin = usize::from(!nodes.are_in_order());
    if job.rank == root {
        made.copy_beside(0, INPUT.plus(blocks.first(root)), OUTPUT, mine);
        for other in nodes.groups()[home].iter().filter(|rank| **rank != root) {
            made.send(
                job,
                begin,
                (*other, 0),
                INPUT.plus(blocks.first(*other)),
                blocks.count(*other),
            );
        }
        let mut used = 0;
        for (_, ranks) in nodes
            .groups()
            .iter()
            .enumerate()
            .filter(|(node, _)| *node != home)
        {
            let (each, all) = bundle(ranks, blocks);
            let mut from = INPUT.plus(blocks.first(ranks[0]));
            if begin != 0 {
                from = SCRATCH.plus(used);
                for (rank, at, count) in each {
                    made.copy_beside(0, INPUT.plus(blocks.first(rank)), from.plus(at), count);
                }
                used += all;
            }
            made.send(job, begin, (ranks[0], 0), from, all);
        }
        made.needs_scratch(used);
        return made;
    }
    let leader = nodes.worker(here, 0);
    if here == home {
        made.take(job, begin, (root, 0), OUTPUT, mine);
    } else if job.rank != leader {
        made.take(job, begin + 1, (leader, 0), OUTPUT, mine);
    } else {
        let (each, all) = bundle(&nodes.groups()[here], blocks);
        let from = made.receive(job, begin, (root, 0), all);
        for (rank, at, count) in each {
            if rank == job.rank {
                made.copy_behind_from(job, begin, root, from.plus(at), OUTPUT, count);
                continue;
            }
            made.copy_behind_from(job, begin, root, from.plus(at), SCRATCH.plus(at), count);
            made.send(job, begin + 1, (rank, 0), SCRATCH.plus(at), count);
        }
        made.needs_scratch(all);
    }
    made
}

/// A reduce of short vectors: the root gathers all vectors, and reduces them.
pub(super) fn gather_and_reduce(job: &Job, root: usize, count: usize) -> Schedule {
    let blocks = Blocks::equal(job.ranks, count);
    let place = |rank: usize| SCRATCH.plus(rank * count);
    let (mut made, last) = gather(job, root, &blocks, OUTPUT, place);
    if job.rank == root {
        reduce_scratch(&mut made, job, last + 1, count);
    }
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
fn reduce_scratch(made: &mut Schedule, job: &Job, stage: usize, count: usize) {
    made.needs_scratch(job.ranks * count);
    let vectors: Vec<_> = (0..job.ranks)
        .map(|rank| From::Spot(SCRATCH.plus(rank * count)))
        .collect();
    made.fold_behind(job, stage, &vectors, OUTPUT, count);
}

/// Where the chunks of a reduction go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    All,
    Rank(usize),
    /// Each chunk to the rank of its number, to the beginning of its output.
    Each,
}

/// The shortest piece that nodes send each other, in bytes, and how many pieces there are for each node, if they are
/// not shorter: while one piece goes from node to node, others follow.
const SHORTEST: usize = 16 << 10;
const FOLLOW: usize = 4;

/// A reduction where the ranks of each node follow each other. In a node, each rank reduces some chunks. What it has
/// goes to the rank of the next node that works on the same chunk, and that rank goes on with the vectors of its own
/// node. So each element is reduced in the order of the ranks. Where all ranks need the result, it goes back from node
/// to node, and from each of these ranks to those of its node.
pub(super) fn along_nodes(job: &Job, input: Buffer, chunks: &Blocks, goal: Goal) -> Schedule {
    let mut made = Schedule::default();
    let nodes = &job.nodes;
    let (here, all) = (nodes.of(job.rank), nodes.groups().len());
    let last = all - 1;
    let near = || nodes.groups()[here].iter().copied();
    let bytes = chunks.longest().saturating_mul(job.size);
    let piece = (bytes / (FOLLOW * all)).max(SHORTEST) / job.size;
    let pieces = Job {
        piece: piece.clamp(1, job.piece),
        ..job.clone()
    };
    let worker = |node: usize, chunk: usize| match goal {
        Goal::Each => nodes.worker(node, nodes.seat(chunk)),
        _ => nodes.worker(node, chunk),
    };
    let count_of_chunks = match goal {
        Goal::Each => job.ranks,
        _ => nodes.longest(),
    };
    // Of a chunk, the vectors and what has been reduced have one key, and the result has another.
    let keys = |chunk: usize| (chunk as u64, (count_of_chunks + chunk) as u64);
    let mut works_on = 0;
    for chunk in 0..count_of_chunks {
        let me = worker(here, chunk);
        let is_mine = me == job.rank;
        let (key, result) = keys(chunk);
        let scratch = SCRATCH.plus(works_on * pieces.piece);
        works_on += usize::from(is_mine);
        for number in 0..pieces.pieces_of(chunks.count(chunk)) {
            let (first, count) = pieces.piece_of(chunks.count(chunk), number);
            let own = Spot::new(input, chunks.first(chunk) + first);
            let place = match goal {
                Goal::Each => OUTPUT.plus(first),
                _ => OUTPUT.plus(chunks.first(chunk) + first),
            };
            let step = number + here;
            // The step in which the last node has reduced the piece.
            let reduced = number + last;
            if !is_mine {
                made.send(job, step, (me, key), own, count);
            } else {
                let before = here.checked_sub(1).map(|node| worker(node, chunk));
                let vector =
                    |made: &mut Schedule, rank| made.receive(job, step, (rank, key), count);
                let before = before.map(|rank| vector(&mut made, rank));
                let gets = match goal {
                    Goal::All => true,
                    Goal::Rank(root) => root == job.rank,
                    Goal::Each => chunk == job.rank,
                };
                let to = if here == last && gets { place } else { scratch };
                let mut mine = own;
                made.needs_scratch(works_on * pieces.piece);
                if own == to {
                    made.copy_beside(job.end(step), own, scratch, count);
                    mine = scratch;
                }
                let mut vectors: Vec<_> = before.into_iter().collect();
                for rank in near() {
                    vectors.push(match rank == job.rank {
                        true => From::Spot(mine),
                        false => vector(&mut made, rank),
                    });
                }
                made.fold_behind(job, job.end(step), &vectors, to, count);
                if here < last {
                    made.send(
                        job,
                        step + 1,
                        (worker(here + 1, chunk), key),
                        scratch,
                        count,
                    );
                }
            }
            match goal {
                Goal::All => {
                    // It comes from the next node, and goes on in the step after.
                    let step = reduced + last - here + 1;
                    if !is_mine {
                        made.take(job, step, (me, result), place, count);
                        continue;
                    }
                    if here < last {
                        let from = worker(here + 1, chunk);
                        made.take(job, step - 1, (from, result), place, count);
                    }
                    let next = here.checked_sub(1).map(|node| worker(node, chunk));
                    for rank in near().filter(|rank| *rank != job.rank).chain(next) {
                        made.send(job, step, (rank, result), place, count);
                    }
                }
                Goal::Rank(_) | Goal::Each => {
                    let rank = match goal {
                        Goal::Rank(root) => root,
                        _ => chunk,
                    };
                    let from = worker(last, chunk);
                    if from == job.rank && rank != job.rank {
                        made.send(job, reduced + 1, (rank, result), scratch, count);
                    }
                    if rank == job.rank && from != job.rank {
                        made.take(job, reduced + 1, (from, result), place, count);
                    }
                }
            }
        }
    }
    made
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
    let far: Vec<_> = nodes
        .groups()
        .iter()
        .enumerate()
        .filter(|(node, _)| *node != home)
        .map(|(_, ranks)| ranks.clone())
        .collect();
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
