//! The emulated machine: built, loaded, and driven.

use std::ffi::{CStr, c_char, c_void};
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use libloading::{Library, Symbol};
use tidegate_hal::batch::{POISON, QUANTUM};

use super::super::*;
use super::launched::Launched;

/// Small teams, so that a run has many of them and lanes are soon large enough for a block. A warp has a thread for
/// each byte of a tail.
pub(super) const SMALL: Sizes = Sizes {
    threads: 128,
    warps: 8,
    spread: 2,
    small: 16,
    small_listed: 8,
    lists: 1 << 20,
    lists_of_linear: 1 << 18,
};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/emulation")
}

fn kernels() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels")
}

fn kernel_part(name: &str) -> String {
    std::fs::read_to_string(kernels().join(name)).expect("the kernel's source is there")
}

/// The kernel's source as one text, in which each include of a part is replaced by the file's contents.
pub(super) fn kernel_source() -> String {
    let whole = |line: &str| {
        let name = line.strip_prefix("#include \"");
        match name.and_then(|name| name.strip_suffix('"')) {
            Some(part) if part.starts_with("batch_") => kernel_part(part),
            _ => format!("{line}\n"),
        }
    };
    kernel_part("batch.cu").lines().map(whole).collect()
}

/// A folder for the compiler's files. Dropping it deletes the folder.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(super) fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidegate-batch-{}-{number}", std::process::id());
        let place = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&place).expect("a temporary folder can be made");
        Scratch(place)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Calls the compiler. If there is none, and none is required, it reports a skip and returns `None`.
fn compile(sizes: Sizes, more: impl FnOnce(&mut Command)) -> Option<()> {
    let mut command = Command::new("g++");
    command
        // Machines must not share variables. Without this option g++ has one instance of a template's variable in a
        // process.
        .args(["-std=c++17", "-fPIC", "-fno-gnu-unique"])
        // Any type may be read as bytes, as for the device's compiler. And the machine jumps to other stacks on
        // purpose.
        .args(["-fno-strict-aliasing", "-U_FORTIFY_SOURCE"])
        // Compilers may treat a signed overflow differently. Here an overflow ends the process by a signal.
        .args([
            "-fsanitize=signed-integer-overflow",
            "-fsanitize-undefined-trap-on-error",
        ])
        .args(["-Wall", "-Wno-unknown-pragmas", "-Wno-maybe-uninitialized"])
        .arg("-DTIDEGATE_EMULATED")
        .arg("-I")
        .arg(kernels())
        .arg(format!("-DTHREADS={}", sizes.threads))
        .arg(format!("-DWARP={}", sizes.threads / sizes.warps));
    more(&mut command);
    match command.output() {
        Err(error) => {
            let why = format!("there is no g++ to compile it with ({error})");
            super::skipped::skipped("the kernel without a GPU", &why);
            None
        }
        Ok(done) => {
            let said = String::from_utf8_lossy(&done.stderr);
            assert!(done.status.success(), "g++: {said}");
            Some(())
        }
    }
}

/// Compiles the machine, with which all kernels of these sizes are linked.
pub(super) fn compile_machine(sizes: Sizes, output: &Path) -> Option<()> {
    compile(sizes, |gxx| {
        gxx.args(["-O2", "-g", "-Werror", "-c"])
            .arg(folder().join("machine.cpp"))
            .arg("-o")
            .arg(output);
    })
}

/// The environment variable with the path of the compiled machine for small teams, for a process that would otherwise
/// compile it again.
pub(super) const MACHINE: &str = "TIDEGATE_EMULATED_MACHINE";

/// A library with the machine and this source of the kernel.
fn build(sizes: Sizes, source: &str, changed: bool) -> Option<Vec<u8>> {
    let scratch = Scratch::new();
    let file = |name| scratch.file(name);
    let machine = match std::env::var_os(MACHINE).filter(|_| sizes.threads == SMALL.threads) {
        Some(made) => PathBuf::from(made),
        None => {
            compile_machine(sizes, &file("machine.o"))?;
            file("machine.o")
        }
    };
    std::fs::write(file("batch.cu"), source).expect("a temporary file can be written");
    compile(sizes, |gxx| {
        // A kernel that runs only for a moment is not worth the time of optimising it.
        let how: &[&str] = match changed {
            true => &["-O0", "-w"],
            false => &["-O1", "-g", "-Werror"],
        };
        gxx.args(how)
            .arg(format!(
                "-DTIDEGATE_BATCH=\"{}\"",
                file("batch.cu").display()
            ))
            .arg("-shared")
            .arg(folder().join("emulated.cpp"))
            .arg(machine)
            .arg("-o")
            .arg(file("batch.so"));
    })?;
    Some(std::fs::read(file("batch.so")).expect("g++ has written it"))
}

