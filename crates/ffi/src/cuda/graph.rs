//! Graphs: recordings, and the executable graphs that are made from them.

use std::ffi::c_void;

use super::error::Result;
use super::handle::{Function, Graph, GraphExec, GraphNode, Stream, flags};
use super::load::Driver;
use super::sys;
use super::table::{call, call_optional};

flags! {
    /// How a graph is made executable (`CUgraphInstantiate_flags`).
    GraphFlags {
        /// No flags.
        NONE = 0;
        /// Its kernels run with the priorities of their nodes, not with that of the stream.
        USE_NODE_PRIORITY = 8;
    }
}

/// How a node follows another (`CUgraphEdgeData`).
#[derive(Clone, Copy, Debug)]
pub struct Dependency(sys::CUgraphEdgeData);

impl Dependency {
    /// The node begins when the other is over.
    pub const OVER: Self = Self::of(0, 0);

    /// Between kernels: the second begins when each block of the first has allowed it
    /// (`griddepcontrol.launch_dependents`) or is over. The second waits for the end of the first by itself
    /// (`griddepcontrol.wait`).
    pub const PROGRAMMATIC: Self = Self::of(1, 1);

    const fn of(from_port: u8, type_: u8) -> Self {
        Dependency(sys::CUgraphEdgeData {
            from_port,
            to_port: 0,
            type_,
            reserved: [0; 5],
        })
    }
}

impl PartialEq for Dependency {
    fn eq(&self, other: &Self) -> bool {
        let parts = |of: &Self| (of.0.from_port, of.0.to_port, of.0.type_);
        parts(self) == parts(other)
    }
}

/// An edge of a graph: `to` follows `from`.
#[derive(Clone, Copy, Debug)]
pub struct Edge {
    /// The node that comes first.
    pub from: GraphNode,
    /// The node that follows.
    pub to: GraphNode,
    /// How it follows.
    pub how: Dependency,
}

/// The kernel and the arguments of a kernel node. They are valid as long as the node lives, until its arguments are
/// [set](Driver::graph_set_arguments).
#[derive(Clone, Copy, Debug)]
pub struct KernelNode {
    node: GraphNode,
    params: sys::CUDA_KERNEL_NODE_PARAMS_v2,
}

impl KernelNode {
    /// The kernel.
    pub fn function(&self) -> Function {
        Function(self.params.func)
    }

    /// How many blocks it has.
    pub fn blocks(&self) -> usize {
        let params = &self.params;
        let grid = [params.gridDimX, params.gridDimY, params.gridDimZ];
        grid.iter().map(|blocks| *blocks as usize).product()
    }

    /// The addresses of its arguments, one for each parameter; null if the driver has the arguments in another form.
    /// They are valid as long as this value.
    pub fn arguments(&self) -> *const *const c_void {
        self.params.kernelParams.cast_const().cast()
    }
}

impl Driver {
    /// An empty graph (`cuGraphCreate`).
    pub fn graph_create(&self) -> Result<Graph> {
        let mut graph = Graph::NULL;
        // SAFETY: the function writes one handle into a live variable; 0 is the one value allowed for the flags.
        unsafe { call!(self.graph_create(&mut graph.0, 0)) }?;
        Ok(graph)
    }

    /// Destroys the graph and its nodes (`cuGraphDestroy`). Executable graphs that were made from it stay.
    ///
    /// # Safety
    ///
    /// `graph` is alive, and belongs to no capture that still goes on. Neither the graph nor its nodes are used again.
    pub unsafe fn graph_destroy(&self, graph: Graph) -> Result<()> {
        // SAFETY: the caller vouches for the handle, and gives it up.
        unsafe { call!(self.graph_destroy(graph.0)) }
    }

    /// How many nodes the graph has; a child graph counts as one (`cuGraphGetNodes`).
    ///
    /// # Safety
    ///
    /// `graph` is alive, and no other thread changes it meanwhile.
    pub unsafe fn graph_node_count(&self, graph: Graph) -> Result<usize> {
        let mut count = 0;
        // SAFETY: the caller vouches for the handle; without an array for the nodes, only their number is written, into
        // a live variable.
        unsafe { call!(self.graph_get_nodes(graph.0, std::ptr::null_mut(), &mut count)) }?;
        Ok(count)
    }

    /// The nodes of the graph, in no particular order (`cuGraphGetNodes`).
    ///
    /// # Safety
    ///
    /// `graph` is alive, and no other thread changes it meanwhile.
    pub unsafe fn graph_nodes(&self, graph: Graph) -> Result<Vec<GraphNode>> {
        // SAFETY: the caller's promise.
        let mut count = unsafe { self.graph_node_count(graph) }?;
        // If there are no nodes, a driver refuses a call with an array of length 0 as invalid (580.159).
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut nodes = vec![GraphNode::NULL; count];
        // SAFETY: the caller vouches for the graph; a node has the layout of the driver's handle, and the array has
        // room for the number that is passed.
        unsafe { call!(self.graph_get_nodes(graph.0, nodes.as_mut_ptr().cast(), &mut count)) }?;
        nodes.truncate(count);
        Ok(nodes)
    }

