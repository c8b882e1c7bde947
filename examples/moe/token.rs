//! Tokens, and what experts make of them. A GPU computes the same bits: all factors are powers of 2, so no product is
//! rounded, and sums have an order.

use crate::device::prelude::*;

/// The numbers of a token. They are from -1 to 1.
pub(crate) const WIDTH: usize = 8;
/// Tokens of each rank.
pub(crate) const TOKENS: usize = 64;
/// Experts of each rank, and how many a token goes to.
pub(crate) const EXPERTS: usize = 2;
pub(crate) const CHOSEN: usize = 2;
/// The most rows that a rank sends to another: all.
pub(crate) const MOST: usize = TOKENS * CHOSEN;

pub(crate) type Token = [f32; WIDTH];
/// Where the rows of a token are in the buffer.
pub(crate) type Places = [u32; CHOSEN];

/// A token on its way to an expert, which has this number on its rank.
#[derive(Clone, Copy, Debug, Default, Element)]
#[repr(C)]
pub(crate) struct Row {
    pub(crate) expert: u32,
    pub(crate) token: Token,
}

/// What a number counts for an expert: a power of 2, with a sign.
fn factor(expert: usize, at: usize) -> f32 {
    let mixed =
        (expert as u32 + 1).wrapping_mul(0x9e37_79b1) ^ (at as u32 + 1).wrapping_mul(0x85eb_ca6b);
    let mixed = mixed.wrapping_mul(0x27d4_eb2f) >> 16;
    let size = [1.0, 0.5, 0.25, 0.125][mixed as usize % 4];
    if mixed & 4 == 0 { size } else { -size }
}

fn score(expert: usize, token: &Token) -> f32 {
    let part = |sum, (at, x): (usize, &f32)| sum + x * factor(expert, at);
    token.iter().enumerate().fold(0.0, part)
}

/// The two experts for a token: those with the highest scores, and of equals the first.
pub(crate) fn choose(token: &Token, experts: usize) -> [usize; CHOSEN] {
    let mut best = [(0, f32::NEG_INFINITY); CHOSEN];
    for expert in 0..experts {
        let score = score(expert, token);
        if score > best[0].1 {
            best = [(expert, score), best[0]];
        } else if score > best[1].1 {
            best[1] = (expert, score);
        }
    }
    best.map(|(expert, _)| expert)
}

/// What an expert makes of a token.
pub(crate) fn apply(expert: usize, token: &Token) -> Token {
    std::array::from_fn(|i| {
        let y = 2.0 * token[i] + token[(i + 1) % WIDTH] * factor(expert, i);
        match y {
            _ if y > 1.0 => y - 2.0,
            _ if y < -1.0 => y + 2.0,
            _ => y,
        }
    })
}

/// The next token: a quarter of the last one, half of what the first expert has made, and a quarter of the second's.
pub(crate) fn mix(token: &Token, results: [Token; CHOSEN]) -> Token {
    let [first, second] = results;
    std::array::from_fn(|i| (0.25 * token[i] + 0.5 * first[i]) + 0.25 * second[i])
}
