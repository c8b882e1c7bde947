//! Several replays of a recording in one graph.
//!
//! # Model
//!
//! Launching a graph costs more than the step from one kernel to the next within a graph. So if a recording is replayed
//! often, one graph contains several replays, one after the other.
//!
//! A child graph for each replay would do, but everything must be over where one child ends and the next begins, and
//! that takes about as long as a launch. So the *nodes* are copied, with their edges. On each stream of the recording,
//! the first node of a replay follows the last node of the replay before, as if all had been enqueued on that stream:
//!
//! - A batch may begin early there ([`crate::gpu`]). So may a kernel that waits by itself, behind a kernel.
//! - Anything else begins when the nodes before it are over. So does a kernel that comes first where a batch comes
//!   last, since that batch may let the next launch begin while it waits.
//! - A node that follows another stream's *beginning* follows the node with which that stream ended ([`crate::line`]).
//! - Streams without an order between them have none from one replay to the next either.
//!
//! All this relies on each edge having the kind that it was made with. Otherwise a kernel would read data before the
//! batch in front of it has got it. So the edges of the copy are read back and compared. (One driver has changed their
//! kinds: see [`Driver::graph_add_edges`](crate::driver::Driver::graph_add_edges).)
//!
//! # Failure
//!
//! Child graphs are used if a node is not a kernel, if the driver is too old, or if it makes other edges.

use std::collections::{BTreeMap, HashMap};
use std::sync::Once;

use crate::driver::{Dependency, DriverError, Edge, Graph, GraphNode, Result, Stream};
use crate::gpu::Gpu;
use crate::graph::Shape;
use crate::last::Early;

/// A graph's nodes by number, and their order.
struct Order {
    nodes: usize,
    edges: Vec<(usize, usize, Dependency)>,
    lines: Vec<Line>,
}

/// What was recorded on one stream: like [`crate::line::Line`], with numbers of nodes and of lines.
#[derive(Default)]
struct Line {
    /// Each entry is a node, the lines whose ends it follows, and whether it may begin early behind the end of its own
    /// line.
    entries: Vec<(usize, Vec<usize>, bool)>,
    last: Vec<usize>,
    begins: Vec<usize>,
}

impl Order {
    /// The edges of `times` copies. Each copy's nodes are numbered after those of the copy before.
    fn unrolled(&self, times: usize) -> Vec<(usize, usize, Dependency)> {
        let mut all: Vec<(usize, usize, Dependency)> = Vec::new();
        // The nodes with which each line has ended so far.
        let mut ends: Vec<Vec<usize>> = vec![Vec::new(); self.lines.len()];
        for time in 0..times {
            let at = |node: usize| time * self.nodes + node;
            let within = self.edges.iter();
            all.extend(within.map(|(from, to, how)| (at(*from), at(*to), *how)));
            let mut between: Vec<(usize, usize, Dependency)> = Vec::new();
            for (line, (to, behind, early)) in self.entries() {
                for from in behind.iter().flat_map(|line| &ends[*line]) {
                    let how = if *early && behind[..] == [line] {
                        Dependency::Early
                    } else {
                        Dependency::Over
                    };
                    // Several streams may begin or end with the same node.
                    match between
                        .iter_mut()
                        .find(|edge| (edge.0, edge.1) == (*from, at(*to)))
                    {
                        Some(edge) => edge.2 = Dependency::Over,
                        None => between.push((*from, at(*to), how)),
                    }
                }
            }
            all.extend(between);
            let end = |line: &Line| {
                let before = line.begins.iter().flat_map(|line| ends[*line].clone());
                let last = line.last.iter().map(|node| at(*node));
                // A node always follows itself in the replay before, so that edge is left out.
                let mut latest: BTreeMap<usize, usize> = BTreeMap::new();
                for node in last.chain(before) {
                    let known = latest.entry(node % self.nodes).or_insert(node);
                    *known = node.max(*known);
                }
                latest.into_values().collect()
            };
            ends = self.lines.iter().map(end).collect();
        }
        // Between two replays, an edge beside other edges must be a plain one.
        let mut ways: HashMap<(bool, usize), usize> = HashMap::new();
        for (from, to, _) in &all {
            *ways.entry((false, *from)).or_default() += 1;
            *ways.entry((true, *to)).or_default() += 1;
        }
        for (from, to, how) in &mut all {
            let alone = ways[&(false, *from)] == 1 && ways[&(true, *to)] == 1;
            if *from / self.nodes != *to / self.nodes && !alone {
                *how = Dependency::Over;
            }
        }
        all
    }