    /// The edges of the graph, in no particular order (`cuGraphGetEdges`; from CUDA 12.3 on).
    ///
    /// # Safety
    ///
    /// `graph` is alive, and no other thread changes it meanwhile.
    pub unsafe fn graph_edges(&self, graph: Graph) -> Result<Vec<Edge>> {
        let (nodes, hows) = (std::ptr::null_mut(), std::ptr::null_mut());
        let mut count = 0;
        // SAFETY: the caller vouches for the graph; without arrays only the number is written into a live variable.
        unsafe { call_optional!(self.graph_get_edges(graph.0, nodes, nodes, hows, &mut count)) }?;
        // If there are no edges, a driver refuses a call with arrays of length 0 as invalid (580.159).
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut ends = [vec![GraphNode::NULL; count], vec![GraphNode::NULL; count]];
        let mut hows = vec![Dependency::OVER.0; count];
        let [from, to] = &mut ends;
        // SAFETY: the caller vouches for the graph; a node has the layout of the driver's handle, and each array has
        // room for the number that is passed.
        unsafe {
            call_optional!(self.graph_get_edges(
                graph.0,
                from.as_mut_ptr().cast(),
                to.as_mut_ptr().cast(),
                hows.as_mut_ptr(),
                &mut count,
            ))
        }?;
        let edges = from.iter().zip(&*to).zip(hows).take(count);
        Ok(edges
            .map(|((from, to), how)| Edge {
                from: *from,
                to: *to,
                how: Dependency(how),
            })
            .collect())
    }

    /// The kernel and the arguments of a node, if it is a kernel node (`cuGraphNodeGetType`,
    /// `cuGraphKernelNodeGetParams`).
    ///
    /// # Safety
    ///
    /// `node` belongs to a graph that is alive, and that no other thread changes meanwhile.
    pub unsafe fn graph_kernel_node(&self, node: GraphNode) -> Result<Option<KernelNode>> {
        let mut kind = u32::MAX;
        // SAFETY: the caller vouches for the node; one integer is written into a live variable.
        unsafe { call_optional!(self.graph_node_get_type(node.0, &mut kind)) }?;
        if kind != sys::CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_KERNEL as u32 {
            return Ok(None);
        }
        let mut params = std::mem::MaybeUninit::<sys::CUDA_KERNEL_NODE_PARAMS_v2>::zeroed();
        // SAFETY: the caller vouches for the node, which is a kernel node; one structure is written into a live
        // variable.
        unsafe { call_optional!(self.graph_kernel_node_get_params(node.0, params.as_mut_ptr())) }?;
        // SAFETY: the driver has written it. Besides, it consists of numbers and pointers, so zeros are a value.
        let params = unsafe { params.assume_init() };
        Ok(Some(KernelNode { node, params }))
    }

    /// Gives a kernel node other arguments (`cuGraphKernelNodeSetParams`). This also works in the graph of a capture
    /// that still goes on.
    ///
    /// # Safety
    ///
    /// The node of `kernel` belongs to a graph that is alive, and that no other thread changes meanwhile. Its arguments
    /// have not been set since `kernel` was made. `kernel` and its copies are not used again. `arguments` has one
    /// pointer for each parameter of the kernel, to a value of the parameter's type. The values are copied.
    pub unsafe fn graph_set_arguments(
        &self,
        kernel: &KernelNode,
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        let mut params = kernel.params;
        params.kernelParams = arguments.as_mut_ptr();
        params.extra = std::ptr::null_mut();
        // SAFETY: the caller vouches for the node, and for the arguments; everything else stays as it was.
        unsafe { call_optional!(self.graph_kernel_node_set_params(kernel.node.0, &params)) }
    }

    /// Adds a node that executes the same kernel with the same arguments and attributes (`cuGraphAddKernelNode`). It
    /// follows no other node yet.
    ///
    /// # Safety
    ///
    /// `graph` and the graph of `kernel`'s node are alive, and no other thread changes either meanwhile. The node's
    /// arguments have not been set since `kernel` was made.
    pub unsafe fn graph_add_kernel(&self, graph: Graph, kernel: &KernelNode) -> Result<GraphNode> {
        let mut node = GraphNode::NULL;
        // SAFETY: the caller vouches for the graph; the arguments belong to a node that is alive, and are copied; one
        // handle is written into a live variable.
        unsafe {
            call_optional!(self.graph_add_kernel_node(
                &mut node.0,
                graph.0,
                std::ptr::null(),
                0,
                &kernel.params,
            ))
        }?;
        // SAFETY: both are kernel nodes that are alive.
        unsafe { call_optional!(self.graph_kernel_node_copy_attributes(node.0, kernel.node.0)) }?;
        Ok(node)
    }

