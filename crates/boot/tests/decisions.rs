//! Random proposals, of ranks that are threads and of ranks that have joined over TCP, against a simple model.

mod common;

use common::configs;
use proptest::prelude::*;
use std::thread;
use tidegate_boot::{TcpControl, local};
use tidegate_hal::control::{Control, Decision, Letter, Objection, Packet, Proposal};

const SIZE: usize = 5;

/// What a rank brings: a header and how much of it is compared, flags, an objection, and to whom it writes.
#[derive(Clone, Debug)]
struct Brought {
    header: Vec<u8>,
    alike: usize,
    flags: u32,
    objection: Option<(u8, u8)>,
    writes_to: [bool; SIZE],
}

/// The ranks mostly agree, so that all decisions are frequent.
fn any_brought() -> impl Strategy<Value = Brought> {
    let header = prop_oneof![12 => Just(vec![0; 3]), 1 => prop::collection::vec(0u8..2, 0..4)];
    let objection = prop_oneof![8 => Just(None), 1 => (0u8..3, any::<u8>()).prop_map(Some)];
    let alike = prop_oneof![12 => Just(2), 1 => 0usize..5];
    let flags = any::<u32>();
    (header, alike, flags, objection, any::<[bool; SIZE]>()).prop_map(
        |(header, alike, flags, objection, writes_to)| Brought {
            header,
            alike,
            flags,
            objection,
            writes_to,
        },
    )
}

type Round = Vec<Brought>;

fn any_rounds(rounds: usize) -> impl Strategy<Value = Vec<Round>> {
    let round = prop::collection::vec(any_brought(), SIZE);
    prop::collection::vec(round, rounds)
}

fn text(round: usize, from: usize, to: usize) -> Vec<u8> {
    format!("{round}: {from} to {to}").into_bytes()
}

/// Takes part in all rounds. Returns the decisions as texts.
fn take_part(control: &dyn Control, rounds: &[Round]) -> Vec<String> {
    let me = control.rank();
    let confer = |(number, round): (usize, &Round)| {
        let mine = round[me].clone();
        let to = (0..SIZE).filter(|to| mine.writes_to[*to]);
        let letters = to.map(|to| Letter {
            rank: to,
            packet: Packet {
                bytes: text(number, me, to),
                handles: Vec::new(),
            },
        });
        let proposal = Proposal {
            header: mine.header,
            alike: mine.alike,
            flags: mine.flags,
            objection: mine.objection.map(|(kind, reason)| Objection {
                kind,
                reason: vec![reason],
            }),
            letters: letters.collect(),
        };
        format!("{:?}", control.confer("a round", proposal).unwrap())
    };
    rounds.iter().enumerate().map(confer).collect()
}

/// The decision for a rank, from all that the ranks bring.
fn model(me: usize, number: usize, round: &Round) -> String {
    let compared = |rank: usize| {
        let Brought { header, alike, .. } = &round[rank];
        &header[..header.len().min(*alike)]
    };
    let differs = (0..SIZE).find(|rank| compared(*rank) != compared(0));
    let least = round
        .iter()
        .filter_map(|rank| rank.objection)
        .map(|o| o.0)
        .min();
    let decision = match (differs, least) {
        (Some(rank), _) => Decision::Differs {
            first: round[0].header.clone(),
            rank,
            other: round[rank].header.clone(),
        },
        (None, Some(kind)) => {
            let objects = |rank: &usize| round[*rank].objection.is_some_and(|o| o.0 == kind);
            let ranks: Vec<_> = (0..SIZE).filter(objects).collect();
            let reason = round[ranks[0]].objection.map(|o| vec![o.1]);
            Decision::Refused {
                kind,
                ranks,
                reason: reason.unwrap(),
            }
        }
        (None, None) => {
            let from = (0..SIZE).filter(|from| round[*from].writes_to[me]);
            let letters = from.map(|rank| Letter {
                rank,
                packet: Packet {
                    bytes: text(number, rank, me),
                    handles: Vec::new(),
                },
            });
            Decision::Agreed {
                flags: round.iter().fold(0, |flags, rank| flags | rank.flags),
                letters: letters.collect(),
            }
        }
    };
    format!("{decision:?}")
}

/// Runs all rounds on all ranks, and compares.
fn check<C: Control>(ranks: Vec<C>, rounds: &[Round]) {
    let decided = thread::scope(|scope| {
        let ranks = ranks
            .iter()
            .map(|rank| scope.spawn(|| take_part(rank, rounds)));
        let ranks: Vec<_> = ranks.collect();
        let ends = ranks.into_iter().map(|rank| rank.join().unwrap());
        ends.collect::<Vec<_>>()
    });
    for (me, decided) in decided.into_iter().enumerate() {
        for (number, round) in rounds.iter().enumerate() {
            assert_eq!(decided[number], model(me, number, round), "{round:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 16 },
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn threads_decide_as_the_model_does(rounds in any_rounds(20)) {
        check(local(SIZE), &rounds);
    }

    #[test]
    #[cfg_attr(miri, ignore = "it has sockets")]
    fn processes_decide_as_the_model_does(rounds in any_rounds(40)) {
        let ranks = thread::scope(|scope| {
            let joins = configs(SIZE).into_iter().map(|config| scope.spawn(|| TcpControl::join(config)));
            let joins: Vec<_> = joins.collect();
            joins.into_iter().map(|rank| rank.join().unwrap().unwrap()).collect()
        });
        check::<TcpControl>(ranks, &rounds);
    }
}
