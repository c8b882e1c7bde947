//! The prelude and the kernels for host streams.

use prelude::*;
pub(crate) use tidegate::host::prelude;

use crate::token::{EXPERTS, MOST, Places, Row, Token, apply, choose, mix};

pub(crate) struct Kernels;

impl Kernels {
    pub(crate) fn new(_: &World) -> Result<Self> {
        Ok(Kernels)
    }

    /// Chooses the experts for each token, and writes a row for each. Counts the rows for each rank.
    pub(crate) fn route<'s>(
        &self,
        s: &Stream<'s>,
        tokens: &Region<Token, On<'s>>,
        rows: &mut Region<Row, On<'s>>,
        places: &mut Region<Places, On<'s>>,
        counts: &mut Region<u64, On<'s>>,
    ) -> Result<()> {
        let ranks = s.world().size();
        let kernel =
            move |tokens: &[Token], rows: &mut [Row], places: &mut [Places], counts: &mut [u64]| {
                counts.fill(0);
                for (token, places) in tokens.iter().zip(places) {
                    for (place, expert) in places.iter_mut().zip(choose(token, EXPERTS * ranks)) {
                        let (to, expert) = (expert / EXPERTS, (expert % EXPERTS) as u32);
                        let row = to * MOST + counts[to] as usize;
                        let token = *token;
                        rows[row] = Row { expert, token };
                        counts[to] += 1;
                        *place = row as u32;
                    }
                }
            };
        s.launch(kernel, (tokens, rows, places, counts))
    }

    /// Applies this rank's experts to the rows that came.
    pub(crate) fn experts<'s>(
        &self,
        s: &Stream<'s>,
        came: &Region<Row, On<'s>>,
        received: &Region<u64, On<'s>>,
        results: &mut Region<Token, On<'s>>,
    ) -> Result<()> {
        let rank = s.world().rank();
        let kernel = move |came: &[Row], received: &[u64], results: &mut [Token]| {
            for (from, count) in received.iter().enumerate() {
                for row in from * MOST..from * MOST + *count as usize {
                    let expert = rank * EXPERTS + came[row].expert as usize;
                    results[row] = apply(expert, &came[row].token);
                }
            }
        };
        s.launch(kernel, (came, received, results))
    }

    /// Makes the next tokens of the results.
    pub(crate) fn gather<'s>(
        &self,
        s: &Stream<'s>,
        back: &Region<Token, On<'s>>,
        places: &Region<Places, On<'s>>,
        tokens: &mut Region<Token, On<'s>>,
    ) -> Result<()> {
        let kernel = |back: &[Token], places: &[Places], tokens: &mut [Token]| {
            for (token, places) in tokens.iter_mut().zip(places) {
                *token = mix(token, places.map(|row| back[row as usize]));
            }
        };
        s.launch(kernel, (back, places, tokens))
    }
}
