//! Makes a job from genes. It is deadlock-free by construction.
//!
//! A meeting is one epoch of one window between some of its ranks. All meetings are in one order, which is the same on
//! all ranks. In each rank's program, a post comes at its meeting or earlier, the complete at its meeting, and the wait
//! at its meeting or later. So an operation always waits for an earlier place in that order, whatever their streams:
//! streams keep the order of their rank's program, and a hand-off waits for everything before it in the program. This
//! holds even if the host waits after every operation, so inline streams and host reads may be anywhere. (With two
//! buffers, the post may even come after the complete of the same meeting, since that waits for the post before.)

use super::acts::{Book, acts, surface};
use super::genes::{Choices, Genes, MeetingGene, Segment};
use super::job::{
    CONTESTED, Chunk, Edge, Item, Job, Kind, LaneKind, Op, PER_WINDOW, Reg, Role, SHARED, What,
    Win, locked, own, tickets,
};
use super::value::{Ty, mix};

const LENGTHS: [usize; 10] = [1, 2, 3, 7, 16, 33, 64, 129, 700, 2500];

/// Makes the job.
pub(crate) fn plan(genes: &Genes) -> Job {
    let ranks = genes.ranks;
    let windows: Vec<Win> = genes
        .windows
        .iter()
        .map(|gene| {
            let ty = Ty::ALL[gene.ty as usize % Ty::ALL.len()];
            let kind = match gene.kind % 4 {
                0 => Kind::Slots { double: false },
                1 => Kind::Slots { double: true },
                2 => Kind::Ranges,
                _ if !ty.number() => Kind::Ranges,
                _ => Kind::Atomic {
                    own: 1 + gene.kind as usize / 4 % 4,
                },
            };
            window(ranks, ty, kind, &gene.edges)
        })
        .collect();
    let lanes = genes.lanes[..ranks].iter().map(|(count, inline)| {
        let kind = |index: usize| match inline >> index & 1 {
            0 => LaneKind::Thread,
            _ => LaneKind::Inline,
        };
        (0..*count).map(kind).collect()
    });
    let mut job = Job {
        ranks,
        lanes: lanes.collect(),
        windows,
        regions: vec![Vec::new(); ranks],
        programs: vec![Vec::new(); ranks],
    };
    for rank in 0..ranks {
        job.regions[rank] = regions(genes, &job, rank);
    }
    let mut books: Vec<_> = (0..ranks).map(|rank| Book::new(&job, rank)).collect();
    let mut last_loop: Option<Vec<(Vec<Item>, Vec<Reg>)>> = None;
    let mut items_of: Vec<Vec<Item>> = vec![Vec::new(); ranks];
    for (number, segment) in genes.segments.iter().enumerate() {
        for (rank, book) in books.iter_mut().enumerate() {
            let skeleton = skeleton(&job, segment, number, rank);
            let items = if segment.times == 0 {
                fill(&job, segment, number, rank, skeleton, book)
            } else {
                repeat(&job, segment, number, rank, skeleton, book)
            };
            items_of[rank] = items.clone();
            job.programs[rank].extend(items);
        }
        if segment.times != 0 {
            let of_rank = |rank: usize| (items_of[rank].clone(), books[rank].regions.clone());
            last_loop = Some((0..ranks).map(of_rank).collect());
        } else if let Some(last) = &last_loop
            && segment.again
            && (0..ranks).all(|rank| books[rank].regions == last[rank].1)
        {
            // Repeats the last loop with the same recording, if no length has changed.
            for (rank, (items, _)) in last.iter().enumerate() {
                job.programs[rank].extend(items.iter().cloned());
            }
        }
    }
    for (rank, book) in books.into_iter().enumerate() {
        let joins = book
            .into_joins()
            .map(|what| Item::Do(Op { on: None, what }));
        job.programs[rank].extend(joins);
    }
    let room = super::oracle::log_room(&job);
    for regions in &mut job.regions {
        let logs = regions.iter_mut().filter(|reg| reg.role == Role::Log);
        logs.for_each(|reg| reg.len += room);
    }
    job
}