    /// All entries, each with the number of its line.
    fn entries(&self) -> impl Iterator<Item = (usize, &(usize, Vec<usize>, bool))> {
        let lines = self.lines.iter().enumerate();
        lines.flat_map(|(line, of)| of.entries.iter().map(move |entry| (line, entry)))
    }

    /// Whether every node is on a line: nodes without predecessors follow a beginning, and nodes without successors are
    /// among a line's last.
    fn is_whole(&self) -> bool {
        (0..self.nodes).all(|node| {
            let begins = self.edges.iter().all(|(_, to, _)| *to != node);
            let ends = self.edges.iter().all(|(from, ..)| *from != node);
            (!begins || self.entries().any(|(_, (entry, ..))| *entry == node))
                && (!ends || self.lines.iter().any(|line| line.last.contains(&node)))
        })
    }
}

impl Gpu {
    /// Makes a graph of `times` replays of this graph.
    ///
    /// # Safety
    ///
    /// The graph is live, was recorded with this shape, and nobody changes it meanwhile.
    pub(crate) unsafe fn unrolled(&self, graph: Graph, shape: &Shape, times: u64) -> Result<Graph> {
        // SAFETY: the caller's promise.
        let plan = unsafe { self.copyable(graph, shape) }.ok().flatten();
        if let Some(plan) = plan {
            // SAFETY: the graph of the plan is live.
            match self.new_graph(|copy| unsafe { self.copy(copy, &plan, times as usize) }) {
                Ok((copy, true)) => return Ok(copy),
                Ok((copy, false)) => {
                    static SAID: Once = Once::new();
                    SAID.call_once(|| {
                        tidegate_hal::tell(|| tracing::warn!("the driver makes other edges of graphs than it is asked for: recordings are replayed more slowly"));
                    });
                    // SAFETY: it was just made.
                    let _ = unsafe { self.driver.graph_destroy(copy) };
                }
                Err(error) => {
                    tidegate_hal::tell(|| tracing::debug!(%error, "a recording is not copied"))
                }
            }
        }
        self.new_graph(|parent| {
            let mut last = None;
            for _ in 0..times {
                // SAFETY: both graphs are live, and the node is in the first; the child is copied.
                let child = unsafe { self.driver.graph_add_child(parent, last.as_slice(), graph) }?;
                last = Some(child);
            }
            Ok(())
        })
        .map(|(graph, ())| graph)
    }

    /// Makes a graph and fills it. If that fails, the graph is destroyed.
    fn new_graph<T>(&self, fill: impl FnOnce(Graph) -> Result<T>) -> Result<(Graph, T)> {
        let graph = self.driver.graph_create()?;
        let filled = fill(graph).inspect_err(|_: &DriverError| {
            // SAFETY: it was just made.
            let _ = unsafe { self.driver.graph_destroy(graph) };
        });
        Ok((graph, filled?))
    }

    /// # Safety
    ///
    /// The graph is live, and nobody changes it meanwhile.
    unsafe fn copyable(
        &self,
        graph: Graph,
        shape: &Shape,
    ) -> Result<Option<(Vec<GraphNode>, Order)>> {
        // SAFETY: the caller's promise.
        let nodes = unsafe { self.driver.graph_nodes(graph) }?;
        let mut kernels = Vec::new();
        for node in &nodes {
            // SAFETY: the node is one of the graph's.
            match unsafe { self.driver.graph_kernel(*node) }? {
                Some(_) => kernels.push(*node),
                None => return Ok(None),
            }
        }
        // SAFETY: the caller's promise.
        let edges = unsafe { self.driver.graph_edges(graph) }?;
        if edges.iter().any(|edge| edge.how == Dependency::Other) {
            return Ok(None);
        }
        let number = |node: &GraphNode| nodes.iter().position(|each| each == node);
        let numbered = edges
            .iter()
            .map(|edge| Some((number(&edge.from)?, number(&edge.to)?, edge.how)))
            .collect::<Option<Vec<_>>>();
        let Some(known) = &shape.lines else {
            return Ok(None);
        };
        let line = |stream: &Stream| known.iter().position(|line| line.stream == *stream);
        let lines = |streams: &[Stream]| streams.iter().map(line).collect::<Option<Vec<_>>>();
        let lines = known.iter().map(|line| {
            let entries = line.entries.iter().map(|entry| {
                let early = entry.early && self.early != Early::No;
                Some((number(&entry.node)?, lines(&entry.behind)?, early))
            });
            Some(Line {
                entries: entries.collect::<Option<Vec<_>>>()?,
                last: line.last.iter().map(number).collect::<Option<Vec<_>>>()?,
                begins: lines(&line.begins)?,
            })
        });
        let (Some(edges), Some(lines)) = (numbered, lines.collect()) else {
            return Ok(None);
        };
        let order = Order {
            nodes: nodes.len(),
            edges,
            lines,
        };
        Ok(order.is_whole().then_some((kernels, order)))
    }

