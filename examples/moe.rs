//! A layer of a mixture of experts, whose experts are on all ranks.
//!
//! Each rank has tokens. A kernel chooses two experts for each token, so only the stream knows how many tokens go to
//! which rank. A [`CountedAllToAll`] sends as many as there are (the *dispatch*), a kernel applies the experts, and
//! another [`CountedAllToAll`] sends the results back to where the tokens came from (the *combine*). Nothing waits on
//! the host, so the layer is recorded, and replayed with other tokens each time.
//!
//! At the end, each rank computes its tokens alone, and compares.
//!
//! Run it with `cargo run --example moe`, or on 8 ranks:
//! `cargo run -p tidegate-cli -- run -n 8 target/debug/examples/moe`.

use tidegate::host::prelude::*;

/// The numbers of a token.
const WIDTH: usize = 8;
/// Tokens of each rank.
const TOKENS: usize = 64;
/// Experts of each rank, and how many a token goes to.
const EXPERTS: usize = 2;
const CHOSEN: usize = 2;
/// The most rows that a rank sends to another: all.
const MOST: usize = TOKENS * CHOSEN;
const STEPS: usize = 20;

type Token = [f32; WIDTH];

/// A token on its way to an expert, which has this number on its rank.
#[derive(Clone, Copy, Debug, Default, Element)]
#[repr(C)]
struct Row {
    expert: u32,
    token: Token,
}

/// Where the row of a token is in the buffer, and the weight of its expert.
#[derive(Clone, Copy, Debug, Default, Element)]
#[repr(C)]
struct Place {
    row: u32,
    weight: f32,
}

/// The experts for a token, each with its weight.
fn choose(token: &Token, experts: usize) -> [(usize, f32); CHOSEN] {
    let score = |expert: usize| {
        let part = |(i, x): (usize, &f32)| x * ((expert * WIDTH + i) as f32 * 2.4).sin();
        token.iter().enumerate().map(part).sum::<f32>()
    };
    let mut scores: Vec<_> = (0..experts).map(|expert| (expert, score(expert))).collect();
    scores.sort_by(|a, b| b.1.total_cmp(&a.1));
    let [first, second] = [scores[0], scores[1]];
    let share = 1.0 / (1.0 + (second.1 - first.1).exp());
    [(first.0, share), (second.0, 1.0 - share)]
}

/// What an expert makes of a token.
fn apply(expert: usize, token: &Token) -> Token {
    let next = |i: usize| token[(i + 1) % WIDTH] * (1.0 + expert as f32);
    std::array::from_fn(|i| (1.7 * token[i] + next(i)).tanh())
}

/// The sum of the results for a token, in the order of the choice.
fn mix(results: [(Token, f32); CHOSEN]) -> Token {
    let part = |i: usize| {
        results
            .iter()
            .map(|(result, weight)| result[i] * weight)
            .sum()
    };
    std::array::from_fn(part)
}

/// What a step needs. The rows for a rank, and from it, are a block of `MOST` rows.
#[derive(Carry)]
struct Layer<'s> {
    tokens: Region<Token, On<'s>>,
    rows: Region<Row, On<'s>>,
    places: Region<[Place; CHOSEN], On<'s>>,
    counts: Region<u64, On<'s>>,
    came: Region<Row, On<'s>>,
    received: Region<u64, On<'s>>,
    results: Region<Token, On<'s>>,
    back: Region<Token, On<'s>>,
    returned: Region<u64, On<'s>>,
    dispatch: CountedAllToAll<'s, Row>,
    combine: CountedAllToAll<'s, Token>,
}