fn window(ranks: usize, ty: Ty, kind: Kind, genes: &[(u8, u8, u8)]) -> Win {
    let mut edges: Vec<Edge> = Vec::new();
    let mut ends = vec![0; ranks];
    // For each target, the elements between those of a layout: where they begin, and how many there are.
    let mut gaps = vec![None; ranks];
    for (origin, target, len) in genes {
        let (origin, target) = (*origin as usize % ranks, *target as usize % ranks);
        let before = |edge: &&Edge| (edge.origin, edge.target) == (origin, target);
        let key = edges.iter().filter(before).count() as u64 * 5;
        if key > 0 && matches!(kind, Kind::Atomic { .. }) {
            continue;
        }
        let step = match (kind, *len as usize / LENGTHS.len() % 4) {
            (Kind::Ranges, 2) => 2,
            (Kind::Ranges, 3) => -2,
            _ => 1,
        };
        let len = LENGTHS[*len as usize % LENGTHS.len()];
        let first = match gaps[target].take_if(|(_, room)| step != 1 && *room >= len) {
            // Between those of another origin, or of another layout of this one.
            Some((gap, _)) => gap,
            None => {
                let first = ends[target];
                if step == 1 {
                    // There is a gap from time to time.
                    ends[target] += len + len % 2;
                } else {
                    gaps[target] = Some((first + 1, len));
                    ends[target] += 2 * len;
                }
                first
            }
        };
        let back = if step < 0 { 2 * (len - 1) } else { 0 };
        edges.push(Edge {
            origin,
            target,
            key,
            first: first + back,
            step,
            len,
        });
    }
    let memory = match kind {
        Kind::Slots { .. } => 0,
        Kind::Ranges => ends.into_iter().max().unwrap_or(0),
        Kind::Atomic { own } => ranks * own + SHARED + 2 * CONTESTED,
    };
    Win {
        ty,
        kind,
        edges,
        memory,
    }
}

/// The regions of a rank: those of each window, then data of every type that some window has, and then room for second
/// parts.
fn regions(genes: &Genes, job: &Job, rank: usize) -> Vec<Reg> {
    let mut all = Vec::new();
    let reg = |ty, len, role| Reg { ty, len, role };
    for win in &job.windows {
        let size = match win.kind {
            Kind::Atomic { own } => own,
            _ => 1,
        };
        all.extend([
            reg(Ty::U64, win.inbound(rank).count().max(1), Role::Sums),
            reg(Ty::U64, 1, Role::Log),
            reg(win.ty, CONTESTED, Role::Fetched),
            reg(win.ty, CONTESTED, Role::Fetched),
            reg(win.ty, CONTESTED, Role::Mine),
            reg(win.ty, CONTESTED, Role::Ones),
            reg(win.ty, CONTESTED, Role::Zeros),
            reg(win.ty, size, Role::Data),
            reg(win.ty, size, Role::Data),
            reg(win.ty, size, Role::Data),
        ]);
    }
    debug_assert_eq!(all.len(), job.windows.len() * PER_WINDOW);
    let first = all.len();
    for (index, (choice, len)) in genes.regions.iter().enumerate() {
        let len = LENGTHS[(*len as usize + rank * index) % LENGTHS.len()];
        let win = &job.windows[*choice as usize % job.windows.len()];
        all.push(reg(win.ty, len, Role::Data));
    }
    // Every window has at least one of its type.
    for win in &job.windows {
        if !all[first..].iter().any(|reg| reg.ty == win.ty) {
            all.push(reg(win.ty, 64, Role::Data));
        }
    }
    let rests: Vec<_> = all[first..]
        .iter()
        .map(|data| reg(data.ty, 0, Role::Rest))
        .collect();
    all.extend(rests);
    all
}

/// A planned operation: its place and kind, without the parts that depend on the state of the regions.
struct Bone<'g> {
    /// The meeting at which it happens, and its order there.
    place: (usize, u8),
    what: What,
    gene: &'g MeetingGene,
    /// The meeting to which it belongs.
    meeting: usize,
}

/// The pairs that take part.
fn pairs(win: &Win, gene: &MeetingGene) -> Vec<(usize, usize)> {
    let mut pairs: Vec<_> = win.edges.iter().map(|e| (e.origin, e.target)).collect();
    pairs.sort_unstable();
    pairs.dedup();
    let present = pairs
        .iter()
        .enumerate()
        .filter(|(index, _)| gene.absent >> (index % 16) & 1 == 0);
    present.map(|(_, pair)| *pair).collect()
}

/// `None` if it contains all.
fn group(some: Vec<usize>, all: &[usize], choices: &mut Choices<'_>) -> Option<Vec<usize>> {
    (some != all || choices.once_in(5)).then_some(some)
}

