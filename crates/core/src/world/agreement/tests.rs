//! Ranks that open windows in various orders. The control plane of these tests orders threads, or refuses exchanges.

use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use tidegate_boot::LocalControl;
use tidegate_hal::control::{Control, ControlError, Decision, Packet, Proposal, Sink};
use tidegate_hal::ids::TeamId;
use tidegate_host::Host;

use super::*;
use crate::error::{Cause, WindowError};
use crate::window::{Buffers, BySlot, Inbox, Outbox, SlotWindow};
use crate::{Barrier, Region, Stream, WorldOptions};

type ControlResult<T> = std::result::Result<T, ControlError>;

/// A control plane with a given order of exchanges, which a rank keeps for as long as it can. It refuses some
/// exchanges. An exchange is named by its thread and its label.
struct Directed {
    control: LocalControl,
    order: &'static [&'static str],
    refused: Mutex<Vec<&'static str>>,
    /// An exchange in which the handles of the other ranks do not arrive.
    bare: &'static str,
    past: Arc<Past>,
}

impl Directed {
    /// Makes a call in its turn, unless it is refused.
    fn directed<R>(
        &self,
        label: &str,
        call: impl FnOnce() -> ControlResult<R>,
    ) -> ControlResult<R> {
        let mut refused = lock(&self.refused);
        if let Some(at) = refused.iter().position(|each| *each == label) {
            refused.remove(at);
            return Err(ControlError::TooLarge {
                label: label.to_owned(),
                bytes: Packet::MAX_BYTES + 1,
                most: Packet::MAX_BYTES,
                handles: 0,
            });
        }
        drop(refused);
        let thread = std::thread::current();
        let name = format!("{}: {label}", thread.name().unwrap_or_default());
        self.past.add(format!("before {name}"));
        let place = self.order.iter().position(|each| *each == name);
        if let Some(before) = place.and_then(|place| place.checked_sub(1)) {
            // The order is kept only for a time: if threads take turns, the call that should be first may have to be
            // second.
            let patience = Duration::from_millis(500);
            self.past.wait_for(self.order[before], patience);
        }
        let done = call();
        self.past.add(name);
        done
    }
}

/// The exchanges that were made, and those that are about to be.
#[derive(Default)]
struct Past(Mutex<Vec<String>>, Condvar);

impl Past {
    fn add(&self, what: String) {
        lock(&self.0).push(what);
        self.1.notify_all();
    }

    fn wait_for(&self, what: &str, limit: Duration) {
        let yet = |past: &mut Vec<String>| !past.iter().any(|each| each == what);
        let waited = self.1.wait_timeout_while(lock(&self.0), limit, yet);
        drop(waited.expect("nobody panics there"));
    }
}

impl Control for Directed {
    fn rank(&self) -> usize {
        self.control.rank()
    }

    fn size(&self) -> usize {
        self.control.size()
    }

    fn node(&self, rank: usize) -> usize {
        self.control.node(rank)
    }

    fn exchange_in(
        &self,
        team: TeamId,
        label: &str,
        bytes: Vec<u8>,
    ) -> ControlResult<Vec<Vec<u8>>> {
        self.directed(label, || self.control.exchange_in(team, label, bytes))
    }

    fn confer_in(&self, team: TeamId, label: &str, proposal: Proposal) -> ControlResult<Decision> {
        let mut decision = self.directed(label, || self.control.confer_in(team, label, proposal));
        if label == self.bare
            && let Ok(Decision::Agreed { letters, .. }) = &mut decision
        {
            let packets = letters.iter_mut().map(|letter| &mut letter.packet);
            packets.for_each(|packet| packet.handles.clear());
        }
        decision
    }

    fn found(&self, name: &str, ranks: &[usize]) -> ControlResult<TeamId> {
        self.control.found(name, ranks)
    }

    fn dissolve(&self, team: TeamId) {
        self.control.dissolve(team);
    }

    fn notify(&self, to: Option<&[usize]>, bytes: &[u8]) -> ControlResult<()> {
        self.control.notify(to, bytes)
    }

    fn subscribe(&self, sink: Sink) {
        self.control.subscribe(sink);
    }

