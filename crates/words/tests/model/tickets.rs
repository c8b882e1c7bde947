//! Tickets: a transport reads a put's source after the complete has returned, and the next writer of the source waits
//! for it.

use std::sync::Arc;

use tidegate_hal::batch::{Awaited, QUANTUM, Step};
use tidegate_words::Bell;
use tidegate_words::sync::model::Mutant;

use super::rig::{
    Count, Edge, Finding, Stream, add, caught, check, check_deaths, mortal, spawn, wait,
};

/// The flaws of a model.
#[derive(Clone, Copy, Debug, Default)]
struct Flaws {
    /// The source is written without a look at the tickets.
    ignored: bool,
    /// The complete does not count the ticket that it issues, so the wait is for the ticket before.
    uncounted: bool,
    /// The transport says that it has read before it reads.
    early: bool,
    transport: Option<Mutant>,
    origin: Option<Mutant>,
}

/// The origin's side of a transport: a doorbell, and the counts of tickets that were issued (`sent.operand`) and that
/// have come back (`sent.word`).
#[derive(Debug)]
struct Transport {
    edge: Edge,
    doorbell: Count,
    sent: Count,
    bells: [Bell; 3],
}

const ORIGIN: usize = 0;
const TARGET: usize = 1;
const NIC: usize = 2;

impl Transport {
    fn new() -> Self {
        Transport {
            edge: Edge::new(0, 1, 1),
            doorbell: Count::new(0),
            sent: Count::new(0),
            bells: Default::default(),
        }
    }

    /// The batch of the origin's complete. The transport makes the moves.
    fn complete(&self, uncounted: bool) -> Vec<Step> {
        let mut lane = vec![
            self.edge.await_exposure(),
            Step::Flush,
            add(&self.doorbell.word, Some(&self.bells[NIC])),
        ];
        if !uncounted {
            // This is an operand, on which nobody sleeps.
            lane.push(add(&self.sent.operand, None));
        }
        lane
    }

    /// The wait of the next writer of the source, for all tickets that were issued.
    fn tickets(&self) -> Vec<Step> {
        vec![wait(&self.sent, 0, NIC as u32, Awaited::Ticket)]
    }

    /// The batch of the transport when its doorbell is rung.
    fn transfer(&self, early: bool) -> Vec<Step> {
        let ring = wait(&self.doorbell, QUANTUM, 0, Awaited::Event);
        let sent = add(&self.sent.word, Some(&self.bells[ORIGIN]));
        let done = add(&self.edge.done.word, Some(&self.bells[TARGET]));
        if early {
            vec![ring, sent, self.edge.put(), done]
        } else {
            vec![ring, self.edge.put(), sent, done]
        }
    }
}

fn tickets(flaws: Flaws) -> impl Fn() + Send + Sync + 'static {
    move || {
        let all = Arc::new(Transport::new());
        let nic = {
            let all = all.clone();
            spawn(flaws.transport, move || {
                let mut stream = Stream::new(&all.bells[NIC]);
                for _ in 0..2 {
                    stream.go([all.transfer(flaws.early)]);
                }
            })
        };
        let origin = {
            let all = all.clone();
            spawn(flaws.origin, move || {
                let mut stream = Stream::new(&all.bells[ORIGIN]);
                for epoch in 0..2 {
                    if !flaws.ignored {
                        stream.go([all.tickets()]);
                    }
                    all.edge.fill(epoch);
                    stream.go([all.complete(flaws.uncounted)]);
                }
            })
        };
        // The target posts both epochs in advance, so that only the ticket holds the origin back. It reads only the
        // last.
        let mut stream = Stream::new(&all.bells[TARGET]);
        stream.go([all.edge.post(&all.bells[ORIGIN])]);
        stream.go([all.edge.post(&all.bells[ORIGIN])]);
        stream.go([all.edge.wait()]);
        stream.go([all.edge.wait()]);
        all.edge.verify(1);
        origin.join().expect("the origin ends");
        nic.join().expect("the transport ends");
    }
}

#[test]
fn a_source_is_written_when_its_ticket_is_back() {
    check(2, tickets(Flaws::default()));
}

#[test]
fn mutants_of_tickets() {
    let sound = Flaws::default();
    let ignored = true;
    caught(Finding::Data, tickets(Flaws { ignored, ..sound }));
    let uncounted = true;
    caught(Finding::Data, tickets(Flaws { uncounted, ..sound }));
    let early = true;
    caught(Finding::Data, tickets(Flaws { early, ..sound }));
    let transport = Some(Mutant::AddWithoutRelease);
    caught(Finding::Race, tickets(Flaws { transport, ..sound }));
    let origin = Some(Mutant::LookWithoutAcquire);
    caught(Finding::Race, tickets(Flaws { origin, ..sound }));
    let transport = Some(Mutant::NoFence);
    caught(Finding::Asleep, tickets(Flaws { transport, ..sound }));
}

/// The transport dies. The outstanding ticket ends the next writer's wait, and the error names the right peer.
#[test]
fn a_transport_dies() {
    check_deaths(2, |fuse| {
        let all = Arc::new(Transport::new());
        let nic = {
            let all = all.clone();
            spawn(None, move || {
                mortal(fuse, || {
                    Stream::new(&all.bells[NIC]).go([all.transfer(false)]);
                })
            })
        };
        let origin = {
            let all = all.clone();
            spawn(None, move || {
                let mut stream = Stream::new(&all.bells[ORIGIN]);
                all.edge.fill(0);
                stream.go([all.complete(false)]);
                match stream.run([all.tickets()]) {
                    Ok(()) => all.edge.fill(1),
                    Err(halt) => {
                        assert_eq!(halt.tag().awaited, Awaited::Ticket);
                        assert_eq!(halt.tag().peer, NIC as u32);
                    }
                }
            })
        };
        Stream::new(&all.bells[TARGET]).go([all.edge.post(&all.bells[ORIGIN])]);
        let died = nic.join().expect("a death is not a panic").is_none();
        if died {
            all.sent.word.poison();
            all.bells[ORIGIN].wake_all();
        }
        origin.join().expect("the origin ends");
        died
    });
}
