//! Doors, and those that come there.

use super::host::ROOM;
use super::*;
use crate::mail::ALL_ROUNDS;
use rustix::net::connect;
use std::fs::File;
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::Instant;

/// Other processes may run these tests at the same time.
pub(crate) fn seed() -> &'static DoorName {
    static SEED: OnceLock<DoorName> = OnceLock::new();
    SEED.get_or_init(|| random().unwrap())
}

fn key() -> Key {
    Key::of_job(b"a key for tests", "", 2)
}

/// Doors of different tests need different names.
fn open(rank: usize) -> Door {
    Door::open(key(), name_of(&key(), seed(), rank), rank).unwrap()
}

fn visit(door: usize, me: usize) -> Visit {
    Visit::start(key(), name_of(&key(), seed(), door), me, door).unwrap()
}

fn parcel(to: usize, round: u64, count: usize) -> Parcel {
    let fd = Arc::new(OwnedFd::from(File::open("/dev/null").unwrap()));
    let fds = vec![fd; count];
    Parcel { to, round, fds }
}

/// Lets both sides go on, as often as it takes.
fn meet(door: &mut Door, visits: &mut [Visit]) -> Vec<Arrived> {
    let mut arrived = Vec::new();
    for _ in 0..4 {
        door.admit(Instant::now());
        // One answer of the crowd does not name all.
        (0..8).for_each(|_| door.hear(&mut arrived));
        for visit in &mut *visits {
            visit.can_read = true;
            let step = visit.advance(|_| {});
            assert!(matches!(step, Step::Stays), "{step:?}");
        }
    }
    arrived
}

/// A stranger that says nothing.
fn stranger(door: usize) -> OwnedFd {
    let fd = socket().unwrap();
    let name = name_of(&key(), seed(), door);
    connect(&fd, &address(&name).unwrap()).unwrap();
    fd
}

#[test]
fn parcels_come_in_order_over_one_connection() {
    let mut door = open(100);
    let mut visits = [visit(100, 3)];
    for round in 0..3 {
        visits[0].push(parcel(100, round, 2));
    }
    let mut arrived = meet(&mut door, &mut visits);
    visits[0].push(parcel(100, 3, 8));
    arrived.extend(meet(&mut door, &mut visits));
    let found = arrived
        .iter()
        .map(|one| (one.from, one.round, one.fds.as_ref().unwrap().len()));
    let found: Vec<_> = found.collect();
    assert_eq!(found, [(3, 0, 2), (3, 1, 2), (3, 2, 2), (3, 3, 8)]);
    assert_eq!(door.guests(), [Some(3)]);
    assert!(visits[0].is_idle());
}

/// Each of them gets its turn, though there is room for few at a time.
#[test]
fn all_of_a_large_node_may_come_at_once() {
    let mut door = open(1000);
    let mut visits: Vec<_> = (0..3 * ROOM).map(|rank| visit(1000, rank)).collect();
    for visit in &mut visits {
        visit.push(parcel(1000, 0, 1));
    }
    let (begun, mut came) = (Instant::now(), Vec::new());
    while came.len() < 3 * ROOM {
        assert!(begun.elapsed() < Duration::from_secs(60), "{came:?}");
        door.admit(Instant::now());
        let mut arrived = Vec::new();
        door.hear(&mut arrived);
        assert!(door.guests().len() <= ROOM);
        came.extend(arrived.into_iter().map(|one| one.from));
        visits.retain_mut(|visit| {
            visit.can_read = true;
            match visit.advance(|_| {}) {
                Step::Stays => true,
                Step::Over => false,
                Step::Failed(why, _) => panic!("{why}"),
            }
        });
    }
    came.sort_unstable();
    assert_eq!(came, (0..3 * ROOM).collect::<Vec<_>>());
    // The guests that nobody else needed to make room for have stayed.
    assert!(!visits.is_empty());
}

#[test]
fn strangers_that_say_nothing_have_to_make_room() {
    let mut door = open(102);
    let strangers: Vec<_> = (0..ROOM).map(|_| stranger(102)).collect();
    door.admit(Instant::now());
    assert_eq!(door.guests().len(), ROOM);
    let mut member = visit(102, 7);
    member.push(parcel(102, 0, 1));
    let later = Instant::now() + YOUNG;
    door.admit(later);
    let mut arrived = Vec::new();
    door.hear(&mut arrived);
    assert!(door.guests().contains(&Some(7)));
    // One was sent away, and no more.
    assert_eq!(door.guests().len(), strangers.len());
    door.tick(later + crate::handshake::PATIENCE);
    assert_eq!(door.guests(), [Some(7)]);
}