/// An item of a stream.
#[derive(Clone)]
pub(super) enum Do<'a> {
    Launch(&'a Launched),
    /// Calls the test, with this number.
    Call(u64),
    /// Waits for at most this many turns of the machine.
    Delay(u64),
}

/// An event that the machine reports to the test.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Called {
        stream: usize,
        value: u64,
        /// How often the stream has finished its list before.
        time: u64,
    },
    /// A word was added to, or was poisoned.
    Added(u64),
}

#[repr(C)]
struct RawItem {
    kind: u64,
    value: u64,
    launch: *const LaunchParameter,
    reduces: u64,
}

#[repr(C)]
struct RawStream {
    items: *const RawItem,
    count: u64,
    times: u64,
}

/// A range of memory for plain accesses.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) writable: u64,
}

#[repr(C)]
struct RawRun {
    streams: *const RawStream,
    count: u64,
    seed: u64,
    turns: u64,
    points: u64,
    ranges: *const Range,
    range_count: u64,
    context: *mut c_void,
    call: unsafe extern "C" fn(*mut c_void, u64, u64, u64),
    added: unsafe extern "C" fn(*mut c_void, u64),
}

type Hear<'a> = &'a mut dyn FnMut(Event);

unsafe extern "C" fn call(context: *mut c_void, stream: u64, value: u64, time: u64) {
    let stream = stream as usize;
    // SAFETY: `Machine::run` gives the context.
    unsafe {
        (*context.cast::<Hear<'_>>())(Event::Called {
            stream,
            value,
            time,
        })
    };
}

