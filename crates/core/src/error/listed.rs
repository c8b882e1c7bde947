//! Lists of ranks, for messages.

/// How many ranks a list names; it counts the others.
const LISTED: usize = 8;

/// "rank 3", "ranks 1, 3 and 9 more".
pub(crate) fn listed(ranks: &[usize]) -> String {
    let first: Vec<_> = ranks.iter().take(LISTED).map(usize::to_string).collect();
    let first = first.join(", ");
    match ranks.len() {
        1 => format!("rank {first}"),
        LISTED.. if ranks.len() > LISTED => {
            format!("ranks {first} and {} more", ranks.len() - LISTED)
        }
        _ => format!("ranks {first}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_ranks_some_are_listed() {
        assert_eq!(listed(&[3]), "rank 3");
        assert_eq!(
            listed(&(0..8).collect::<Vec<_>>()),
            "ranks 0, 1, 2, 3, 4, 5, 6, 7"
        );
        assert!(listed(&(0..11).collect::<Vec<_>>()).ends_with("6, 7 and 3 more"));
    }
}