/// If nobody can be let in for a moment, something has to wake the host after it.
#[test]
fn a_host_that_rests_wakes_by_itself() {
    let mut door = open(110);
    assert_eq!(door.next_tick(), None);
    let at = Instant::now() + Duration::from_secs(60);
    door.rest_until(at);
    assert_eq!(door.next_tick(), Some(at));
    let mut listens = false;
    door.interest(Instant::now(), |_, _| listens = true);
    assert!(!listens);
    door.interest(at, |_, _| listens = true);
    assert!(listens);
    // A moment that has passed is no reason to wake again and again.
    door.rest_until(Instant::now());
    assert_eq!(door.next_tick(), None);
}

#[test]
fn strangers_are_refused() {
    let mut door = open(103);
    let name = name_of(&key(), seed(), 103);
    let other = Key::of_job(b"another key", "", 2);
    let hellos = [
        hello(&other, &name, 1).unwrap().0,
        hello(&key(), &name_of(&key(), seed(), 104), 1).unwrap().0,
        // A rank does not visit itself.
        hello(&key(), &name, 103).unwrap().0,
        ToHost::Parcel { round: 0, count: 0 },
    ];
    for hello in hellos {
        let fd = stranger(103);
        say(&fd, &hello, &[]).unwrap();
        let mut arrived = Vec::new();
        door.admit(Instant::now());
        door.hear(&mut arrived);
        assert!(door.guests().is_empty() && arrived.is_empty(), "{hello:?}");
        assert!(hear(&fd).is_err());
    }
}

/// A host that does not know the secret gets nothing.
#[test]
fn a_guest_sends_nothing_to_a_stranger() {
    let name = name_of(&key(), seed(), 105);
    let other = Key::of_job(b"another key", "", 2);
    let mut door = Door::open(other, name, 105).unwrap();
    let mut visit = visit(105, 1);
    visit.push(parcel(105, 4, 1));
    door.admit(Instant::now());
    door.hear(&mut Vec::new());
    visit.can_read = true;
    let step = visit.advance(|_| panic!("it was sent"));
    assert!(
        matches!(&step, Step::Failed(_, rounds) if *rounds == [4]),
        "{step:?}"
    );
}

#[test]
fn a_garbled_parcel_ends_the_wait_for_all_others() {
    let mut door = open(106);
    let fd = stranger(106);
    let hello = hello(&key(), &name_of(&key(), seed(), 106), 5).unwrap().0;
    say(&fd, &hello, &[]).unwrap();
    say(&fd, &(9u8, 9u8), &[]).unwrap();
    door.admit(Instant::now());
    let mut arrived = Vec::new();
    door.hear(&mut arrived);
    assert!(matches!(
        arrived[..],
        [Arrived {
            from: 5,
            round: ALL_ROUNDS,
            fds: Err(_)
        }]
    ));
    assert!(door.guests().is_empty());
}

#[test]
fn what_a_rank_had_sent_before_its_end_counts() {
    let mut door = open(107);
    let mut visits = [visit(107, 2)];
    meet(&mut door, &mut visits);
    visits[0].push(parcel(107, 0, 1));
    assert!(matches!(visits[0].advance(|_| {}), Step::Stays));
    drop(visits);
    let mut arrived = Vec::new();
    door.see_off(2, &mut arrived);
    assert!(matches!(
        arrived[..],
        [Arrived {
            from: 2,
            round: 0,
            fds: Ok(_)
        }]
    ));
    assert!(door.guests().is_empty());
}

#[test]
fn a_guest_that_was_sent_away_for_being_slow_comes_again() {
    let mut door = open(108);
    let mut slow = [visit(108, 1)];
    slow[0].push(parcel(108, 0, 1));
    door.admit(Instant::now());
    sleep(YOUNG);
    door.send_all_away();
    assert_eq!(meet(&mut door, &mut slow).len(), 1);
    // One that was refused at once does not, nor one that finds no door.
    for is_gone in [false, true] {
        let since = Instant::now();
        let mut refused = visit(108, 1);
        door.admit(Instant::now());
        if is_gone {
            sleep(YOUNG);
        }
        door.send_all_away();
        if is_gone {
            drop(std::mem::replace(&mut door, open(109)));
        }
        refused.can_read = true;
        let step = refused.advance(|_| {});
        // On a machine that stands still the first case cannot be distinguished from a slow guest.
        let is_slow = !is_gone && since.elapsed() >= YOUNG / 2;
        assert!(matches!(step, Step::Failed(..)) || is_slow, "{step:?}");
    }
}