    fn leave(&self) {
        self.control.leave();
    }

    fn fail(&self, reason: &str) {
        self.control.fail(reason);
    }
}

/// How the exchanges of a rank are directed: their order, those that are refused once, and the one that brings no
/// handles.
type Direction = (
    &'static [&'static str],
    &'static [&'static str],
    &'static str,
);

const FREELY: Direction = (&[], &[], "");

/// Two ranks.
fn two(directions: [Direction; 2], program: impl Fn(World<Host>, &Past) + Sync) {
    std::thread::scope(|scope| {
        for (control, (order, refused, bare)) in tidegate_boot::local(2).into_iter().zip(directions)
        {
            let program = &program;
            scope.spawn(move || {
                let past = Arc::new(Past::default());
                let control = Directed {
                    control,
                    order,
                    refused: Mutex::new(refused.to_vec()),
                    bare,
                    past: past.clone(),
                };
                // SAFETY: it carries what the control plane of `tidegate-boot` carries.
                let world = unsafe { World::from_control(Arc::new(control), Host::for_threads()) };
                program(world.expect("the ranks meet"), &past);
            });
        }
    });
}

type Halves<'s> = (Inbox<'s, u64, Host, BySlot>, Outbox<'s, u64, Host, BySlot>);

/// A window with one slot in each direction.
fn open<'s>(s: &Stream<'s, Host>, name: &str, buffers: Buffers, len: usize) -> Result<Halves<'s>> {
    let peer = 1 - s.world().rank();
    let mut window = SlotWindow::new(name).buffers(buffers);
    window.slot_from(peer, 0, len);
    window.slot_to(peer, 0);
    window.fail_after(Duration::from_secs(10)).open(s)
}

fn named(name: &str) -> std::thread::Builder {
    std::thread::Builder::new().name(name.into())
}

/// How long a thread waits for what another is about to do.
const LONG: Duration = Duration::from_secs(10);

/// Both windows take 256 bytes, so nothing would look wrong if one got the memory of the other.
#[test]
fn windows_that_threads_open_at_once_have_each_its_own_memory() {
    let (first, second): (Direction, Direction) = (
        (
            &[
                "x: opening a window",
                "y: opening a window",
                "x: sharing a window's memory",
                "y: sharing a window's memory",
            ],
            &[],
            "",
        ),
        (
            &[
                "x: opening a window",
                "y: opening a window",
                "y: sharing a window's memory",
                "x: sharing a window's memory",
            ],
            &[],
            "",
        ),
    );
    two([first, second], |world, past| {
        let ((opened, both), (put, read)) = (channel(), channel());
        let world = &world;
        let x = move || {
            crate::stream!(let s = world.stream().unwrap());
            let (inbox, outbox) = open(&s, "x", Buffers::Double, 8).unwrap();
            let sevens = Region::from_slice(world, &[7; 8]).unwrap();
            let sevens = sevens.on(&s).unwrap();
            both.recv().unwrap();
            let to = outbox.slots().next().unwrap();
            let mut epoch = outbox.start();
            epoch.put(&sevens, to).unwrap();
            let _outbox = epoch.complete(&s).unwrap();
            s.synchronize().unwrap();
            world.all_gather("put", Vec::new()).unwrap();
            put.send(()).unwrap();
            let mut inbox = inbox.post(&s).unwrap().wait(&s).unwrap();
            assert_eq!(inbox.read(&s).unwrap().iter().next().unwrap(), [7; 8]);
        };
        let y = move || {
            past.wait_for("x: opening a window", LONG);
            crate::stream!(let s = world.stream().unwrap());
            let (mut inbox, _outbox) = open(&s, "y", Buffers::Single, 16).unwrap();
            opened.send(()).unwrap();
            read.recv().unwrap();
            let nobody_has_put = [0; 16];
            assert_eq!(
                inbox.read(&s).unwrap().iter().next().unwrap(),
                nobody_has_put
            );
        };
        std::thread::scope(|scope| {
            named("x").spawn_scoped(scope, x).unwrap();
            named("y").spawn_scoped(scope, y).unwrap();
        });
    });
}

