//! Which teams begin, which fail, and what remains of them.

use tidegate_hal::control::ControlError;

use super::*;

fn ask(teams: &mut Teams, rank: usize, ranks: &[usize]) -> Vec<Founded> {
    teams.ask(rank, Founders::new("one", ranks)).unwrap()
}

fn team(number: u32) -> TeamId {
    TeamId::new(number).unwrap()
}

/// How many things the table remembers.
fn remembered(teams: &Teams) -> usize {
    teams.rounds.len() - 1 + teams.asked.len() + teams.of_rank.len() + teams.failed.len()
}

#[test]
fn a_team_begins_when_all_have_asked_and_ends_when_all_have_dropped_it() {
    let mut teams = Teams::new(5);
    for number in 1..4 {
        assert_eq!(ask(&mut teams, 3, &[3, 1]), []);
        // The others go on meanwhile.
        assert_eq!(
            ask(&mut teams, 2, &[2]),
            [(vec![2], Ok(team(2 * number - 1)))]
        );
        let both = team(2 * number);
        assert_eq!(ask(&mut teams, 1, &[3, 1]), [(vec![1, 3], Ok(both))]);
        assert_eq!(teams.withdraw(2, team(2 * number - 1), "dropped"), None);
        let rounds = teams.of(3, crate::rounds::first_round(both)).unwrap();
        assert_eq!(*rounds.members(), Members::new(&[1, 3]));
        assert_eq!(teams.withdraw(1, both, "dropped"), None);
        assert!(teams.rounds(both).is_some());
        assert_eq!(teams.withdraw(3, both, "dropped"), None);
        assert!(teams.rounds(both).is_none());
        assert_eq!(remembered(&teams), 0);
    }
}

#[test]
fn numbers_come_back_last() {
    let mut teams = Teams::new(2);
    teams.last = team(TeamId::MOST - 1);
    let numbers = [TeamId::MOST, 1, 2].map(|number| {
        let founded = ask(&mut teams, 0, &[0]);
        assert_eq!(founded, [(vec![0], Ok(team(number)))]);
        teams.withdraw(0, team(number), "dropped")
    });
    assert_eq!(numbers, [None, None, None]);
    ask(&mut teams, 0, &[0]);
    teams.last = team(2);
    assert_eq!(
        ask(&mut teams, 0, &[0]),
        [(vec![0], Ok(team(4)))],
        "3 is taken"
    );
}

#[test]
fn ranks_that_make_different_teams_all_hear_of_it() {
    let mut teams = Teams::new(5);
    assert_eq!(ask(&mut teams, 0, &[0, 1, 2]), []);
    assert_eq!(ask(&mut teams, 3, &[0, 2, 3]), []);
    let failed = ask(&mut teams, 2, &[0, 2, 3]);
    let sides = [(2, [0, 2, 3]), (0, [0, 1, 2])];
    let sides = sides.map(|(rank, ranks)| (rank, Founders::new("one", &ranks)));
    let failure = Failure::Teams(Box::new(sides.clone()));
    assert_eq!(
        failed,
        [
            (vec![2, 3], Err(failure.clone())),
            (vec![0], Err(failure.clone()))
        ]
    );
    let error = failure.founding_error(&sides[0].1).to_string();
    assert_eq!(
        error,
        "ranks make different teams: this one makes `one` of ranks 0, 2 and 3, \
         rank 0 makes `one` of ranks 0, 1 and 2"
    );
    // Rank 1 has not asked yet. It hears of it once.
    assert_eq!(ask(&mut teams, 1, &[0, 1, 2]), [(vec![1], Err(failure))]);
    assert_eq!(remembered(&teams), 0);
    // The next attempt finds nothing of the first.
    for rank in [0, 1] {
        assert_eq!(ask(&mut teams, rank, &[0, 1, 2]), []);
    }
    let begun = ask(&mut teams, 2, &[0, 1, 2]);
    assert_eq!(begun, [(vec![0, 1, 2], Ok(team(1)))]);
}

/// Each rank makes a team with the next one, and no two of the teams clash.
#[test]
fn a_cycle_of_teams_ends_for_all_ranks() {
    let mut teams = Teams::new(5);
    let pairs = [[0, 1, 4], [1, 2, 4], [2, 3, 4], [3, 0, 4]];
    for rank in [2, 0, 3] {
        assert_eq!(ask(&mut teams, rank, &pairs[rank]), []);
    }
    let ended = ask(&mut teams, 1, &pairs[1]);
    assert_eq!(ended.len(), 4);
    for (ranks, failed) in ended {
        let [rank] = ranks[..] else {
            panic!("{ranks:?}");
        };
        let failure = failed.unwrap_err();
        let (mine, theirs) = (pairs[rank], pairs[(rank + 1) % 4]);
        let error = failure.founding_error(&Founders::new("one", &mine));
        let group = |ranks: [usize; 3]| {
            Box::new(tidegate_hal::control::Group {
                name: "one".into(),
                ranks: ranks.into(),
            })
        };
        let expected = ControlError::Teams {
            rank: (rank + 1) % 4,
            mine: group(mine),
            theirs: group(theirs),
        };
        assert_eq!(error.to_string(), expected.to_string());
    }
    // Rank 4 is in all of them, and hears once.
    assert!(ask(&mut teams, 4, &pairs[2])[0].1.is_err());
    assert_eq!(remembered(&teams), 0);
}