    /// Adds `times` copies to a graph. Returns whether the driver has made the edges as asked.
    ///
    /// # Safety
    ///
    /// The graph of the kernels and the graph that is added to are live. The second is empty, the first was recorded
    /// with this shape, and nobody else changes them meanwhile.
    unsafe fn copy(
        &self,
        into: Graph,
        (kernels, order): &(Vec<GraphNode>, Order),
        times: usize,
    ) -> Result<bool> {
        let mut nodes = Vec::with_capacity(times * kernels.len());
        for _ in 0..times {
            for kernel in kernels {
                // SAFETY: the caller's promise.
                nodes.push(unsafe { self.driver.graph_add_copy(into, *kernel) }?);
            }
        }
        let edges = order.unrolled(times);
        let edges: Vec<_> = edges
            .into_iter()
            .map(|(from, to, how)| Edge {
                from: nodes[from],
                to: nodes[to],
                how,
            })
            .collect();
        // SAFETY: all nodes were just added. A kernel that begins early waits by itself for the end of the node before.
        unsafe { self.driver.graph_add_edges(into, &edges) }?;
        // SAFETY: the caller's promise.
        let made = unsafe { self.driver.graph_edges(into) }?;
        Ok(are_same(&edges, &made))
    }
}

/// Whether two lists have the same edges, in any order. No two edges of a list have the same ends.
fn are_same(edges: &[Edge], others: &[Edge]) -> bool {
    let kinds: HashMap<_, _> = edges.iter().map(|e| ((e.from, e.to), e.how)).collect();
    let is_known = |e: &Edge| kinds.get(&(e.from, e.to)) == Some(&e.how);
    others.len() == edges.len() && others.iter().all(is_known)
}

#[cfg(test)]
mod tests {
    use super::{Line, Order, are_same};
    use crate::driver::{Dependency, Edge, GraphNode};

    const OVER: Dependency = Dependency::Over;
    const EARLY: Dependency = Dependency::Early;

    /// An order whose lines follow only themselves: for each line its first node, its last nodes, and whether the first
    /// may begin early.
    fn order(
        nodes: usize,
        edges: &[(usize, usize, Dependency)],
        lines: Vec<(usize, Vec<usize>, bool)>,
    ) -> Order {
        let line = |(number, (first, last, early))| Line {
            entries: vec![(first, vec![number], early)],
            last,
            begins: Vec::new(),
        };
        Order {
            nodes,
            edges: edges.to_vec(),
            lines: lines.into_iter().enumerate().map(line).collect(),
        }
    }

    /// The edges between the replays, of three replays.
    fn between(order: &Order) -> Vec<(usize, usize, Dependency)> {
        assert!(order.is_whole());
        let (nodes, all) = (order.nodes, order.unrolled(3));
        let time = |node: usize| node / nodes;
        let within = |(from, to, _): &(usize, usize, _)| time(*from) == time(*to);
        assert_eq!(
            all.iter().filter(|edge| within(edge)).count(),
            3 * order.edges.len()
        );
        let crossing = all.iter().copied().filter(|edge| !within(edge));
        let [second, third]: [Vec<_>; 2] =
            [1, 2].map(|to| crossing.clone().filter(|edge| time(edge.1) == to).collect());
        let shifted = third
            .iter()
            .map(|(from, to, how)| (from - nodes, to - nodes, *how));
        assert_eq!(second, shifted.collect::<Vec<_>>());
        second
    }

    #[test]
    fn a_chain_follows_itself() {
        let edges = [(0, 1, EARLY), (1, 2, OVER)];
        let chain = |early| order(3, &edges, vec![(0, vec![2], early)]);
        assert_eq!(between(&chain(true)), [(2, 3, EARLY)]);
        assert_eq!(between(&chain(false)), [(2, 3, OVER)]);
    }

