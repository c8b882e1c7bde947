use super::*;
use crate::faces::driver;
use crate::faces::layout::Direction;
use crate::faces::params::{Grid, Init, Params, Size};
use crate::faces::variants::Setup;
use std::collections::BTreeMap;
use tidegate_core::World;
use tidegate_host::Host;

fn spans(compute: bool, omit: Option<Direction>) -> std::result::Result<Vec<Span>, String> {
    let params = Params {
        grid: Grid([2, 1, 1]),
        size: Size { m: [3, 2, 2], n: 4 },
        counts: COUNTS,
        init: Init::Global,
        compute,
        variants: Variant::ALL.to_vec(),
    };
    let verifiers = Verifier::all(&params).unwrap();
    let mut ranks = World::<Host>::local(2, |world| {
        let setup = Setup {
            world: &world,
            params: &params,
            verifier: &verifiers[world.rank()],
            throttle: Default::default(),
            omit,
        };
        driver::timelines(&setup).map_err(|error| error.to_string())
    });
    ranks.remove(0)
}

/// The spans of each lane in a share of a variant, by name.
fn names(spans: &[Span], variant: Variant, lane: Lane) -> BTreeMap<&str, usize> {
    let mut names = BTreeMap::new();
    let of = |span: &&Span| span.rank == 0 && span.variant == variant && span.lane == lane;
    for span in spans.iter().filter(of) {
        *names.entry(span.what.as_str()).or_default() += 1;
    }
    names
}

#[test]
fn every_operation_is_there_in_its_order() {
    let spans = spans(true, None).unwrap();
    let shares = SHARES as usize;
    for variant in Variant::ALL {
        let on_stream = names(&spans, variant, Lane::Stream);
        let mut expected = BTreeMap::from([("exchange", shares), ("unpack", shares)]);
        if variant == Variant::DevicePersistent {
            expected = BTreeMap::from([("shares", 1)]);
        } else if [Variant::Device, Variant::DeviceGraph].contains(&variant) {
            expected.insert("send", shares);
        } else if ![Variant::StStrided, Variant::StStridedGraph].contains(&variant) {
            expected.insert("pack", shares);
        }
        assert_eq!(on_stream, expected, "{variant}");
        let compute = names(&spans, variant, Lane::Compute);
        assert_eq!(compute, BTreeMap::from([("compute", shares)]), "{variant}");
        let host = names(&spans, variant, Lane::Host);
        match variant {
            Variant::StGraph | Variant::StStridedGraph | Variant::DeviceGraph => {
                assert_eq!(host, BTreeMap::from([("launch", 1), ("wait", 1)]));
            }
            Variant::DevicePersistent => assert_eq!((host["wait"], host["shares"]), (1, 1)),
            Variant::Rma | Variant::P2p => assert!(host["wait"] > shares, "{host:?}"),
            _ => assert_eq!((host["wait"], host["exchange"]), (1, shares), "{host:?}"),
        }
        for rank in 0..2 {
            let mine = |span: &&Span| span.rank == rank && span.variant == variant;
            let lane: Vec<&Span> = spans
                .iter()
                .filter(mine)
                .filter(|span| span.lane == Lane::Stream)
                .collect();
            for span in &lane {
                assert!(
                    span.begin_us > 0.0 && span.begin_us <= span.end_us,
                    "{span:?}"
                );
            }
            for two in lane.windows(2) {
                assert!(two[0].end_us <= two[1].begin_us, "{two:?}");
                assert!(two[0].share <= two[1].share);
            }
            if variant != Variant::DevicePersistent {
                assert_eq!(lane.last().unwrap().share, SHARES - 1);
            }
            // The host waits for the end, and does not see it before it has come.
            let mut waits = spans.iter().filter(mine).filter(|span| span.what == "wait");
            let last = waits.next_back().unwrap();
            let slack = last.within_us.unwrap();
            assert!(
                last.end_us + slack >= lane.last().unwrap().end_us,
                "{last:?}"
            );
        }
    }
}

#[test]
fn without_compute_there_is_one_stream() {
    let spans = spans(false, None).unwrap();
    assert!(spans.iter().all(|span| span.lane != Lane::Compute));
    assert!(spans.iter().any(|span| span.variant == Variant::StGraph));
}

#[test]
fn wrong_results_have_no_timeline() {
    let wrong = Direction::from_offset([1, 0, 0]).unwrap();
    let error = spans(true, Some(wrong)).unwrap_err();
    assert!(error.contains("the result is wrong"), "{error}");
}

#[test]
fn are_written_as_json() {
    let dir = tempfile::tempdir().unwrap();
    let span = Span {
        rank: 1,
        variant: Variant::StGraph,
        share: 2,
        lane: Lane::Compute,
        what: "compute".into(),
        begin_us: 1.5,
        end_us: 2.5,
        within_us: None,
    };
    let path = dir.path().join("timeline.json");
    write(&path, std::slice::from_ref(&span)).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(serde_json::from_str::<Vec<Span>>(&text).unwrap(), [span]);
    assert!(text.contains(r#""variant":"st-graph","share":2,"lane":"compute""#));
    let error = write(&path.join("file"), &[]).unwrap_err();
    assert!(error.to_string().contains("timeline.json/file"));
}
