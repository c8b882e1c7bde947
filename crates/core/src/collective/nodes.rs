//! Which ranks of a team share a node.

/// The ranks of a team by node. All ranks make the same of it, since all know the nodes of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Nodes {
    /// The ranks of each node, in ascending order. The nodes have the order of their lowest ranks.
    members: Vec<Vec<usize>>,
    /// The node of each rank, by its number here, and the rank's seat among its ranks.
    seats: Vec<(usize, usize)>,
}

impl Nodes {
    /// From the node of each rank, named by any numbers.
    pub(crate) fn new(names: impl IntoIterator<Item = usize>) -> Self {
        let mut numbers = std::collections::HashMap::new();
        let mut members: Vec<Vec<usize>> = Vec::new();
        let mut seats = Vec::new();
        for (rank, name) in names.into_iter().enumerate() {
            let node = *numbers.entry(name).or_insert(members.len());
            if node == members.len() {
                members.push(Vec::new());
            }
            seats.push((node, members[node].len()));
            members[node].push(rank);
        }
        Nodes { members, seats }
    }

    /// All ranks on one node: algorithms make no difference between them.
    pub(crate) fn one(ranks: usize) -> Self {
        Self::new(std::iter::repeat_n(0, ranks))
    }

    /// The ranks of each node.
    pub(crate) fn groups(&self) -> &[Vec<usize>] {
        &self.members
    }

    /// The ranks of each node but one.
    pub(crate) fn others(&self, home: usize) -> impl Iterator<Item = &Vec<usize>> {
        let groups = self.members.iter().enumerate();
        groups.filter_map(move |(node, ranks)| (node != home).then_some(ranks))
    }

    /// The node of a rank.
    pub(crate) fn of(&self, rank: usize) -> usize {
        self.seats[rank].0
    }

    /// The place of a rank among the ranks of its node.
    pub(crate) fn seat(&self, rank: usize) -> usize {
        self.seats[rank].1
    }

    /// The rank of a node that works on what has this number. Equal numbers on different nodes meet, so the work and the
    /// traffic of a node are divided among its ranks.
    pub(crate) fn worker(&self, node: usize, number: usize) -> usize {
        let ranks = &self.members[node];
        ranks[number % ranks.len()]
    }

    /// The ranks of the largest node.
    pub(crate) fn longest(&self) -> usize {
        self.members.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Whether there are several nodes, and not each rank is alone on its own.
    pub(crate) fn are_layered(&self) -> bool {
        self.members.len() > 1 && self.longest() > 1
    }

    /// Whether each node has ranks that follow each other: then what is reduced in the order of the ranks is reduced
    /// node by node.
    pub(crate) fn are_in_order(&self) -> bool {
        self.members
            .iter()
            .flatten()
            .copied()
            .eq(0..self.seats.len())
    }

    /// How many other ranks a rank exchanges data with if each datum goes to one rank of each other node.
    pub(crate) fn peers(&self) -> usize {
        (self.longest() + self.members.len()).saturating_sub(2)
    }
}