/// The actions of one rank in a segment, in order, without the acts.
fn skeleton<'g>(job: &Job, segment: &'g Segment, number: usize, rank: usize) -> Vec<Bone<'g>> {
    let mut bones: Vec<Bone<'g>> = Vec::new();
    let window_of = |gene: &MeetingGene| gene.window as usize % job.windows.len();
    // For each window, the first meeting at which its inbox is back.
    let mut free = vec![0; job.windows.len()];
    for (meeting, gene) in segment.meetings.iter().enumerate() {
        let window = window_of(gene);
        let win = &job.windows[window];
        let pairs = pairs(win, gene);
        let origins: Vec<_> = pairs
            .iter()
            .filter(|pair| pair.1 == rank)
            .map(|pair| pair.0)
            .collect();
        let targets: Vec<_> = pairs
            .iter()
            .filter(|pair| pair.0 == rank)
            .map(|pair| pair.1)
            .collect();
        let salt = (number * 100 + meeting) as u64;
        let mut choices = Choices::new(&gene.tape, mix(salt, rank as u64));
        let mut bone = |place: (usize, u8), what: What| {
            bones.push(Bone {
                place,
                what,
                gene,
                meeting,
            });
        };
        let all_origins = win.origins(rank);
        let here = |next: &MeetingGene| window_of(next) == window;
        let next = segment.meetings[meeting + 1..].iter().position(here);
        // Until just before the next meeting of this window.
        let last = next.map_or(segment.meetings.len() - 1, |after| meeting + after);
        let consume = What::Consume {
            window,
            salt: choices.salt(),
        };
        let fused = choices.once_in(3)
            && origins == all_origins
            && !(origins.is_empty() && targets.is_empty());
        let all_targets = win.targets(rank);
        let only_receives = targets.is_empty();
        let complete =
            (fused || !targets.is_empty()).then(|| group(targets, &all_targets, &mut choices));
        if fused {
            let group = complete.expect("there is an epoch, empty perhaps");
            bone(
                (meeting, 3),
                What::Exchange {
                    window,
                    group,
                    acts: Vec::new(),
                },
            );
            if !origins.is_empty() {
                bone((meeting, 6), consume);
                free[window] = meeting + 1;
            }
            continue;
        }
        if let Some(group) = complete {
            bone(
                (meeting, 3),
                What::Complete {
                    window,
                    group,
                    acts: Vec::new(),
                },
            );
        }
        if !origins.is_empty() {
            let wait = (meeting + choices.pick(last - meeting + 1), 5);
            // A rank that only receives in this meeting delays no rank that must not wait.
            if only_receives && choices.once_in(3) {
                let group = group(origins, &all_origins, &mut choices);
                bone((meeting, 5), What::Expose { window, group });
                bone((meeting, 6), consume);
                free[window] = meeting + 1;
                continue;
            }
            let late = win.double() && choices.once_in(3);
            let group = group(origins, &all_origins, &mut choices);
            if late && choices.once_in(2) {
                bone(wait, What::Expose { window, group });
            } else {
                let early = |choices: &mut Choices<'_>| choices.pick(meeting - free[window] + 1);
                let post = match late {
                    true => (wait.0, 4),
                    false => (meeting - early(&mut choices), 2),
                };
                bone(post, What::Post { window, group });
                let polls = choices.of(&[0, 0, 3, 255]);
                bone(wait, What::Wait { window, polls });
            }
            // Values that are fetched from an atomic window are judged by what the target finds each time.
            if matches!(win.kind, Kind::Atomic { .. }) || !choices.once_in(6) {
                bone((wait.0, 6), consume);
            }
            free[window] = wait.0 + 1;
        }
    }
    // The sort is stable, so that a rank's posts and waits at one place stay in the order of meetings.
    bones.sort_by_key(|bone| bone.place);
    bones
}

/// The kernels before and after an epoch.
fn around(what: &What, book: &Book, choices: &mut Choices<'_>) -> (Vec<What>, Vec<What>) {
    let (What::Complete { window, acts, .. } | What::Exchange { window, acts, .. }) = what else {
        return (Vec::new(), Vec::new());
    };
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let data: Vec<_> = acts
        .iter()
        .flat_map(|act| act.reads())
        .filter(|id| book.is_data(*id) && *id != own(*window, 1))
        .collect();
    for region in data.into_iter().take(2) {
        let salt = choices.salt();
        if !choices.once_in(3) {
            before.push(What::Change { region, salt });
        }
        if choices.once_in(2) {
            after.push(What::Change {
                region,
                salt: salt + 7,
            });
        }
    }
    let window = *window;
    for fetched in [tickets(window), locked(window)] {
        if acts.iter().any(|act| act.writes() == Some(fetched)) {
            after.push(What::Log { window, fetched });
        }
    }
    (before, after)
}

/// Chooses the acts of an operation's epoch, and the kernels around it.
fn flesh(
    job: &Job,
    segment_number: usize,
    rank: usize,
    bone: Bone<'_>,
    book: &mut Book,
) -> Vec<What> {
    let seed = mix(
        (segment_number * 100 + bone.meeting) as u64,
        1000 + rank as u64,
    );
    let mut choices = Choices::new(&bone.gene.tape, seed);
    let mut what = bone.what;
    match &mut what {
        What::Complete {
            window,
            group,
            acts: list,
        }
        | What::Exchange {
            window,
            group,
            acts: list,
        } => {
            let targets = group.clone().unwrap_or(job.windows[*window].targets(rank));
            *list = acts(job, rank, *window, &targets, book, &mut choices);
        }
        _ => {}
    }
    let (mut all, after) = around(&what, book, &mut choices);
    let fold = match &what {
        What::Consume { window, .. } if choices.once_in(2) => {
            let win = &job.windows[*window];
            let slots = match win.kind {
                Kind::Slots { .. } => win.inbound(rank).count(),
                _ => 0,
            };
            book.fold(win.ty, *window, slots, &mut choices)
        }
        _ => None,
    };
    all.push(what);
    all.extend(after);
    all.extend(fold);
    all
}