    /// Adds edges between nodes (`cuGraphAddDependencies`; from CUDA 12.3 on).
    ///
    /// The driver gives all edges of a call the kind of the first one. (With 580.159 they read back so, and a kernel
    /// behind a plain edge was on the device while the kernel before it still ran.) So this makes one call for each
    /// kind.
    ///
    /// # Errors
    ///
    /// The driver's. After an error, some of the edges may have been added.
    ///
    /// # Safety
    ///
    /// `graph` is alive, and no other thread uses it meanwhile. All ends of the edges are its nodes. A programmatic
    /// dependency is between kernels. Its second kernel waits for the end of the first before it touches memory that
    /// the first may have touched.
    pub unsafe fn graph_add_edges(&self, graph: Graph, edges: &[Edge]) -> Result<()> {
        let mut kinds: Vec<Dependency> = Vec::new();
        for edge in edges {
            if !kinds.contains(&edge.how) {
                kinds.push(edge.how);
            }
        }
        kinds.into_iter().try_for_each(|kind| {
            let alike = || edges.iter().filter(|edge| edge.how == kind);
            let from: Vec<_> = alike().map(|edge| edge.from.0).collect();
            let to: Vec<_> = alike().map(|edge| edge.to.0).collect();
            let how = vec![kind.0; from.len()];
            // SAFETY: the caller vouches for the handles; the arrays have the length that is passed.
            unsafe {
                call_optional!(self.graph_add_dependencies(
                    graph.0,
                    from.as_ptr(),
                    to.as_ptr(),
                    how.as_ptr(),
                    from.len(),
                ))
            }
        })
    }

    /// Adds a copy of `child` as a node of `graph`, after `dependencies` (`cuGraphAddChildGraphNode`).
    ///
    /// # Safety
    ///
    /// `graph` and `child` are alive, and are different graphs. Meanwhile no other thread uses `graph` or changes
    /// `child`. The dependencies are nodes of `graph`.
    pub unsafe fn graph_add_child(
        &self,
        graph: Graph,
        dependencies: &[GraphNode],
        child: Graph,
    ) -> Result<GraphNode> {
        let mut node = GraphNode::NULL;
        // SAFETY: the caller vouches for the handles; a node has the layout of the driver's handle, the number is the
        // slice's, and one handle is written into a live variable.
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

    /// Makes an executable graph (`cuGraphInstantiateWithFlags`). It does not refer to `graph` afterwards.
    ///
    /// # Safety
    ///
    /// `graph` is alive, and no other thread changes it meanwhile.
    pub unsafe fn graph_instantiate(&self, graph: Graph, flags: GraphFlags) -> Result<GraphExec> {
        let mut exec = GraphExec::NULL;
        // SAFETY: the caller vouches for the handle; the function checks the flags; one handle is written into a live
        // variable.
        unsafe {
            call!(self.graph_instantiate_with_flags(&mut exec.0, graph.0, u64::from(flags.0)))
        }?;
        Ok(exec)
    }

    /// Copies the graph to the device, so that its first launch takes no longer than later ones (`cuGraphUpload`).
    ///
    /// # Safety
    ///
    /// `exec` and `stream` are alive; no other thread uses `exec` meanwhile.
    pub unsafe fn graph_upload(&self, exec: GraphExec, stream: Stream) -> Result<()> {
        // SAFETY: the caller vouches for the handles.
        unsafe { call!(self.graph_upload(exec.0, stream.0)) }
    }

    /// Enqueues one execution (`cuGraphLaunch`). Executions of one graph never overlap.
    ///
    /// # Safety
    ///
    /// `exec` and `stream` are alive; no other thread uses `exec` meanwhile. The recorded work is sound to execute at
    /// this point of the stream. Kernels, modules and memory that it refers to stay until it is done.
    pub unsafe fn graph_launch(&self, exec: GraphExec, stream: Stream) -> Result<()> {
        // SAFETY: the caller vouches for the handles, and for what is executed.
        unsafe { call!(self.graph_launch(exec.0, stream.0)) }
    }

    /// Destroys an executable graph (`cuGraphExecDestroy`). Executions that are enqueued already are not cut short.
    ///
    /// # Safety
    ///
    /// `exec` is alive and not used again.
    pub unsafe fn graph_exec_destroy(&self, exec: GraphExec) -> Result<()> {
        // SAFETY: the caller vouches for the handle, and gives it up.
        unsafe { call!(self.graph_exec_destroy(exec.0)) }
    }
}