impl<'s> Layer<'s> {
    fn open(s: &Stream<'s>, tokens: &[Token]) -> Result<Self> {
        let (world, ranks) = (s.world(), s.world().size());
        Ok(Layer {
            tokens: Region::from_slice(world, tokens)?.on(s)?,
            rows: Region::zeroed(world, ranks * MOST)?.on(s)?,
            places: Region::zeroed(world, TOKENS)?.on(s)?,
            counts: Region::zeroed(world, ranks)?.on(s)?,
            came: Region::zeroed(world, ranks * MOST)?.on(s)?,
            received: Region::zeroed(world, ranks)?.on(s)?,
            results: Region::zeroed(world, ranks * MOST)?.on(s)?,
            back: Region::zeroed(world, ranks * MOST)?.on(s)?,
            returned: Region::zeroed(world, ranks)?.on(s)?,
            dispatch: CountedAllToAll::open(s, "dispatch", MOST, 1)?,
            combine: CountedAllToAll::open(s, "combine", MOST, 1)?,
        })
    }
}

/// One step of the layer. Nothing here waits.
fn step<'s>(s: &Stream<'s>, mut l: Layer<'s>) -> Result<Layer<'s>> {
    let (rank, ranks) = (s.world().rank(), s.world().size());
    let route = move |tokens: &[Token],
                      rows: &mut [Row],
                      places: &mut [[Place; CHOSEN]],
                      counts: &mut [u64]| {
        counts.fill(0);
        for (token, places) in tokens.iter().zip(places) {
            for (place, (expert, weight)) in places.iter_mut().zip(choose(token, EXPERTS * ranks)) {
                let (to, expert) = (expert / EXPERTS, (expert % EXPERTS) as u32);
                let row = to * MOST + counts[to] as usize;
                let token = *token;
                rows[row] = Row { expert, token };
                counts[to] += 1;
                let row = row as u32;
                *place = Place { row, weight };
            }
        }
    };
    s.launch(
        route,
        (&l.tokens, &mut l.rows, &mut l.places, &mut l.counts),
    )?;
    l.dispatch
        .enqueue(s, &l.rows, &l.counts, &mut l.came, &mut l.received)?;

    let experts = move |came: &[Row], received: &[u64], results: &mut [Token]| {
        for (from, count) in received.iter().enumerate() {
            for row in from * MOST..from * MOST + *count as usize {
                let expert = rank * EXPERTS + came[row].expert as usize;
                results[row] = apply(expert, &came[row].token);
            }
        }
    };
    s.launch(experts, (&l.came, &l.received, &mut l.results))?;
    l.combine
        .enqueue(s, &l.results, &l.received, &mut l.back, &mut l.returned)?;

    let gather = |back: &[Token], places: &[[Place; CHOSEN]], tokens: &mut [Token]| {
        for (token, places) in tokens.iter_mut().zip(places) {
            *token = mix(places.map(|place| (back[place.row as usize], place.weight)));
        }
    };
    s.launch(gather, (&l.back, &l.places, &mut l.tokens))?;
    Ok(l)
}

fn main() -> Result<()> {
    let world = World::init()?;
    let (rank, ranks) = (world.rank(), world.size());
    let token = |at: usize| -> Token {
        std::array::from_fn(|i| ((rank * TOKENS + at) as f32 * 0.7 + i as f32 * 1.9).sin())
    };
    let mut tokens: Vec<_> = (0..TOKENS).map(token).collect();

    stream!(let mut s = world.stream()?);
    let layer = Layer::open(&s, &tokens)?;
    let (recorded, layer) = s.capture(layer, step)?;
    let layer = recorded.replay(&s, layer, STEPS)?;
    let found = layer.tokens.into_host(&s)?;

    // The same without other ranks.
    for _ in 0..STEPS {
        for token in &mut tokens {
            let chosen = choose(token, EXPERTS * ranks);
            *token = mix(chosen.map(|(expert, weight)| (apply(expert, token), weight)));
        }
    }
    assert_eq!(found[..], tokens[..], "rank {rank}");
    if rank == 0 {
        let experts = EXPERTS * ranks;
        println!(
            "{ranks} ranks, {experts} experts: {STEPS} steps of {TOKENS} tokens each, all equal"
        );
    }
    Ok(())
}
