//! A driver of no device: it carries out no kernel, and does what a test tells it.
//!
//! # Model
//!
//! Each device of the process has its own [`Null`], so tests do not meet. It keeps a list of the calls that matter
//! ([`Did`]). A stream passes work at once, unless the test has [held](Null::hold) it. A test can make one later call
//! fail ([`Null::refuse`]). Memory of the device is memory of the host, and copies to and from it are made at once.

use std::alloc::{Layout, alloc_zeroed};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, c_void};
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard};

use tidegate_gpu::driver::*;
use tidegate_hal::code::Code;
use tidegate_hal::device::{DeviceError, Priority};

/// A call that a test may look at. Streams and graphs are named by their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Did {
    /// A launch on a stream, and whether it may begin early.
    Launch(usize, bool),
    /// Operations on words, on a stream.
    Words(usize, Vec<WordOp>),
    /// A copy by a copy engine, on a stream.
    Copy(usize),
    /// A launch of a graph of so many kernels, on a stream.
    Replay(usize, usize),
    /// An executable graph was destroyed.
    Destroyed(usize),
    /// A stream was waited for.
    Waited(usize),
    /// A stream was destroyed.
    Gone(usize),
    /// Memory for peers was given up.
    GaveUp,
}

/// The device's own streams have the numbers up to this one, and no test asks what happens there.
const OWN: usize = 2;

/// The driver of one device.
#[derive(Default)]
pub(crate) struct Null(Mutex<State>);

#[derive(Default)]
struct State {
    did: Vec<Did>,
    last: usize,
    streams: HashMap<usize, Queue>,
    /// The point of a stream that an event stands for.
    events: HashMap<usize, Option<(usize, u64)>>,
    graphs: BTreeMap<usize, Nodes>,
    /// Executable graphs, with their numbers of kernels.
    executable: HashMap<usize, usize>,
    /// The blocks of the last launch.
    blocks: usize,
    /// A call that fails: how often it is made before, and how it fails.
    refused: Option<(&'static str, usize, ErrorKind)>,
    /// Edges are made of another kind than the caller asks for.
    makes_other_edges: bool,
    /// Memory for peers was unmapped, and not given up yet.
    left: bool,
    /// How often the device's own streams were waited for.
    served: usize,
}

#[derive(Default)]
struct Queue {
    enqueued: u64,
    passed: u64,
    held: bool,
    /// Functions to call when the stream has passed an item.
    calls: Vec<(u64, unsafe extern "C" fn(*mut c_void), usize)>,
    /// The graph that the stream records, and the node that it recorded last.
    records: Option<(usize, Vec<usize>)>,
}

#[derive(Clone, Default)]
struct Nodes {
    /// The number of kernels that each node stands for.
    nodes: Vec<(usize, usize)>,
    edges: Vec<(usize, usize, bool)>,
}

impl State {
    fn queue(&mut self, of: Stream) -> &mut Queue {
        let queue = self.streams.get_mut(&number(of.0));
        queue.expect("a live stream")
    }

    fn graph(&mut self, of: Graph) -> &mut Nodes {
        self.graphs.get_mut(&number(of.0)).expect("a live graph")
    }

