//! Makes executable forms of graphs.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::codes;
use crate::graph::{Edge, Node, PROGRAMMATIC, Step};
use crate::handle::Handle;
use crate::state::State;
use crate::work::What;

impl State {
    /// Adds a node to a graph, after others.
    pub(crate) fn add_node(
        &mut self,
        graph: Handle,
        node: Node,
        after: &[(Handle, (u8, u8, u8))],
    ) -> Result<Handle, i32> {
        let handle = self.fresh();
        let into = self.graphs.get_mut(&graph).ok_or(codes::INVALID_HANDLE)?;
        into.nodes.push(handle);
        let edges = after.iter().map(|(from, how)| Edge {
            from: *from,
            to: handle,
            how: *how,
        });
        into.edges.extend(edges);
        self.nodes.insert(handle, node);
        Ok(handle)
    }

    /// The steps of a graph.
    pub(crate) fn plan(&self, graph: Handle) -> Result<Arc<[Step]>, i32> {
        let graph = self.graphs.get(&graph).ok_or(codes::INVALID_HANDLE)?;
        let order = graph.in_order().ok_or(codes::INVALID_VALUE)?;
        // The index of each node's last step.
        let mut ends: HashMap<Handle, usize> = HashMap::new();
        let mut before: HashMap<Handle, (Vec<usize>, Vec<usize>)> = HashMap::new();
        let mut edges: HashMap<Handle, Vec<&Edge>> = HashMap::new();
        for edge in &graph.edges {
            edges.entry(edge.to).or_default().push(edge);
        }
        let mut steps: Vec<Step> = Vec::new();
        for node in order {
            let (after, early) = before.entry(node).or_default();
            for edge in edges.remove(&node).into_iter().flatten() {
                match edge.how == PROGRAMMATIC {
                    true => early.push(ends[&edge.from]),
                    false => after.push(ends[&edge.from]),
                }
            }
            let (after, early) = (after.clone(), early.clone());
            match &self.nodes[&node] {
                Node::Work(what) => steps.push(Step {
                    what: what.clone(),
                    after,
                    early,
                }),
                Node::Child(child) => {
                    let base = steps.len();
                    let shifted = |steps: &[usize]| steps.iter().map(|at| at + base).collect();
                    let mut last: HashSet<usize> = (base..base + child.len()).collect();
                    for step in child.iter() {
                        let mut step = Step {
                            what: step.what.clone(),
                            after: shifted(&step.after),
                            early: shifted(&step.early),
                        };
                        step.after
                            .iter()
                            .chain(&step.early)
                            .for_each(|at| _ = last.remove(at));
                        if step.after.is_empty() && step.early.is_empty() {
                            step.after.clone_from(&after);
                        }
                        steps.push(step);
                    }
                    steps.push(Step {
                        what: What::Nothing,
                        after: if child.is_empty() {
                            after
                        } else {
                            last.into_iter().collect()
                        },
                        early: Vec::new(),
                    });
                }
            }
            ends.insert(node, steps.len() - 1);
        }
        Ok(steps.into())
    }

    pub(crate) fn destroy_graph(&mut self, graph: Handle) -> Result<(), i32> {
        let graph = self.graphs.remove(&graph).ok_or(codes::INVALID_HANDLE)?;
        for node in graph.nodes {
            self.nodes.remove(&node);
        }
        Ok(())
    }
}
