//! Cycles in a graph.

/// The largest sets of nodes in which every node reaches every other, without sets of one node.
///
/// `next[node]` are the nodes to which `node` leads. This is Tarjan's algorithm.
pub(crate) fn cycles(next: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut walk = Walk {
        next,
        number: vec![None; next.len()],
        low: vec![0; next.len()],
        path: Vec::new(),
        is_on_path: vec![false; next.len()],
        cycles: Vec::new(),
        count: 0,
    };
    for node in 0..next.len() {
        if walk.number[node].is_none() {
            walk.visit(node);
        }
    }
    walk.cycles
}

struct Walk<'g> {
    next: &'g [Vec<usize>],
    /// The order in which the nodes were met.
    number: Vec<Option<usize>>,
    /// The lowest number that is known to be reached from a node.
    low: Vec<usize>,
    /// The nodes whose sets are not complete.
    path: Vec<usize>,
    is_on_path: Vec<bool>,
    cycles: Vec<Vec<usize>>,
    count: usize,
}

impl Walk<'_> {
    fn visit(&mut self, node: usize) {
        let number = self.count;
        self.count += 1;
        self.number[node] = Some(number);
        self.low[node] = number;
        self.path.push(node);
        self.is_on_path[node] = true;
        for &next in &self.next[node] {
            match self.number[next] {
                None => {
                    self.visit(next);
                    self.low[node] = self.low[node].min(self.low[next]);
                }
                Some(met) if self.is_on_path[next] => self.low[node] = self.low[node].min(met),
                Some(_) => {}
            }
        }
        if self.low[node] == number {
            let start = self.path.iter().rposition(|it| *it == node);
            let set = self
                .path
                .split_off(start.expect("a node is on the path until its set is complete"));
            for member in &set {
                self.is_on_path[*member] = false;
            }
            if set.len() > 1 {
                self.cycles.push(set);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::cycles;

    #[test]
    fn finds_each_cycle_and_what_hangs_together_with_it() {
        // 0 -> 1 -> 2 -> 0, with 1 <-> 3; 4 leads there and is not reached; 5 <-> 6; 7 leads only to itself.
        let next = [
            vec![1],
            vec![2, 3],
            vec![0],
            vec![1],
            vec![0, 5],
            vec![6],
            vec![5],
            vec![7],
        ];
        let mut found = cycles(&next);
        for cycle in &mut found {
            cycle.sort_unstable();
        }
        found.sort();
        assert_eq!(found, [vec![0, 1, 2, 3], vec![5, 6]]);
        assert!(cycles(&[vec![1], vec![2], vec![]]).is_empty());
    }
}