/// Checks an error about two different windows.
#[track_caller]
fn names_both<T>(opened: Result<T>, mine: &str) {
    let error = opened.err().expect("the other rank creates another one");
    let Error::Open(WindowError::Disagreement {
        window,
        disagreement,
    }) = &error
    else {
        panic!("{error}")
    };
    assert_eq!(&*window.name, mine);
    let said = disagreement.to_string();
    assert!(said.contains("`x`") && said.contains("`y`"), "{error}");
}

#[test]
fn ranks_that_open_in_different_orders_hear_of_it_and_stay_in_step() {
    two([FREELY, FREELY], |world, past| {
        crate::stream!(let s = world.stream().unwrap());
        let one = |name: &'static str| {
            crate::stream!(let s = world.stream().unwrap());
            names_both(open(&s, name, Buffers::Double, 8), name);
        };
        if world.rank() == 0 {
            std::thread::scope(|scope| {
                named("x").spawn_scoped(scope, || one("x")).unwrap();
                let second = || {
                    past.wait_for("before x: opening a window", LONG);
                    one("y");
                };
                named("y").spawn_scoped(scope, second).unwrap();
            });
            names_both(Barrier::open(&s, "x"), "x");
        } else {
            one("y");
            one("x");
            names_both(Barrier::open(&s, "y"), "y");
        }
        world.all_gather("still", Vec::new()).unwrap();
        let _halves = open(&s, "z", Buffers::Double, 8).unwrap();
        Barrier::open(&s, "z").unwrap();
    });
}

/// After rank 0 was refused some exchanges, its later messages about a window meet that same window on rank 1.
#[test]
fn a_rank_that_was_refused_has_the_same_ids() {
    let refuses = (&[][..], &["opening a window", "opening a barrier"][..], "");
    two([refuses, FREELY], |world, _| {
        crate::stream!(let s = world.stream().unwrap());
        let refused = |error: Error| {
            let too_large = matches!(error, Error::Control(ControlError::TooLarge { .. }));
            assert!(too_large, "{error}");
            error.to_string()
        };
        if world.rank() == 0 {
            let said = refused(open(&s, "w", Buffers::Double, 8).err().unwrap());
            assert!(
                said.starts_with("opening window `w`: a rank brings "),
                "{said}"
            );
            refused(Barrier::open(&s, "b").err().unwrap());
        }
        let _barrier = Barrier::open(&s, "b").unwrap();
        let (inbox, outbox) = open(&s, "w", Buffers::Double, 8).unwrap();
        assert_eq!((inbox.id(), outbox.id()), (self::world(1), self::world(1)));
        if world.rank() == 0 {
            // This revokes the window.
            drop(outbox.start());
        } else {
            let waited = inbox.post(&s).and_then(|exposed| exposed.wait(&s));
            let cause = match waited.map(drop).and_then(|()| s.synchronize()).unwrap_err() {
                Error::Wait(failed) => failed.cause,
                Error::Revoked { cause, .. } => cause,
                other => panic!("{other}"),
            };
            assert!(matches!(cause, Cause::Dropped { rank: 0, .. }), "{cause}");
        }
        // Rank 0 stays until then, so that its end is not what rank 1 hears of.
        world.all_gather("over", Vec::new()).unwrap();
    });
}