/// A segment that is done once, with operations in between that cannot be captured.
fn fill(
    job: &Job,
    segment: &Segment,
    number: usize,
    rank: usize,
    bones: Vec<Bone<'_>>,
    book: &mut Book,
) -> Vec<Item> {
    let streams = job.lanes[rank].len();
    let mut choices = Choices::new(&segment.tape, mix(number as u64, 2000 + rank as u64));
    let mut items = Vec::new();
    for bone in bones {
        let mut read = None;
        let mut place = |what: What, choices: &mut Choices<'_>| {
            let on = choices.once_in(2).then(|| choices.pick(streams));
            items.push(Item::Do(Op { on, what }));
        };
        for what in flesh(job, number, rank, bone, book) {
            if let What::Consume { window, .. } = what {
                read = choices.once_in(4).then_some(window);
            }
            let what = match what {
                What::Complete { .. } if choices.once_in(4) => {
                    surface(job, rank, what, book, &mut choices)
                }
                other => other,
            };
            place(what, &mut choices);
        }
        if let Some(window) = read {
            let salt = choices.salt();
            place(What::Read { window, salt }, &mut choices);
        }
        // This comes after the acts were chosen, since they depend on the state of the regions.
        for _ in 0..choices.of(&[0, 1, 1, 2]) {
            if let Some(extra) = book.extra(streams, &mut choices) {
                place(extra, &mut choices);
            }
        }
    }
    items
}

/// A loop.
fn repeat(
    job: &Job,
    segment: &Segment,
    number: usize,
    rank: usize,
    bones: Vec<Bone<'_>>,
    book: &mut Book,
) -> Vec<Item> {
    let streams = job.lanes[rank].len();
    let mut choices = Choices::new(&segment.tape, mix(number as u64, 3000 + rank as u64));
    let main = choices.pick(streams);
    let side = (streams > 1 && choices.once_in(2))
        .then(|| (main + 1 + choices.pick(streams - 1)) % streams);
    // Two inline streams cannot be captured together.
    let inline = |index: usize| job.lanes[rank][index] == LaneKind::Inline;
    let side = side.filter(|side| !(inline(main) && inline(*side)));
    let mut body = Vec::new();
    for bone in bones {
        for mut what in flesh(job, number, rank, bone, book) {
            if let What::Wait { polls, .. } = &mut what {
                // A test is refused in a capture.
                *polls = 0;
            }
            let on = match side {
                Some(side) if choices.once_in(2) => side,
                _ => main,
            };
            body.push(Op { on: Some(on), what });
        }
    }
    let mut left = u64::from(segment.times);
    let mut items = Vec::new();
    let mut last = Vec::new();
    if choices.once_in(2) {
        // The iterations overlap: each posts for the next one, and the last posts for none.
        let posts = turn(&mut body);
        last.extend(body.iter().take(body.len() - posts.len()).cloned());
        items.extend(posts.into_iter().map(Item::Do));
        left -= 1;
    }
    let mut chunks = Vec::new();
    while left > 0 {
        let times = 1 + choices.pick(left as usize) as u64;
        chunks.push(if choices.once_in(3) {
            Chunk::Eager(times)
        } else {
            Chunk::Replay(times)
        });
        left -= times;
    }
    items.push(Item::Loop {
        graph: number,
        body,
        main,
        side,
        chunks,
    });
    items.extend(last.into_iter().map(Item::Do));
    items
}

/// Moves posts to the end of a loop's body, for the next iteration. Returns those for the first one.
fn turn(body: &mut Vec<Op>) -> Vec<Op> {
    let post_of = |op: &Op| match op.what {
        What::Post { window, .. } => Some(window),
        _ => None,
    };
    let windows: Vec<_> = body.iter().filter_map(post_of).collect();
    let mut moved = Vec::new();
    for window in &windows {
        let only = windows.iter().filter(|other| *other == window).count() == 1;
        let fused = |op: &Op| matches!(op.what, What::Exchange { window: w, .. } | What::Expose { window: w, .. } if w == *window);
        if only && !body.iter().any(fused) {
            let is = |op: &Op| post_of(op) == Some(*window);
            let at = body.iter().position(is).expect("it was there");
            moved.push(body.remove(at));
        }
    }
    body.extend(moved.iter().cloned());
    moved
}