unsafe extern "C" fn added(context: *mut c_void, word: u64) {
    // SAFETY: as above.
    unsafe { (*context.cast::<Hear<'_>>())(Event::Added(word)) };
}

/// A machine. It shares nothing with other machines.
pub(super) struct Machine {
    library: Library,
    pub(super) sizes: Sizes,
}

impl Machine {
    /// A machine for the stamped kernel, with small teams, and with this change of its source.
    pub(super) fn stamped(change: Option<(&str, &str)>) -> Option<Self> {
        static CODE: OnceLock<Option<Vec<u8>>> = OnceLock::new();
        let source = format!("#define STAMPED\n{}", kernel_source());
        let code = match change {
            None => CODE.get_or_init(|| build(SMALL, &source, false)).clone(),
            Some((from, to)) => {
                assert_eq!(source.matches(from).count(), 1, "`{from}` is in the kernel");
                build(SMALL, &source.replace(from, to), true)
            }
        };
        Some(Self::of(SMALL, code?))
    }

    /// A machine for the kernel. In the kernel's source, the first text of each change is replaced by the second.
    pub(super) fn new(sizes: Sizes, changes: &[(&str, &str)]) -> Option<Self> {
        static UNCHANGED: OnceLock<Option<Vec<u8>>> = OnceLock::new();
        let mut source = kernel_source();
        for (from, to) in changes {
            let times = source.matches(from).count();
            assert_eq!(times, 1, "`{from}` is in the kernel");
            // The changes are also passed to the compiler.
            assert!(
                !kernel_part("batch_layout.cuh").contains(from),
                "`{from}` is layout"
            );
            source = source.replace(from, to);
        }
        let code = if changes.is_empty() && sizes.threads == SMALL.threads {
            UNCHANGED
                .get_or_init(|| build(sizes, &source, false))
                .clone()
        } else {
            build(sizes, &source, !changes.is_empty())
        }?;
        Some(Self::of(sizes, code))
    }

    /// Loads what `build` has made.
    fn of(sizes: Sizes, code: Vec<u8>) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let place = std::env::temp_dir().join(format!(
            "tidegate-machine-{}-{number}.so",
            std::process::id()
        ));
        // The file has a name of its own, since a library is loaded once for each file.
        std::fs::write(&place, code).expect("a temporary file can be written");
        // SAFETY: when it is loaded, the library only runs constructors of empty vectors.
        let library = unsafe { Library::new(&place) };
        let _ = std::fs::remove_file(&place);
        Machine {
            library: library.expect("what g++ has made can be loaded"),
            sizes,
        }
    }

    /// Runs streams, each of which does its list `times` times. Returns an error if a stream does not come to its end,
    /// or if a thread does something forbidden.
    ///
    /// The addresses in the launches must be of live memory.
    pub(super) fn run(
        &mut self,
        seed: u64,
        streams: &[(Vec<Do<'_>>, u64)],
        ranges: &[Range],
        mut hear: Hear<'_>,
    ) -> Result<(), String> {
        let items: Vec<Vec<RawItem>> = streams
            .iter()
            .map(|(list, _)| {
                let raw = |item: &Do<'_>| {
                    let (kind, value, launch) = match item {
                        Do::Launch(launched) => {
                            (0, launched.blocks as u64, &raw const *launched.parameter)
                        }
                        Do::Call(value) => (1, *value, std::ptr::null()),
                        Do::Delay(turns) => (2, *turns, std::ptr::null()),
                    };
                    let reduces = matches!(item, Do::Launch(launched) if launched.reduces);
                    RawItem {
                        kind,
                        value,
                        launch,
                        reduces: u64::from(reduces),
                    }
                };
                list.iter().map(raw).collect()
            })
            .collect();
        let raw: Vec<_> = items
            .iter()
            .zip(streams)
            .map(|(items, (_, times))| RawStream {
                items: items.as_ptr(),
                count: items.len() as u64,
                times: *times,
            })
            .collect();
        let mut ranges = ranges.to_vec();
        // The stamped kernel claims positions in the state of its stream.
        let launches = streams.iter().flat_map(|(list, _)| list);
        let states = launches.filter_map(|item| match item {
            Do::Launch(launched) => Some(launched.parameter.state),
            _ => None,
        });
        if !ranges.is_empty() {
            ranges.extend(states.map(|begin| Range {
                begin,
                end: begin + size_of::<State>() as u64,
                writable: 1,
            }));
        }
        ranges.sort_unstable_by_key(|range| range.begin);
        let run = RawRun {
            streams: raw.as_ptr(),
            count: raw.len() as u64,
            seed,
            // This is several times as many as any test needs.
            turns: 8_000_000,
            points: 8_000_000,
            ranges: ranges.as_ptr(),
            range_count: ranges.len() as u64,
            context: (&raw mut hear).cast(),
            call,
            added,
        };
        // SAFETY: the library has this function, and the arguments have its types. The caller is responsible for the
        // addresses. Only this call uses the machine.
        let why = unsafe {
            let function: Symbol<'_, unsafe extern "C" fn(*const RawRun) -> *const c_char> =
                self.library.get(b"tidegate_run").expect("it is exported");
            function(&raw const run)
        };
        if why.is_null() {
            return Ok(());
        }
        // SAFETY: a message of the library's, which nothing overwrites meanwhile.
        let why = unsafe { CStr::from_ptr(why) };
        Err(format!("seed {seed}: {}", why.to_string_lossy()))
    }

    /// How often teams looked at a stream's state in the last run.
    pub(super) fn looks(&self) -> u64 {
        // SAFETY: the library has this function, which takes nothing.
        unsafe { self.number(b"tidegate_looks") }
    }

    /// How many blocks of the last run let the next launch begin because they did not wait any more.
    pub(super) fn passes(&self) -> u64 {
        // SAFETY: the library has this function, which takes nothing.
        unsafe { self.number(b"tidegate_passes") }
    }

    /// How often such blocks looked for promised data after that.
    pub(super) fn settled(&self) -> u64 {
        // SAFETY: the library has this function, which takes nothing.
        unsafe { self.number(b"tidegate_settled") }
    }

    /// The result of a function.
    ///
    /// # Safety
    ///
    /// The library has the function, and the function takes nothing.
    unsafe fn number(&self, name: &[u8]) -> u64 {
        // SAFETY: the caller's promise.
        unsafe {
            let function: Symbol<'_, unsafe extern "C" fn() -> u64> =
                self.library.get(name).expect("it is exported");
            function()
        }
    }

    /// The sizes and offsets in the kernel.
    pub(super) fn layout(&self) -> Vec<u64> {
        let mut numbers = vec![0; 256];
        // SAFETY: the library has this function, which writes fewer numbers than there is room for.
        let count = unsafe {
            let function: Symbol<'_, unsafe extern "C" fn(*mut u64) -> u64> = self
                .library
                .get(b"tidegate_layout")
                .expect("it is exported");
            function(numbers.as_mut_ptr())
        };
        numbers.truncate(count as usize);
        numbers
    }
}

/// The sizes and offsets in this crate, in the order of the machine.
pub(super) fn layout(sizes: Sizes) -> Vec<u64> {
    macro_rules! fields {
        ($ty:ty: $($field:ident $(.$inner:ident)?)*) => {
            vec![size_of::<$ty>(), $(offset_of!($ty, $field $(.$inner)?)),*]
        };
    }
    let constants = [
        THREADS as u64,
        sizes.warps as u64,
        MAX_BLOCKED as u64,
        POISON,
        QUANTUM,
        PART,
        MOST_BLOCKS,
        MOST_VECTORS as u64,
    ];
    let teams = [TEAM_WARPS, TEAM_BLOCKS].map(u64::from);
    let steps = [
        STEP_END, STEP_WAIT, STEP_MOVE, STEP_ADD, STEP_STORE, STEP_CHECK,
    ]
    .map(u64::from);
    let kinds = [
        LANE_STEPS,
        LANE_WAITS,
        LANE_COPIES,
        LANE_ADDS,
        LANE_LANDS,
        LANE_LISTED,
        LANE_GATHERS,
        LANE_COUNTED,
        LANE_REDUCES,
    ]
    .map(u64::from);
    let flags = [
        ADD_HAS_WAITER,
        MOVE_EARLY,
        MOVE_LAST_PARITY,
        MOVE_BEHIND,
        MOVE_ALONE,
        LAUNCH_NEXT,
    ]
    .map(u64::from);
    let shapes = [SHAPE_LINEAR, SHAPE_STRIDED, SHAPE_INDEXED].map(u64::from);
    let actions = [
        0,
        ACTION_ACCUMULATE,
        ACTION_FETCH,
        ACTION_SWAP,
        ACTION_COUNTED,
        ACTION_REDUCE,
    ]
    .map(u64::from);
    let structs = [
        fields!(Record: team lanes index count batch),
        fields!(ShortLane: kind steps word operand quantum arrivals src dst flip count out value tail landing landing_flip from to unit unused),
        fields!(Head: kind length flags),
        fields!(WaitStep: word operand quantum arrivals tag.window tag.peer tag.awaited slot),
        fields!(AddStep: word value count),
        fields!(StoreStep: to value),
        fields!(CheckStep: count most tag.window tag.peer tag.awaited),
        fields!(MoveStep: count src dst src_flip dst_flip parity result compare size sub action op scalar unit src_shape dst_shape row),
        fields!(ShapeStep: table rank count stride),
        fields!(TermStep: src flip parity op last),
        fields!(Vector: word operand src flip landing landing_flip op wait by_word lacks from),
        fields!(RawFault: kind tag.window tag.peer tag.awaited epoch),
        fields!(State: stop fault stamps.ring stamps.slots stamps.head stamps.taken stamps.dropped stamps.telling),
        fields!(RawBlocked: active tag.window tag.peer tag.awaited epoch),
        fields!(Mirror: failed fault blocked),
        fields!(LaunchParameter: program state mirror follow stride flags),
    ];
    constants
        .into_iter()
        .chain(teams)
        .chain(steps)
        .chain(kinds)
        .chain(flags)
        .chain(shapes)
        .chain(actions)
        .chain([FAULT_WAIT, FAULT_COUNT].map(u64::from))
        .chain(structs.into_iter().flatten().map(|number| number as u64))
        .collect()
}