    /// A new number, for an object.
    fn new_number(&mut self) -> usize {
        self.last += 1;
        self.last
    }
}

impl Null {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|broken| broken.into_inner())
    }

    /// The calls so far, which are forgotten.
    pub(crate) fn did(&self) -> Vec<Did> {
        std::mem::take(&mut self.lock().did)
    }

    /// The blocks of the last launch.
    pub(crate) fn blocks(&self) -> usize {
        self.lock().blocks
    }

    /// How many graphs there are that are not executable.
    pub(crate) fn graphs(&self) -> usize {
        self.lock().graphs.len()
    }

    /// How often the device's own streams were waited for.
    pub(crate) fn served(&self) -> usize {
        self.lock().served
    }

    /// From now on the stream passes nothing.
    pub(crate) fn hold(&self, stream: Stream) {
        self.lock().queue(stream).held = true;
    }

    /// The stream passes everything, and is not held any more.
    pub(crate) fn release(&self, stream: Stream) {
        self.lock().queue(stream).held = false;
        self.settle(number(stream.0));
    }

    /// Makes the call of this name fail, after it was made `times` times.
    pub(crate) fn refuse(&self, call: &'static str, times: usize, kind: ErrorKind) {
        self.lock().refused = Some((call, times, kind));
    }

    /// From now on, edges are made of another kind than the caller asks for.
    pub(crate) fn make_other_edges(&self) {
        self.lock().makes_other_edges = true;
    }

    fn call(&self, name: &'static str) -> Result<MutexGuard<'_, State>> {
        let mut state = self.lock();
        match &mut state.refused {
            Some((refused, 0, kind)) if *refused == name => {
                let kind = *kind;
                // A lost context stays lost.
                if kind != ErrorKind::ContextLost {
                    state.refused = None;
                }
                Err(DriverError {
                    device: "null",
                    kind,
                    text: format!("{name} is refused"),
                })
            }
            Some((refused, left, _)) if *refused == name => {
                *left -= 1;
                Ok(state)
            }
            _ => Ok(state),
        }
    }

    fn made(&self, name: &'static str) -> Result<()> {
        self.call(name).map(drop)
    }

    /// Adds an item to a stream, or a node of so many kernels to what it records.
    fn enqueue(&self, mut state: MutexGuard<'_, State>, stream: Stream, kernels: usize, did: Did) {
        let at = number(stream.0);
        let node = state.new_number();
        let queue = state.streams.get_mut(&at).expect("a live stream");
        if let Some((graph, last)) = &mut queue.records {
            let before = std::mem::replace(last, vec![node]);
            let graph = *graph;
            let graph = state.graphs.get_mut(&graph).expect("a live graph");
            graph.nodes.push((node, kernels));
            let edges = before.into_iter().map(|before| (before, node, false));
            graph.edges.extend(edges);
            return;
        }
        queue.enqueued += 1;
        state.did.push(did);
        drop(state);
        self.settle(at);
    }

    /// Lets a stream pass what it may.
    fn settle(&self, stream: usize) {
        let due = {
            let mut state = self.lock();
            let Some(queue) = state.streams.get_mut(&stream) else {
                return;
            };
            if queue.held {
                return;
            }
            queue.passed = queue.enqueued;
            std::mem::take(&mut queue.calls)
        };
        for (_, function, data) in due {
            // SAFETY: the caller of `stream_call` promised it; the function is called once.
            unsafe { function(std::ptr::with_exposed_provenance_mut(data)) };
        }
    }
}

/// Memory of the host, which lives as long as the process.
fn memory(bytes: usize) -> NonNull<u8> {
    let layout = Layout::from_size_align(bytes.max(1), 4096).expect("a small piece");
    // SAFETY: the size is not 0.
    NonNull::new(unsafe { alloc_zeroed(layout) }).expect("there is memory")
}

