//! What a window costs, and what happens when ranks die.

use super::*;

/// The most hops of a rank while a window is opened, and the most children of one.
fn cost_of_a_window(size: u32, each: u32) -> (u64, usize) {
    let mut network = Network::new(size, each, 2, 1);
    network.windows = 1;
    network.run_until_round(CALLS);
    for rank in &mut network.ranks {
        rank.hops = 0;
        rank.waits = true;
    }
    network.windows = 2;
    for rank in 0..size {
        network.at(Duration::ZERO, Event::Begin { rank });
    }
    network.run_until_round(2 * CALLS);
    let most = network.ranks.iter().map(|rank| rank.hops).max().unwrap();
    let children = network
        .ranks
        .iter()
        .map(|rank| rank.branch.children().count());
    (most, children.max().unwrap())
}

/// At most 4 (neighbours + log2 of the ranks): 48 for 1,024 ranks. It is three calls, in each of which a rank hears its
/// children and tells its parent, and the other way. In the first one, letters may need more bundles than one: so many.
fn is_cheap(size: u32, each: u32, more: u64) {
    let (most, children) = cost_of_a_window(size, each);
    assert_eq!(children, ARITY);
    assert_eq!(most, CALLS * 2 * (ARITY as u64 + 1) + more);
    assert!(most <= 4 * (2 + u64::from(size.ilog2())));
}

#[test]
fn a_window_of_1024_ranks_costs_each_few_messages() {
    is_cheap(1024, 1024, 0);
    is_cheap(1024, 8, 0);
}

#[test]
fn a_window_of_8192_ranks_costs_each_few_messages() {
    is_cheap(8192, 64, 0);
}

#[test]
#[ignore = "deep: it takes long without optimization"]
fn a_window_of_65536_ranks_costs_each_few_messages_deep() {
    is_cheap(65536, 64, 28);
}

/// A job in which ranks die. Every survivor ends its calls, all in the same way, and knows who has died.
fn deaths(seed: u64) {
    let mut random = Random::new(seed + 1000);
    let size = 7 + random.below(60) as u32;
    let each = [1, 4, 100][random.below(3) as usize];
    let mut network = Network::new(size, each, 2 + random.below(4), seed);
    network.be_uneven();
    network.leave_at_the_end = random.below(2) == 0;
    // All have joined by then.
    while network.ranks.iter().any(|rank| !rank.waits) {
        network.run_for(Duration::from_millis(1));
    }
    let rank_0_dies = random.below(8) == 0;
    let spread = [0, 1000, 100_000, 1_000_000][random.below(4) as usize];
    for _ in 0..random.below(u64::from(size) / 3) + 1 {
        let first = u64::from(!rank_0_dies);
        let rank = first + random.below(u64::from(size) - first);
        let delay = Duration::from_micros(random.below(spread));
        network.kill_after(rank as u32, delay);
    }
    network.run_for(3 * SILENCE);
    let dead = &network.dead;
    let mut longest: Vec<Outcome> = Vec::new();
    let survivors = network.ranks.iter().enumerate();
    let survivors = survivors.filter(|(rank, _)| !dead.contains(&(*rank as u32)));
    for (number, rank) in survivors.clone() {
        assert!(!rank.waits, "seed {seed}: rank {number} still waits");
        if dead.contains(&0) {
            let has_ended = rank.is_cut || !rank.is_alive;
            assert!(
                has_ended,
                "seed {seed}: rank {number} does not know that rank 0 is lost"
            );
            continue;
        }
        assert!(!rank.is_cut, "seed {seed}: rank {number} was given up");
        if network.leave_at_the_end {
            assert!(
                number == 0 || !rank.is_alive,
                "seed {seed}: rank {number} has not left"
            );
        } else {
            assert_eq!(rank.lost, *dead, "seed {seed}: what rank {number} knows");
        }
        let common = longest.len().min(rank.outcomes.len());
        assert_eq!(rank.outcomes[..common], longest[..common], "seed {seed}");
        if rank.outcomes.len() > common {
            longest.clone_from(&rank.outcomes);
        }
    }
    if !dead.contains(&0) {
        for (_, rank) in survivors {
            assert_eq!(rank.outcomes.len(), longest.len(), "seed {seed}");
        }
        assert!(
            network.hub.log_len() < 100,
            "seed {seed}: what all have heard is kept"
        );
        if network.leave_at_the_end {
            assert!(
                network.hub.is_deserted(),
                "seed {seed}: rank 0 waits for others"
            );
        }
    }
}

#[test]
fn every_survivor_ends_whoever_dies() {
    (0..300).for_each(deaths);
}

/// Seeds that found a defect. In the first, the hub had forgotten what ranks had not heard, since a rank above them had
/// heard it. In the others, a rank got its next parent before the hub knew that the last one had ended.
#[test]
fn every_survivor_ends_in_jobs_that_once_failed() {
    [2882, 27_676, 39_071].into_iter().for_each(deaths);
}

#[test]
#[ignore = "deep: many more seeds"]
fn every_survivor_ends_whoever_dies_deep() {
    (300..20_000).for_each(deaths);
}
