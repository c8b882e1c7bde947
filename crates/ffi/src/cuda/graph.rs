//! Graphs: recordings, and what can be launched of them.

use super::error::Result;
use super::handle::{Graph, GraphExec, GraphNode, Stream, flags};
use super::load::Driver;
use super::table::call;

flags! {
    /// How a graph is made executable (`CUgraphInstantiate_flags`).
    GraphFlags {
        /// Nothing special.
        NONE = 0;
        /// Memory that the graph allocated is freed before the next launch.
        AUTO_FREE_ON_LAUNCH = 1;
        /// Kernels can launch it.
        DEVICE_LAUNCH = 4;
        /// Its kernels run with the priorities of their nodes, not with that of the stream.
        USE_NODE_PRIORITY = 8;
    }
}

impl Driver {
    /// An empty graph (`cuGraphCreate`).
    pub fn graph_create(&self) -> Result<Graph> {
        let mut graph = Graph::NULL;
        // SAFETY: the function writes one handle, to one that lives; 0 is the one value allowed for the flags.
        unsafe { call!(self.graph_create(&mut graph.0, 0)) }?;
        Ok(graph)
    }

    /// Destroys the graph and its nodes; what was made executable of it stays (`cuGraphDestroy`).
    ///
    /// # Safety
    ///
    /// `graph` is alive, belongs to no capture that is going on, and neither it nor its nodes are used again.
    pub unsafe fn graph_destroy(&self, graph: Graph) -> Result<()> {
        // SAFETY: the caller vouches for the handle, and gives it up.
        unsafe { call!(self.graph_destroy(graph.0)) }
    }

    /// A copy of the graph (`cuGraphClone`).
    ///
    /// # Safety
    ///
    /// `graph` is alive, and no other thread changes it meanwhile.
    pub unsafe fn graph_clone(&self, graph: Graph) -> Result<Graph> {
        let mut copy = Graph::NULL;
        // SAFETY: the caller vouches for the handle; one handle is written, to one that lives.
        unsafe { call!(self.graph_clone(&mut copy.0, graph.0)) }?;
        Ok(copy)
    }

    /// How many nodes the graph has; a child graph is one (`cuGraphGetNodes`).
    ///
    /// # Safety
    ///
    /// `graph` is alive, and no other thread changes it meanwhile.
    pub unsafe fn graph_node_count(&self, graph: Graph) -> Result<usize> {
        let mut count = 0;
        // SAFETY: the caller vouches for the handle; without an array for the nodes, only their number is written, to one that lives.
        unsafe { call!(self.graph_get_nodes(graph.0, std::ptr::null_mut(), &mut count)) }?;
        Ok(count)
    }

    /// Adds a copy of `child` as a node of `graph`, after `dependencies` (`cuGraphAddChildGraphNode`).
    ///
    /// # Safety
    ///
    /// `graph` and `child` are alive, different, and no other thread uses the one or changes the other meanwhile; the dependencies are nodes of `graph`.
    pub unsafe fn graph_add_child(
        &self,
        graph: Graph,
        dependencies: &[GraphNode],
        child: Graph,
    ) -> Result<GraphNode> {
        let mut node = GraphNode::NULL;
        // SAFETY: the caller vouches for the handles; a node has the layout of the driver's handle, the number is the slice's, and one handle is written, to
        // one that lives.
        unsafe {
            call!(self.graph_add_child_graph_node(
                &mut node.0,
                graph.0,
                dependencies.as_ptr().cast(),
                dependencies.len(),
                child.0,
            ))
        }?;
        Ok(node)
    }

    /// Makes what can be launched of the graph (`cuGraphInstantiateWithFlags`). It does not refer to the graph any more.
    ///
    /// # Safety
    ///
    /// `graph` is alive, and no other thread changes it meanwhile.
    pub unsafe fn graph_instantiate(&self, graph: Graph, flags: GraphFlags) -> Result<GraphExec> {
        let mut exec = GraphExec::NULL;
        // SAFETY: the caller vouches for the handle; the function checks the flags; one handle is written, to one that lives.
        unsafe {
            call!(self.graph_instantiate_with_flags(&mut exec.0, graph.0, u64::from(flags.0)))
        }?;
        Ok(exec)
    }

    /// Brings the graph to the device, so that its first launch takes no longer than the others (`cuGraphUpload`).
    ///
    /// # Safety
    ///
    /// `exec` and `stream` are alive; no other thread uses `exec` meanwhile.
    pub unsafe fn graph_upload(&self, exec: GraphExec, stream: Stream) -> Result<()> {
        // SAFETY: the caller vouches for the handles.
        unsafe { call!(self.graph_upload(exec.0, stream.0)) }
    }

    /// Enqueues one execution; executions of one graph follow each other (`cuGraphLaunch`).
    ///
    /// # Safety
    ///
    /// `exec` and `stream` are alive; no other thread uses `exec` meanwhile. All that was recorded is sound to execute at this point of the stream: kernels,
    /// modules and memory that it refers to stay until it is done.
    pub unsafe fn graph_launch(&self, exec: GraphExec, stream: Stream) -> Result<()> {
        // SAFETY: the caller vouches for the handles, and for what is executed.
        unsafe { call!(self.graph_launch(exec.0, stream.0)) }
    }

    /// Destroys what could be launched; executions that are enqueued still end (`cuGraphExecDestroy`).
    ///
    /// # Safety
    ///
    /// `exec` is alive and not used again.
    pub unsafe fn graph_exec_destroy(&self, exec: GraphExec) -> Result<()> {
        // SAFETY: the caller vouches for the handle, and gives it up.
        unsafe { call!(self.graph_exec_destroy(exec.0)) }
    }
}