/// Threads of ranks 0 and 1 make two teams, in different orders, and each rank fails with both. Rank 2 comes late, with
/// both: it must not wait for ranks that have given up.
#[test]
fn a_late_rank_hears_of_each_attempt() {
    let mut teams = Teams::new(3);
    let (x, y) = ([0, 1, 2], [2, 1, 0]);
    for _ in 0..2 {
        for [first, second] in [[x, y], [y, x]] {
            assert_eq!(ask(&mut teams, 0, &first), []);
            assert_eq!(ask(&mut teams, 1, &second).len(), 2, "both fail");
        }
        for team in [x, y] {
            assert!(
                matches!(&ask(&mut teams, 2, &team)[..], [(ranks, Err(Failure::Teams(_)))] if *ranks == [2])
            );
        }
        assert_eq!(remembered(&teams), 0);
    }
    // If a rank that has heard tries again, it does not wait for ranks that hear only then.
    assert_eq!(ask(&mut teams, 0, &x), []);
    assert_eq!(ask(&mut teams, 1, &y).len(), 2);
    assert_eq!(ask(&mut teams, 0, &x), []);
    assert_eq!(ask(&mut teams, 2, &x), []);
    assert_eq!(ask(&mut teams, 1, &x), [(vec![0, 1, 2], Ok(team(1)))]);
}

#[test]
fn another_order_or_another_name_is_another_team() {
    for (name, ranks) in [("one", [1, 0]), ("two", [0, 1])] {
        let mut teams = Teams::new(2);
        assert_eq!(ask(&mut teams, 0, &[0, 1]), []);
        let failed = teams.ask(1, Founders::new(name, &ranks)).unwrap();
        assert!(matches!(
            &failed[..],
            [(one, Err(Failure::Teams(_))), (other, Err(Failure::Teams(_)))] if *one == [1] && *other == [0]
        ));
        assert_eq!(remembered(&teams), 0);
    }
}

#[test]
fn a_rank_waits_for_those_that_are_busy() {
    let mut teams = Teams::new(3);
    assert_eq!(ask(&mut teams, 0, &[0, 1]), []);
    // Rank 1 is needed by both, and comes to one after the other.
    assert_eq!(ask(&mut teams, 2, &[1, 2]), []);
    assert_eq!(ask(&mut teams, 1, &[0, 1]), [(vec![0, 1], Ok(team(1)))]);
    assert_eq!(ask(&mut teams, 1, &[1, 2]), [(vec![1, 2], Ok(team(2)))]);
}

#[test]
fn a_rank_that_ends_fails_its_teams_and_no_others() {
    let mut teams = Teams::new(4);
    ask(&mut teams, 0, &[0, 1]);
    ask(&mut teams, 1, &[0, 1]);
    ask(&mut teams, 2, &[2, 3]);
    ask(&mut teams, 0, &[0, 1, 3]);
    let gone = |rank| Failure::Lost {
        rank,
        reason: "gone".into(),
    };
    let (ended, founded) = teams.end(3, "gone");
    assert_eq!(ended.len(), 0, "no round is open");
    assert_eq!(founded, [(vec![2], Err(gone(3))), (vec![0], Err(gone(3)))]);
    assert_eq!(ask(&mut teams, 1, &[0, 1, 3]), [(vec![1], Err(gone(3)))]);
    assert_eq!(ask(&mut teams, 2, &[2]), [(vec![2], Ok(team(2)))]);
    let (_, founded) = teams.end(0, "gone");
    assert_eq!(founded, []);
    assert_eq!(teams.rounds.len(), 3, "rank 1 still has its team");
    teams.end(1, "gone");
    assert_eq!(teams.rounds.len(), 2);
}

#[test]
fn what_no_correct_rank_asks_for_is_refused() {
    let mut teams = Teams::new(3);
    for ranks in [&[][..], &[0, 0], &[1, 2], &[0, 3], &[0, usize::MAX]] {
        assert!(
            teams.ask(0, Founders::new("one", ranks)).is_err(),
            "{ranks:?}"
        );
    }
    ask(&mut teams, 0, &[0, 1]);
    assert!(
        teams.ask(0, Founders::new("one", &[0, 1])).is_err(),
        "it has asked"
    );
    assert!(teams.of(0, u64::MAX).is_err());
}
