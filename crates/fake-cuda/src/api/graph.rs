//! Graphs.

use std::ffi::{c_uint, c_ulonglong, c_void};
use std::sync::Arc;

use cudarc::driver::sys;

use super::{api, give};
use crate::args::Launch;
use crate::capture::shown;
use crate::codes;
use crate::graph::{Edge, Exec, Graph, Node, PLAIN, PROGRAMMATIC};
use crate::handle::Handle;
use crate::state::{State, state};
use crate::work::What;

type KernelParams = sys::CUDA_KERNEL_NODE_PARAMS_v2;

/// The launch of a node that is a kernel.
fn grid(state: &State, node: Handle) -> Result<Arc<Launch>, i32> {
    match state.nodes.get(&node).ok_or(codes::INVALID_HANDLE)? {
        Node::Work(What::Grid(launch)) => Ok(launch.clone()),
        _ => Err(codes::INVALID_VALUE),
    }
}

/// The launch that these parameters name.
///
/// # Safety
///
/// They are what the driver's documentation says.
unsafe fn launch(state: &State, params: *const KernelParams) -> Result<Arc<Launch>, i32> {
    if params.is_null() {
        return Err(codes::INVALID_VALUE);
    }
    // SAFETY: the caller's promise.
    let params = unsafe { &*params };
    let handle = params.func.expose_provenance();
    let function = state.functions.get(&handle).cloned();
    let function = function.ok_or(codes::INVALID_HANDLE)?;
    let blocks = [params.gridDimX, params.gridDimY, params.gridDimZ];
    let threads = [params.blockDimX, params.blockDimY, params.blockDimZ];
    let how = (blocks, threads, params.sharedMemBytes);
    let arguments = params.kernelParams.cast_const().cast::<*const c_void>();
    // SAFETY: the caller's promise.
    let launch = unsafe { Launch::new((handle, function), how, arguments) }?;
    Ok(Arc::new(launch))
}

/// Nodes that the caller names.
///
/// # Safety
///
/// There are so many.
unsafe fn nodes(nodes: *const Handle, count: usize) -> Vec<Handle> {
    match count {
        0 => Vec::new(),
        // SAFETY: the caller's promise.
        _ => unsafe { std::slice::from_raw_parts(nodes, count) }.to_vec(),
    }
}

/// How many places an array has. A driver refuses arrays without any (580.159).
fn room(places: usize) -> Result<usize, i32> {
    (places > 0).then_some(places).ok_or(codes::INVALID_VALUE)
}

/// Adds a node behind others of the graph.
fn add(graph: Handle, node: Node, after: Vec<Handle>) -> Result<Handle, i32> {
    let mut state = state();
    let known = state.graphs.get(&graph).ok_or(codes::INVALID_HANDLE)?;
    if after.iter().any(|node| !known.nodes.contains(node)) {
        return Err(codes::INVALID_VALUE);
    }
    let edges: Vec<_> = after.into_iter().map(|node| (node, PLAIN)).collect();
    state.add_node(graph, node, &edges)
}

