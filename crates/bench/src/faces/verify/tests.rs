use super::*;
use crate::faces::params::Params;
use crate::faces::params::{Counts, Grid, Init, Size, Variant};

#[test]
fn the_measure_holds_at_the_ends() {
    assert_eq!(error(0.0, 0.0), 0.0);
    assert_eq!(error(0.0, 1.0), 1.0);
    assert_eq!(error(-1.0, 1.0), 1.0);
    assert_eq!(error(f64::MAX, f64::MAX), 0.0);
    assert!(error(f64::MAX, f64::MAX / 2.0) > 0.3);
    for bad in [f64::NAN, f64::INFINITY] {
        assert_eq!(error(bad, 1.0), f64::INFINITY);
        assert_eq!(error(bad, bad), f64::INFINITY);
    }
}

fn params() -> Params {
    Params {
        grid: Grid([2, 1, 1]),
        size: Size { m: [2, 2, 2], n: 3 },
        counts: Counts {
            nk: 1,
            nj: 1,
            ni: 3,
        },
        init: Init::Global,
        compute: false,
        variants: vec![Variant::St],
    }
}

#[test]
fn wrong_blocks_are_described() {
    let verifier = Verifier::new(&params(), 1).unwrap();
    let mut u = verifier.simulated.clone().unwrap();
    assert!(verifier.check(&u).passed(), "{}", verifier.check(&u));
    assert!(verifier.check(&u).to_string().contains("agree"));

    u[5] *= 1.0 + 1e-14;
    let text = verifier.check(&u).to_string();
    assert!(
        text.starts_with(
            "1 of 216 values are wrong; the worst: point [2, 1, 0] of element [0, 0, 0]"
        ),
        "{text}"
    );

    u[7] = f64::NAN;
    let verdict = verifier.check(&u);
    assert!(!verdict.passed() && verdict.non_finite == 1 && verdict.wrong == 2);
    assert!(!verifier.check(&u[1..]).passed());
    assert!(verifier.check(&[]).to_string().contains("216 values"));
}

#[test]
fn untouched_blocks_fail() {
    let verifier = Verifier::new(&params(), 0).unwrap();
    let mut u = vec![0.0; verifier.geometry().len()];
    crate::faces::kernels::init(verifier.geometry(), Init::Global, u.as_mut_slice());
    assert!(!verifier.check(&u).passed());
}