    #[test]
    fn streams_that_never_meet_go_on_by_themselves() {
        let both = order(
            3,
            &[(0, 1, EARLY)],
            vec![(0, vec![1], true), (2, vec![2], false)],
        );
        assert_eq!(between(&both), [(1, 3, EARLY), (2, 5, OVER)]);
    }

    #[test]
    fn where_streams_meet_nothing_begins_early() {
        // Node 0 is on the first stream, 1 on the second behind it, and 2 on the first behind both.
        let edges = [(0, 1, OVER), (0, 2, OVER), (1, 2, OVER)];
        let there_and_back = order(3, &edges, vec![(0, vec![2], true), (1, vec![1], true)]);
        assert_eq!(between(&there_and_back), [(2, 3, EARLY), (1, 4, OVER)]);
        // The second stream's work is over when the first stream's next replay begins.
        let joined = order(2, &[], vec![(0, vec![0, 1], true), (1, vec![1], true)]);
        assert_eq!(between(&joined), [(0, 2, OVER), (1, 2, OVER), (1, 3, OVER)]);
    }

    #[test]
    fn who_followed_a_beginning_follows_the_other_line_s_end() {
        // Node 0 is on the second stream and follows the beginning of the first; 1 is on the first and follows 0.
        let mut there = order(
            2,
            &[(0, 1, OVER)],
            vec![(1, vec![1], true), (0, vec![0], true)],
        );
        there.lines[1].entries[0].1 = vec![1, 0];
        assert_eq!(between(&there), [(1, 3, OVER), (0, 2, OVER), (1, 2, OVER)]);
        // Here that node is not the first of its stream: 0 and 1 are on the second stream, 2 is on the first.
        let mut later = order(
            3,
            &[(0, 1, EARLY)],
            vec![(2, vec![2], true), (0, vec![1], true)],
        );
        later.lines[1].entries.push((1, vec![0], true));
        assert_eq!(between(&later), [(2, 5, OVER), (1, 3, EARLY), (2, 4, OVER)]);
    }

    #[test]
    fn who_ends_where_another_began_ends_with_the_other_s_time_before() {
        // The second stream has only a wait for the beginning of the first.
        let mut nothing = order(1, &[], vec![(0, vec![0], true)]);
        nothing.lines.push(Line {
            begins: vec![1, 0],
            ..Line::default()
        });
        assert_eq!(between(&nothing), [(0, 1, EARLY)]);
        // The first node of a third stream follows that: the first stream's end of two replays ago.
        let mut third = order(2, &[], vec![(0, vec![0], true)]);
        third.lines.push(Line {
            begins: vec![1, 0],
            ..Line::default()
        });
        third.lines.push(Line {
            entries: vec![(1, vec![2, 1], true)],
            last: vec![1],
            ..Line::default()
        });
        let all = third.unrolled(4);
        let to = |node| -> Vec<_> {
            all.iter()
                .filter(|edge| edge.1 == node)
                .map(|edge| edge.0)
                .collect()
        };
        let plain = |node| all.iter().all(|edge| edge.0 != node || edge.2 == OVER);
        assert!(plain(0) && plain(2), "what is followed twice");
        assert_eq!(
            [to(1), to(3), to(5), to(7)],
            [vec![], vec![1], vec![3, 0], vec![5, 2]]
        );
    }

    #[test]
    fn what_is_on_no_line_is_not_copied() {
        assert!(!order(2, &[], vec![(0, vec![0], true)]).is_whole());
        assert!(!order(2, &[(0, 1, OVER)], vec![(0, vec![0], true)]).is_whole());
        assert!(!order(2, &[(0, 1, OVER)], vec![(1, vec![1], true)]).is_whole());
        assert!(order(0, &[], vec![]).is_whole());
    }

    #[test]
    fn edges_of_another_kind_are_found() {
        let node = |at: usize| GraphNode(std::ptr::without_provenance_mut(at));
        let edge = |from, to, how| Edge {
            from: node(from),
            to: node(to),
            how,
        };
        let planned = [edge(1, 2, EARLY), edge(2, 3, OVER)];
        assert!(are_same(&planned, &[planned[1], planned[0]]));
        assert!(!are_same(&planned, &[planned[0], edge(2, 3, EARLY)]));
        assert!(!are_same(&planned, &[planned[0], edge(1, 3, OVER)]));
        assert!(!are_same(&planned, &planned[..1]));
    }
}