/// Labels are compared, and do not name windows. Errors do.
#[test]
fn who_does_not_come_is_named_with_what_takes_all_ranks() {
    type Call = fn(&Stream<'_, Host>) -> Result<()>;
    let calls: [(&str, Call); 3] = [
        ("opening window `second`", |s| {
            open(s, "second", Buffers::Double, 8).map(drop)
        }),
        ("opening barrier `b`", |s| Barrier::open(s, "b").map(drop)),
        ("all-gather `results`", |s| {
            s.world().all_gather("results", Vec::new()).map(drop)
        }),
    ];
    for (what, call) in calls {
        World::<Host>::local(2, |world| {
            crate::stream!(let s = world.stream().unwrap());
            let _halves = open(&s, "first", Buffers::Double, 8).unwrap();
            if world.rank() == 0 {
                let error = call(&s).unwrap_err().to_string();
                let text =
                    format!("rank 1 will not come (it has left the job); {what} takes all ranks");
                assert_eq!(error, text);
            }
        });
    }
}

/// Two windows have one name and shape, and rank 1 would open them in the other order: each put would go to the wrong
/// one.
#[test]
fn a_name_is_refused_as_long_as_a_rank_holds_a_window_of_it() {
    let ids = Mutex::new(std::collections::HashSet::new());
    two([FREELY, FREELY], |world, _| {
        crate::stream!(let s = world.stream().unwrap());
        let again = |by: &[usize]| {
            let error = open(&s, "w", Buffers::Double, 8).err().unwrap();
            let Error::Open(WindowError::NameTaken { window, ranks }) = &error else {
                panic!("{error}")
            };
            assert_eq!((&*window.name, &ranks[..]), ("w", by), "{error}");
            // A refused window has an id of its own, which no other window gets.
            assert!(
                ids.lock().unwrap().insert((world.rank(), window.id)),
                "{error}"
            );
        };
        let (inbox, outbox) = open(&s, "w", Buffers::Double, 8).unwrap();
        again(&[0, 1]);
        // One half on one rank is enough, and so is an open epoch.
        drop(inbox);
        let mut outbox = Some(outbox);
        if world.rank() == 1 {
            drop(outbox.take());
        }
        again(&[0]);
        let epoch = outbox.map(Outbox::start);
        again(&[0]);
        drop(epoch);
        // Now no rank has the window, and all are in step.
        let (inbox, outbox) = open(&s, "w", Buffers::Double, 8).unwrap();
        let _other = open(&s, "x", Buffers::Double, 8).unwrap();
        // Barriers have names of their own.
        let barrier = Barrier::open(&s, "w").unwrap();
        let refused = Barrier::open(&s, "w").err().unwrap();
        assert!(
            matches!(refused, Error::Open(WindowError::NameTaken { .. })),
            "{refused}"
        );
        drop(barrier);
        Barrier::open(&s, "w").unwrap();
        let _outbox = outbox.start().complete(&s).unwrap();
        let _inbox = inbox.post(&s).unwrap().wait(&s).unwrap();
        s.synchronize().unwrap();
    });
}

#[test]
fn elements_of_different_types_are_named_by_all() {
    World::<Host>::local(2, |world| {
        crate::stream!(let s = world.stream().unwrap());
        let opened = match world.rank() {
            0 => SlotWindow::<f64>::new("w").open(&s).map(drop),
            _ => SlotWindow::<u32>::new("w").open(&s).map(drop),
        };
        let error = opened.unwrap_err().to_string();
        let types = "disagree about the element type: `f64` (8 bytes) and `u32` (4 bytes)";
        assert!(error.ends_with(types), "{error}");
    });
}

#[test]
fn who_was_started_alone_is_told_how_not_to_be() {
    let world = World::<Host>::join(WorldOptions::new()).unwrap();
    crate::stream!(let s = world.stream().unwrap());
    let mut window = SlotWindow::<u8>::new("w");
    window.slot_to(1, 0);
    let error = window.open(&s).err().unwrap().to_string();
    let text = "rank 0 names rank 1, but the job has 1 rank (this process was started alone: `tidegate run";
    assert!(error.contains(text), "{error}");
    // If the program itself made a job of one rank, there is no hint.
    World::<Host>::local(1, |world| {
        crate::stream!(let s = world.stream().unwrap());
        let mut window = SlotWindow::<u8>::new("w");
        window.slot_to(1, 0);
        let error = window.open(&s).err().unwrap().to_string();
        assert!(error.ends_with("the job has 1 rank"), "{error}");
    });
}

#[test]
fn a_barrier_that_one_rank_cannot_create_no_rank_has() {
    two(
        [(&[], &[], "sharing a window's memory"), FREELY],
        |world, _| {
            crate::stream!(let s = world.stream().unwrap());
            let error = Barrier::open(&s, "b").err().unwrap();
            let text = error.to_string();
            match (world.rank(), error) {
                (0, Error::Open(WindowError::NoNic { .. })) => {}
                (1, Error::Open(WindowError::Disagreement { .. })) => {
                    assert!(text.contains("rank 0 could not create its part"), "{text}");
                }
                _ => panic!("{text}"),
            }
            // All ranks are in step.
            world.all_gather("still", Vec::new()).unwrap();
        },
    );
}

fn world(sequence: u32) -> WindowId {
    let team = TeamId::WORLD;
    WindowId { team, sequence }
}

#[test]
fn what_is_decided_is_the_same_error_for_all() {
    let which = |sequence, name: &str| Which {
        id: world(sequence),
        name: name.into(),
    };
    let (x, y) = (which(0, "w"), which(1, "w"));
    // The ranks mean different windows of one name. Both hear the same.
    let header = |which| [postcard::to_stdvec(which).unwrap(), b"terms".to_vec()].concat();
    let (first, other) = (header(&x), header(&y));
    for mine in [&x, &y] {
        let no_terms = |_: &[u8], _, _: &[u8]| unreachable!("the windows differ");
        let error = mine.differ((0, &first), 1, &other, no_terms).to_string();
        let both = "`w` (number 0) and `w` (number 1)";
        assert!(error.contains(both), "{error}");
    }
    // They mean the same window, and its terms differ.
    let terms = |first: &[u8], rank, other: &[u8]| {
        assert_eq!((first, rank, other), (&b"terms"[..], 1, &b"terms"[..]));
        Ok(Disagreement::Memory { rank })
    };
    let error = x.differ((0, &first), 1, &first, terms).to_string();
    assert!(error.contains("memory of rank 1"), "{error}");
    let damaged = x.differ((0, &[]), 1, &other, terms).to_string();
    assert!(damaged.contains("message of rank 0"), "{damaged}");

    let fails = || Trouble::Failed(Error::other("no room"));
    let hears = |refusal: Refusal, trouble| {
        let Objection { kind, reason } = refusal.objection();
        let ranks = vec![1, 4];
        let decision = Decision::Refused {
            kind,
            ranks,
            reason,
        };
        let differ = |_: &[u8], _, _: &[u8]| unreachable!("nothing differs");
        decided(&x, decision, trouble, differ).unwrap_err()
    };
    let failed = || Refusal::of(&fails(), MOST_TEXT);
    let error = hears(failed(), None).to_string();
    let says = error.contains("rank 1") && error.contains("no room");
    assert!(says, "{error}");
    // A rank that failed gets its own error, unless all ranks get the same.
    let mine = || Some(Trouble::Failed(Error::other("mine")));
    assert!(matches!(hears(failed(), mine()), Error::Other(_)));
    let found = Refusal::Found(Disagreement::Memory { rank: 1 });
    let mine = || Some(Trouble::Found(Disagreement::Memory { rank: 4 }));
    let error = hears(found, mine()).to_string();
    assert!(error.contains("memory of rank 1"), "{error}");
    let taken = hears(Refusal::Taken, mine());
    let Error::Open(WindowError::NameTaken { ranks, .. }) = taken else {
        panic!("{taken}")
    };
    assert_eq!(ranks, [1, 4]);
}

/// Two types have one name and size, as in two versions of a program.
#[test]
fn elements_of_another_layout_are_not_gathered() {
    macro_rules! element {
        ($layout:literal) => {{
            #[derive(Clone, Copy)]
            struct Element(#[expect(dead_code, reason = "nobody looks")] u64);
            // SAFETY: it is plain data.
            unsafe impl crate::Element for Element {
                const LAYOUT: u64 = $layout;
            }
            Element(7)
        }};
    }
    World::<Host>::local(2, |world| {
        let (one, other) = (element!(1), element!(2));
        let names = [
            std::any::type_name_of_val(&one),
            std::any::type_name_of_val(&other),
        ];
        assert_eq!(names[0], names[1]);
        let all = world.all_gather_elements("same", &[one]).unwrap();
        assert_eq!(all.len(), 2);
        let error = match world.rank() {
            0 => world.all_gather_elements("x", &[one]).err().unwrap(),
            _ => world.all_gather_elements("x", &[other]).err().unwrap(),
        };
        let is_mismatch = matches!(error, Error::Control(ControlError::Mismatch { .. }));
        assert!(is_mismatch, "{error}");
    });
}
