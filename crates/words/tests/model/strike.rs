//! Strikes: a stream stores to a register of a NIC, which then reads the source by itself.

use std::sync::Arc;

use tidegate_hal::batch::{Step, Store};
use tidegate_words::sync::model::Mutant;
use tidegate_words::{Bell, Word};

use super::rig::{Edge, Finding, Stream, add, at, caught, check, spawn};

/// The flaws of a model.
#[derive(Clone, Copy, Debug, Default)]
struct Flaws {
    /// The store comes before the source is written.
    early: bool,
    origin: Option<Mutant>,
}

/// The origin's side of a NIC with a register.
#[derive(Debug)]
struct Card {
    edge: Edge,
    doorbell: Word,
    register: Word,
    bell: Bell,
}

impl Card {
    fn ring(&self) -> Vec<Step> {
        let store = Step::Store(Store {
            to: at(&self.register),
            value: 1,
        });
        // There is no bell, because its fence would hide a missing one of the store.
        vec![Step::Flush, add(&self.doorbell, None), store]
    }
}

fn strikes(flaws: Flaws) -> impl Fn() + Send + Sync + 'static {
    move || {
        let all = Arc::new(Card {
            edge: Edge::new(0, 1, 1),
            doorbell: Word::new(0),
            register: Word::new(0),
            bell: Bell::new(),
        });
        let origin = {
            let all = all.clone();
            spawn(flaws.origin, move || {
                let mut stream = Stream::new(&all.bell);
                if flaws.early {
                    stream.go([all.ring()]);
                }
                all.edge.fill(0);
                if !flaws.early {
                    stream.go([all.ring()]);
                }
            })
        };
        // Hardware looks only at its register. One look suffices, because the checker tries it at every time.
        if all.register.load() == 1 {
            let mut nic = Stream::new(&all.bell);
            nic.go([vec![all.edge.put()]]);
            all.edge.verify(0);
            assert_ne!(all.doorbell.load(), 0, "the doorbell counts a strike");
        }
        origin.join().expect("the origin ends");
    }
}

#[test]
fn what_a_register_fires_sees_what_was_written_before() {
    check(None, strikes(Flaws::default()));
}

#[test]
fn mutants_of_strikes() {
    let sound = Flaws::default();
    let early = true;
    caught(Finding::Data, strikes(Flaws { early, ..sound }));
    let origin = Some(Mutant::AddWithoutRelease);
    caught(Finding::Race, strikes(Flaws { origin, ..sound }));
}