api! {
    fn cuGraphCreate(graph: *mut Handle, _flags: c_uint) {
        let mut state = state();
        let handle = state.fresh();
        state.graphs.insert(handle, Graph::default());
        // SAFETY: `api`.
        unsafe { give(graph, handle) }
    }

    fn cuGraphDestroy(graph: Handle) {
        state().destroy_graph(graph)
    }

    fn cuGraphGetNodes(graph: Handle, to: *mut Handle, count: *mut usize) {
        let state = state();
        let known = &state.graphs.get(&graph).ok_or(codes::INVALID_HANDLE)?.nodes;
        if count.is_null() {
            return Err(codes::INVALID_VALUE);
        }
        let given = match to.is_null() {
            true => known.len(),
            // SAFETY: `api`: there is room for so many.
            false => room(unsafe { *count })?.min(known.len()),
        };
        if !to.is_null() {
            // SAFETY: as above.
            unsafe { to.copy_from_nonoverlapping(known.as_ptr(), given) };
        }
        // SAFETY: `api`.
        unsafe { give(count, given) }
    }

    fn cuGraphGetEdges_v2(graph: Handle, from: *mut Handle, to: *mut Handle, hows: *mut [u8; 8], count: *mut usize) {
        let state = state();
        let known = &state.graphs.get(&graph).ok_or(codes::INVALID_HANDLE)?.edges;
        if count.is_null() || from.is_null() != to.is_null() {
            return Err(codes::INVALID_VALUE);
        }
        if from.is_null() {
            // SAFETY: `api`.
            return unsafe { give(count, known.len()) };
        }
        // SAFETY: `api`: there is room for so many.
        let given = room(unsafe { *count })?.min(known.len());
        for (index, edge) in known.iter().take(given).enumerate() {
            // SAFETY: as above.
            unsafe {
                from.add(index).write(edge.from);
                to.add(index).write(edge.to);
            }
            if !hows.is_null() {
                // SAFETY: as above.
                unsafe { hows.add(index).write(shown(edge.how)) };
            }
        }
        // SAFETY: `api`.
        unsafe { give(count, given) }
    }

    fn cuGraphAddDependencies_v2(graph: Handle, from: *const Handle, to: *const Handle, hows: *const [u8; 8], count: usize) {
        // SAFETY: `api`.
        let ends = unsafe { nodes(from, count) }.into_iter().zip(unsafe { nodes(to, count) });
        let mut edges = Vec::with_capacity(count);
        for (index, (from, to)) in ends.enumerate() {
            let how = match hows.is_null() {
                true => PLAIN,
                false => {
                    // SAFETY: `api`: there are so many.
                    let [from, to, kind, ..] = unsafe { *hows.add(index) };
                    (from, to, kind)
                }
            };
            edges.push(Edge { from, to, how });
        }
        let mut state = state();
        let is_grid = |node: &Handle| state.nodes.get(node).is_some_and(|node| node.kind() == 0);
        let known = state.graphs.get(&graph).ok_or(codes::INVALID_HANDLE)?;
        let valid = edges.iter().all(|edge| {
            let programmatic = edge.how == PROGRAMMATIC && is_grid(&edge.from) && is_grid(&edge.to);
            known.nodes.contains(&edge.from)
                && known.nodes.contains(&edge.to)
                && edge.from != edge.to
                && (edge.how == PLAIN || programmatic)
        });
        if !valid {
            return Err(codes::INVALID_VALUE);
        }
        state.graphs.get_mut(&graph).expect("it is there").edges.extend(edges);
        Ok(())
    }

    fn cuGraphNodeGetType(node: Handle, kind: *mut c_uint) {
        let state = state();
        let known = state.nodes.get(&node).ok_or(codes::INVALID_HANDLE)?;
        // SAFETY: `api`.
        unsafe { give(kind, known.kind()) }
    }

    fn cuGraphKernelNodeGetParams_v2(node: Handle, params: *mut KernelParams) {
        let launch = grid(&state(), node)?;
        let ([gx, gy, gz], [bx, by, bz]) = (launch.blocks, launch.threads);
        let known = KernelParams {
            func: std::ptr::with_exposed_provenance_mut(launch.handle),
            gridDimX: gx,
            gridDimY: gy,
            gridDimZ: gz,
            blockDimX: bx,
            blockDimY: by,
            blockDimZ: bz,
            sharedMemBytes: launch.shared,
            // They live as long as the node's launch.
            kernelParams: launch.arguments().cast_mut().cast(),
            extra: std::ptr::null_mut(),
            kern: std::ptr::null_mut(),
            ctx: std::ptr::null_mut(),
        };
        // SAFETY: `api`.
        unsafe { give(params, known) }
    }

    fn cuGraphKernelNodeSetParams_v2(node: Handle, params: *const KernelParams) {
        let mut state = state();
        grid(&state, node)?;
        // SAFETY: `api`.
        let launch = unsafe { launch(&state, params) }?;
        let known = state.nodes.get_mut(&node).ok_or(codes::INVALID_HANDLE)?;
        *known = Node::Work(What::Grid(launch));
        Ok(())
    }

    fn cuGraphKernelNodeCopyAttributes(to: Handle, from: Handle) {
        let state = state();
        grid(&state, to).and(grid(&state, from)).map(|_| ())
    }

    fn cuGraphAddKernelNode_v2(node: *mut Handle, graph: Handle, after: *const Handle, count: usize, params: *const KernelParams) {
        // SAFETY: `api`.
        let launch = unsafe { launch(&state(), params) }?;
        // SAFETY: `api`.
        let made = add(graph, Node::Work(What::Grid(launch)), unsafe { nodes(after, count) })?;
        // SAFETY: `api`.
        unsafe { give(node, made) }
    }

    fn cuGraphAddChildGraphNode(node: *mut Handle, graph: Handle, after: *const Handle, count: usize, child: Handle) {
        let plan = state().plan(child)?;
        // SAFETY: `api`.
        let made = add(graph, Node::Child(plan), unsafe { nodes(after, count) })?;
        // SAFETY: `api`.
        unsafe { give(node, made) }
    }

    fn cuGraphInstantiateWithFlags(exec: *mut Handle, graph: Handle, _flags: c_ulonglong) {
        let mut state = state();
        let made = Exec { plan: state.plan(graph)?, last: None };
        let handle = state.fresh();
        state.execs.insert(handle, made);
        // SAFETY: `api`.
        unsafe { give(exec, handle) }
    }

    fn cuGraphUpload(exec: Handle, stream: Handle) {
        let mut state = state();
        state.execs.get(&exec).ok_or(codes::INVALID_HANDLE)?;
        state.stream(stream).map(|_| ())
    }

    fn cuGraphLaunch(exec: Handle, stream: Handle) {
        state().launch(exec, stream).map(drop)
    }

    fn cuGraphExecDestroy(exec: Handle) {
        state().execs.remove(&exec).map(|_| ()).ok_or(codes::INVALID_HANDLE)
    }
}
