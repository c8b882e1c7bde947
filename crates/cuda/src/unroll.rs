//! A recording many times in one graph.
//!
//! # Model
//!
//! Launching a graph costs more than what lies between two kernels of one, so what is replayed often stands several times in a graph, one after the other. A child graph
//! for each time would do, but where one ends and the next begins all must be over, which takes about as long as a launch. So the *nodes* are copied, with the edges
//! that they have, and each time's first nodes follow the last ones of the time before, as they would if all had been enqueued on a stream: what may
//! begin early there (a batch, see [`crate::gpu`]; a kernel that waits by itself, behind a kernel) does, anything else begins when they are over.
//!
//! Only recordings are copied in which all kernels wait by themselves for what stands before them: batches, and functions whose binding says so. With plain kernels among them, copied epochs
//! between 8 GPUs had wrong data in about half of all elements. It is suspected that a kernel behind a batch began when the batch let its next one come, though the copied edge is a full one;
//! that has not been found out. So nothing rests on those edges alone.
//!
//! # Failure
//!
//! With a node that is no such kernel, or an older driver, the children it is.

use tidegate_ffi::cuda::{
    CudaError, Dependency, Edge, Function, Graph, GraphNode, KernelNode, Result,
};

use crate::gpu::{Early, Gpu};
use crate::graph::Shape;

/// A graph's nodes by number, each after all that it follows, and what follows what.
struct Plan {
    kernels: Vec<KernelNode>,
    edges: Vec<(usize, usize, Dependency)>,
    first: Vec<usize>,
    last: Vec<usize>,
}

/// What nothing comes before, and what nothing comes after, of `count` things of which each second follows its first.
fn ends(count: usize, edges: impl Iterator<Item = (usize, usize)> + Clone) -> [Vec<usize>; 2] {
    let without = |end: fn((usize, usize)) -> usize| {
        let mut has = vec![false; count];
        edges.clone().for_each(|edge| has[end(edge)] = true);
        (0..count).filter(|node| !has[*node]).collect()
    };
    [without(|(_, to)| to), without(|(from, _)| from)]
}

impl Gpu {
    /// A graph that does `times` times what this one does.
    ///
    /// # Safety
    ///
    /// The graph is live, was recorded so, and nobody changes it meanwhile.
    pub(crate) unsafe fn unrolled(&self, graph: Graph, shape: Shape, times: u64) -> Result<Graph> {
        // SAFETY: the caller's promise.
        let plan = unsafe { self.copyable(graph) }.ok().flatten();
        if let Some(plan) = plan {
            // SAFETY: the graph of the plan is live.
            let copied = self.new_graph(|copy| unsafe { self.copy(copy, &plan, shape, times) });
            if copied.is_ok() {
                return copied;
            }
        }
        self.new_graph(|parent| {
            let mut last = None;
            for _ in 0..times {
                // SAFETY: both graphs are live, the node is of the first; the child is copied.
                let child = unsafe { self.driver.graph_add_child(parent, last.as_slice(), graph) }?;
                last = Some(child);
            }
            Ok(())
        })
    }

    /// Whether all threads of a function wait for what stands before it, before they touch memory.
    fn waits_itself(&self, function: Function) -> bool {
        function == self.batch
            || self.bulk == Some(function)
            || self.early_functions().contains(&function)
    }

    /// A graph that is filled, or destroyed.
    fn new_graph(&self, fill: impl FnOnce(Graph) -> Result<()>) -> Result<Graph> {
        let graph = self.driver.graph_create()?;
        fill(graph).map(|()| graph).inspect_err(|_: &CudaError| {
            // SAFETY: it was just made.
            let _ = unsafe { self.driver.graph_destroy(graph) };
        })
    }

    /// # Safety
    ///
    /// The graph is live, and nobody changes it meanwhile.
    unsafe fn copyable(&self, graph: Graph) -> Result<Option<Plan>> {
        // SAFETY: the caller's promise.
        let nodes = unsafe { self.driver.graph_nodes(graph) }?;
        let mut kernels = Vec::new();
        for node in &nodes {
            // SAFETY: the node is one of the graph's.
            match unsafe { self.driver.graph_kernel_node(*node) }? {
                Some(kernel) if self.waits_itself(kernel.function()) => kernels.push(kernel),
                _ => return Ok(None),
            }
        }
        // SAFETY: the caller's promise.
        let edges = unsafe { self.driver.graph_edges(graph) }?;
        let number = |node: GraphNode| nodes.iter().position(|each| *each == node);
        let numbered = edges
            .iter()
            .map(|edge| Some((number(edge.from)?, number(edge.to)?, edge.how)))
            .collect::<Option<Vec<_>>>();
        Ok(numbered.map(|edges| {
            let [first, last] = ends(nodes.len(), edges.iter().map(|(a, b, _)| (*a, *b)));
            Plan {
                kernels,
                edges,
                first,
                last,
            }
        }))
    }

    /// # Safety
    ///
    /// Both graphs are live, the plan's and the one that is added to, and nobody else changes them meanwhile; the plan's was recorded so.
    unsafe fn copy(&self, into: Graph, plan: &Plan, shape: Shape, times: u64) -> Result<()> {
        let chain = plan.first.len() == 1 && plan.last.len() == 1;
        let early = chain && shape.early && self.early != Early::No;
        let how = if early {
            Dependency::PROGRAMMATIC
        } else {
            Dependency::OVER
        };
        let mut edges = Vec::new();
        let mut before: Vec<GraphNode> = Vec::new();
        for _ in 0..times {
            let mut nodes = Vec::new();
            for kernel in &plan.kernels {
                // SAFETY: the caller's promise.
                nodes.push(unsafe { self.driver.graph_add_kernel(into, kernel) }?);
            }
            edges.extend(plan.edges.iter().map(|(from, to, how)| Edge {
                from: nodes[*from],
                to: nodes[*to],
                how: *how,
            }));
            for to in &plan.first {
                let to = nodes[*to];
                edges.extend(before.iter().map(|from| Edge {
                    from: *from,
                    to,
                    how,
                }));
            }
            before = plan.last.iter().map(|node| nodes[*node]).collect();
        }
        // SAFETY: all are nodes that were just added; what comes early waits for the end of what it follows by itself.
        unsafe { self.driver.graph_add_edges(into, &edges) }
    }
}

#[cfg(test)]
mod tests {
    use super::ends;

    #[test]
    fn what_is_first_and_last() {
        let ends = |count, edges: &[(usize, usize)]| ends(count, edges.iter().copied());
        assert_eq!(ends(3, &[(2, 0), (0, 1)]), [vec![2], vec![1]]);
        // Forked and joined.
        assert_eq!(
            ends(4, &[(3, 0), (3, 1), (0, 2), (1, 2)]),
            [vec![3], vec![2]]
        );
        assert_eq!(ends(2, &[]), [vec![0, 1], vec![0, 1]]);
        assert_eq!(ends(1, &[]), [vec![0], vec![0]]);
    }
}
