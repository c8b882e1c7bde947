//! The layer of `moe`, for any device.

use crate::device::Kernels;
use crate::device::prelude::*;
use crate::token::{CHOSEN, EXPERTS, MOST, Places, Row, TOKENS, Token, apply, choose, mix};

const STEPS: usize = 20;

/// What a step needs. The rows for a rank, and from it, are a block of `MOST` rows.
#[derive(Carry)]
struct Layer<'s> {
    tokens: Region<Token, On<'s>>,
    rows: Region<Row, On<'s>>,
    places: Region<Places, On<'s>>,
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
fn step<'s>(s: &Stream<'s>, k: &Kernels, mut l: Layer<'s>) -> Result<Layer<'s>> {
    k.route(s, &l.tokens, &mut l.rows, &mut l.places, &mut l.counts)?;
    let (came, received) = (&mut l.came, &mut l.received);
    l.dispatch.enqueue(s, &l.rows, &l.counts, came, received)?;
    k.experts(s, &l.came, &l.received, &mut l.results)?;
    let (back, returned) = (&mut l.back, &mut l.returned);
    l.combine
        .enqueue(s, &l.results, &l.received, back, returned)?;
    k.gather(s, &l.back, &l.places, &mut l.tokens)?;
    Ok(l)
}

pub(crate) fn run() -> Result<()> {
    let world = World::init()?;
    let (rank, ranks) = (world.rank(), world.size());
    let kernels = Kernels::new(&world)?;
    let token = |at: usize| -> Token {
        std::array::from_fn(|i| ((rank * TOKENS + at) as f32 * 0.7 + i as f32 * 1.9).sin())
    };
    let mut tokens: Vec<_> = (0..TOKENS).map(token).collect();

    stream!(let mut s = world.stream()?);
    let layer = Layer::open(&s, &tokens)?;
    let (recorded, layer) = s.capture(layer, |s, layer| step(s, &kernels, layer))?;
    let layer = recorded.replay(&s, layer, STEPS)?;
    let mut found = vec![Token::default(); TOKENS];
    layer.tokens.into_host(&s)?.read(0, &mut found)?;

    // The same without other ranks.
    for _ in 0..STEPS {
        for token in &mut tokens {
            let chosen: [usize; CHOSEN] = choose(token, EXPERTS * ranks);
            *token = mix(token, chosen.map(|expert| apply(expert, token)));
        }
    }
    assert_eq!(found, tokens, "rank {rank}");
    if rank == 0 {
        let experts = EXPERTS * ranks;
        println!(
            "{ranks} ranks, {experts} experts: {STEPS} steps of {TOKENS} tokens each, all equal"
        );
    }
    Ok(())
}