fn at(address: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

fn handle(number: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(number)
}

pub(crate) fn number(handle: *mut c_void) -> usize {
    handle.addr()
}

fn no_peers() -> DeviceError {
    DeviceError::BadHandle("there are no peers".into())
}

// SAFETY: there is no device, so nothing that is enqueued is carried out but what is carried out at once.
unsafe impl Driver for Null {
    fn enter(&self) -> Result<()> {
        self.made("enter")
    }

    unsafe fn alloc(&self, bytes: usize, _: Stream) -> Result<u64> {
        self.made("alloc")?;
        Ok(memory(bytes).as_ptr().expose_provenance() as u64)
    }

    unsafe fn free(&self, _: u64, _: Stream) -> Result<()> {
        Ok(())
    }

    fn alloc_for_peers(&self, bytes: usize) -> Result<PeerMemory, DeviceError> {
        Ok(PeerMemory {
            base: memory(bytes).as_ptr().expose_provenance() as u64,
            size: bytes,
            memory: 0,
        })
    }

    fn map_peer(&self, _: &OwnedFd, _: usize) -> Result<PeerMemory, DeviceError> {
        Err(no_peers())
    }

    unsafe fn export(&self, _: &PeerMemory) -> Result<OwnedFd, DeviceError> {
        Err(no_peers())
    }

    unsafe fn unmap(&self, _: PeerMemory) {
        self.lock().left = true;
    }

    fn has_left(&self) -> bool {
        self.lock().left
    }

    fn give_up(&self) {
        let mut state = self.lock();
        state.left = false;
        state.did.push(Did::GaveUp);
    }

    fn pin(&self, bytes: usize) -> Result<NonNull<u8>> {
        self.made("pin")?;
        Ok(memory(bytes))
    }

    unsafe fn register(&self, _: NonNull<c_void>, _: usize, _: bool) -> Result<()> {
        self.made("register")
    }

    unsafe fn registered(&self, page: NonNull<c_void>) -> Result<u64> {
        Ok(page.addr().get() as u64)
    }

    unsafe fn unregister(&self, _: NonNull<c_void>) -> Result<()> {
        self.made("unregister")
    }

    fn is_here(&self, _: u64) -> bool {
        false
    }

    unsafe fn copy_in(&self, to: u64, from: *const u8, bytes: usize, _: Stream) -> Result<()> {
        self.made("copy_in")?;
        // SAFETY: the caller promises for both.
        unsafe { at(to).copy_from(from, bytes) };
        Ok(())
    }

    unsafe fn copy_out(&self, to: *mut u8, from: u64, bytes: usize, _: Stream) -> Result<()> {
        self.made("copy_out")?;
        // SAFETY: the caller promises for both.
        unsafe { to.copy_from(at(from), bytes) };
        Ok(())
    }

    unsafe fn copy(&self, _: u64, _: u64, _: usize, on: Stream) -> Result<()> {
        let state = self.call("copy")?;
        self.enqueue(state, on, 0, Did::Copy(number(on.0)));
        Ok(())
    }

    unsafe fn fill(&self, to: u64, byte: u8, bytes: usize, _: Stream) -> Result<()> {
        self.made("fill")?;
        // SAFETY: the caller promises for the memory.
        unsafe { at(to).write_bytes(byte, bytes) };
        Ok(())
    }

    fn stream_create(&self, _: Priority) -> Result<Stream> {
        let mut state = self.call("stream_create")?;
        let at = state.new_number();
        state.streams.insert(at, Queue::default());
        Ok(Stream(handle(at)))
    }

    unsafe fn stream_destroy(&self, stream: Stream) -> Result<()> {
        let mut state = self.call("stream_destroy")?;
        state
            .streams
            .remove(&number(stream.0))
            .expect("a live stream");
        state.did.push(Did::Gone(number(stream.0)));
        Ok(())
    }

    unsafe fn stream_synchronize(&self, stream: Stream) -> Result<()> {
        let at = number(stream.0);
        {
            let mut state = self.call("stream_synchronize")?;
            if at > OWN {
                state.did.push(Did::Waited(at));
            } else {
                state.served += 1;
            }
            // Nobody could release the stream while its thread waits here.
            state.streams.get_mut(&at).expect("a live stream").held = false;
        }
        self.settle(at);
        Ok(())
    }

    unsafe fn stream_query(&self, stream: Stream) -> Result<bool> {
        let state = self.call("stream_query")?;
        let queue = &state.streams[&number(stream.0)];
        Ok(queue.passed == queue.enqueued)
    }

    unsafe fn stream_wait_event(&self, on: Stream, event: Event) -> Result<()> {
        let mut state = self.call("stream_wait_event")?;
        let point = state.events[&number(event.0)];
        let (other, _) = point.expect("it was recorded");
        let others = state.streams[&other].records.clone();
        let queue = state.queue(on);
        if let Some((graph, last)) = others {
            let own = queue.records.get_or_insert((graph, Vec::new()));
            own.1.extend(last);
        }
        Ok(())
    }

    unsafe fn stream_word_ops(&self, on: Stream, ops: &[WordOp]) -> Result<()> {
        let state = self.call("stream_word_ops")?;
        self.enqueue(state, on, 0, Did::Words(number(on.0), ops.to_vec()));
        Ok(())
    }

    unsafe fn stream_call(
        &self,
        on: Stream,
        function: unsafe extern "C" fn(*mut c_void),
        data: *mut c_void,
    ) -> Result<()> {
        let mut state = self.call("stream_call")?;
        let queue = state.queue(on);
        queue.enqueued += 1;
        let mark = queue.enqueued;
        queue.calls.push((mark, function, data.expose_provenance()));
        drop(state);
        self.settle(number(on.0));
        Ok(())
    }

    fn event_create(&self, _: bool) -> Result<Event> {
        let mut state = self.call("event_create")?;
        let at = state.new_number();
        state.events.insert(at, None);
        Ok(Event(handle(at)))
    }

    unsafe fn event_destroy(&self, event: Event) -> Result<()> {
        let mut state = self.call("event_destroy")?;
        state.events.remove(&number(event.0)).expect("a live event");
        Ok(())
    }

    unsafe fn event_record(&self, event: Event, on: Stream) -> Result<()> {
        let mut state = self.call("event_record")?;
        let mark = state.streams[&number(on.0)].enqueued;
        state
            .events
            .insert(number(event.0), Some((number(on.0), mark)));
        Ok(())
    }

    unsafe fn event_record_in_graph(&self, event: Event, on: Stream) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.event_record(event, on) }
    }

    unsafe fn event_query(&self, event: Event) -> Result<bool> {
        let state = self.call("event_query")?;
        let (stream, mark) = state.events[&number(event.0)].expect("it was recorded");
        Ok(state
            .streams
            .get(&stream)
            .is_none_or(|queue| queue.passed >= mark))
    }

    unsafe fn event_elapsed_ms(&self, _: Event, _: Event) -> Result<Option<f32>> {
        Ok(None)
    }

    unsafe fn capture_begin(&self, on: Stream) -> Result<()> {
        let mut state = self.call("capture_begin")?;
        let graph = state.new_number();
        state.graphs.insert(graph, Nodes::default());
        let queue = state.queue(on);
        queue.records = Some((graph, Vec::new()));
        Ok(())
    }

    unsafe fn capture_end(&self, on: Stream) -> Result<Graph> {
        let mut state = self.call("capture_end")?;
        let queue = state.queue(on);
        let (graph, _) = queue.records.take().expect("it records");
        for queue in state.streams.values_mut() {
            queue.records = queue.records.take().filter(|(of, _)| *of != graph);
        }
        Ok(Graph(handle(graph)))
    }

    unsafe fn capture_last(&self, on: Stream) -> Result<Vec<GraphNode>> {
        let state = self.call("capture_last")?;
        let records = state.streams[&number(on.0)].records.iter();
        let last = records.flat_map(|(_, last)| last);
        Ok(last.map(|node| GraphNode(handle(*node))).collect())
    }

    fn graph_create(&self) -> Result<Graph> {
        let mut state = self.call("graph_create")?;
        let at = state.new_number();
        state.graphs.insert(at, Nodes::default());
        Ok(Graph(handle(at)))
    }

    unsafe fn graph_destroy(&self, graph: Graph) -> Result<()> {
        let mut state = self.call("graph_destroy")?;
        state.graphs.remove(&number(graph.0)).expect("a live graph");
        Ok(())
    }

    unsafe fn graph_node_count(&self, graph: Graph) -> Result<usize> {
        Ok(self.call("graph_node_count")?.graphs[&number(graph.0)]
            .nodes
            .len())
    }

    unsafe fn graph_nodes(&self, graph: Graph) -> Result<Vec<GraphNode>> {
        let state = self.call("graph_nodes")?;
        let nodes = state.graphs[&number(graph.0)].nodes.iter();
        Ok(nodes.map(|(node, _)| GraphNode(handle(*node))).collect())
    }

    unsafe fn graph_edges(&self, graph: Graph) -> Result<Vec<Edge>> {
        let state = self.call("graph_edges")?;
        let edges = state.graphs[&number(graph.0)].edges.iter();
        let edge = |(from, to, early): &(usize, usize, bool)| Edge {
            from: GraphNode(handle(*from)),
            to: GraphNode(handle(*to)),
            how: if *early {
                Dependency::Early
            } else {
                Dependency::Over
            },
        };
        Ok(edges.map(edge).collect())
    }

    unsafe fn graph_kernel(&self, _: GraphNode) -> Result<Option<KernelNode>> {
        self.made("graph_kernel")?;
        Ok(Some(KernelNode {
            function: Function(handle(1)),
            arguments: std::ptr::null(),
        }))
    }

    unsafe fn graph_set_arguments(&self, _: GraphNode, _: &mut [*mut c_void]) -> Result<()> {
        self.made("graph_set_arguments")
    }

    unsafe fn graph_add_copy(&self, graph: Graph, _: GraphNode) -> Result<GraphNode> {
        let mut state = self.call("graph_add_copy")?;
        let node = state.new_number();
        let graph = state.graph(graph);
        graph.nodes.push((node, 1));
        Ok(GraphNode(handle(node)))
    }

    unsafe fn graph_add_edges(&self, graph: Graph, edges: &[Edge]) -> Result<()> {
        let mut state = self.call("graph_add_edges")?;
        let other = state.makes_other_edges;
        let graph = state.graph(graph);
        graph.edges.extend(edges.iter().map(|edge| {
            let early = (edge.how == Dependency::Early) != other;
            (number(edge.from.0), number(edge.to.0), early)
        }));
        Ok(())
    }

    unsafe fn graph_add_child(
        &self,
        graph: Graph,
        behind: &[GraphNode],
        child: Graph,
    ) -> Result<GraphNode> {
        let mut state = self.call("graph_add_child")?;
        let node = state.new_number();
        let kernels = state.graphs[&number(child.0)].nodes.iter();
        let kernels = kernels.map(|(_, kernels)| kernels).sum();
        let graph = state.graph(graph);
        graph.nodes.push((node, kernels));
        let edges = behind.iter().map(|before| (number(before.0), node, false));
        graph.edges.extend(edges);
        Ok(GraphNode(handle(node)))
    }

    unsafe fn graph_instantiate(&self, graph: Graph, _: bool) -> Result<GraphExec> {
        let mut state = self.call("graph_instantiate")?;
        let at = state.new_number();
        let kernels = state.graphs[&number(graph.0)].nodes.iter();
        let kernels = kernels.map(|(_, kernels)| kernels).sum();
        state.executable.insert(at, kernels);
        Ok(GraphExec(handle(at)))
    }

    unsafe fn graph_upload(&self, _: GraphExec, _: Stream) -> Result<()> {
        self.made("graph_upload")
    }

    unsafe fn graph_launch(&self, exec: GraphExec, on: Stream) -> Result<()> {
        let state = self.call("graph_launch")?;
        let kernels = state.executable[&number(exec.0)];
        self.enqueue(state, on, kernels, Did::Replay(number(on.0), kernels));
        Ok(())
    }

    unsafe fn graph_exec_destroy(&self, exec: GraphExec) -> Result<()> {
        let mut state = self.call("graph_exec_destroy")?;
        let kernels = state.executable.remove(&number(exec.0));
        state
            .did
            .push(Did::Destroyed(kernels.expect("a live graph")));
        Ok(())
    }

    fn load(&self, _: &Code<'_>) -> Result<Module, DeviceError> {
        Ok(Module(handle(1)))
    }

    unsafe fn function(&self, _: Module, _: &CStr) -> Result<(Function, Option<Vec<usize>>)> {
        self.made("function")?;
        Ok((Function(handle(1)), None))
    }

    unsafe fn resident_blocks(&self, _: Function, _: usize, _: usize) -> Result<u32> {
        Ok(2)
    }

    unsafe fn shared_memory(&self, _: Function) -> Result<usize> {
        Ok(0)
    }

    unsafe fn prefer_shared_memory(&self, _: Function) -> Result<()> {
        self.made("prefer_shared_memory")
    }

    unsafe fn launch(
        &self,
        _: Function,
        launch: &Launch,
        on: Stream,
        _: &mut [*mut c_void],
    ) -> Result<()> {
        let mut state = self.call("launch")?;
        state.blocks = launch.blocks[0] as usize;
        self.enqueue(state, on, 1, Did::Launch(number(on.0), launch.early));
        Ok(())
    }
}
