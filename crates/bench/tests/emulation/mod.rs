//! Device kernels on the CPU: `kernels/faces.cu`, compiled by g++ with `emulation.cpp` in the place of a device.

pub(crate) mod geometry;
#[path = "../../../../tests/common/skipped.rs"]
mod skipped;

use geometry::{FacesGeometry, Grids, Slot};
use libloading::{Library, Symbol};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// The compiled kernels.
pub(crate) struct Emulator(Library);

/// How a kernel is launched: blocks, and threads of each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape(pub(crate) u32, pub(crate) u32);

/// `blocks, threads, g`, and the kernel's other parameters, as types.
macro_rules! kernels {
    ($($kernel:ident = $symbol:literal ($($name:ident: $argument:ty),*);)*) => {$(
        /// Runs it.
        ///
        /// # Safety
        ///
        /// Pointers lead to as many values as the lengths say, which nothing else accesses, and slots to messages of the geometry.
        #[allow(clippy::too_many_arguments)]
        pub(crate) unsafe fn $kernel(&self, shape: Shape, g: &FacesGeometry, $($name: $argument),*) {
            type Launch = unsafe extern "C" fn(u32, u32, &FacesGeometry, $($argument),*) -> i32;
            // SAFETY: `emulation.cpp` declares it so, `FacesGeometry` is the struct of that name, and the caller
            // promises the rest.
            let diverged = unsafe {
                let launch: Symbol<'_, Launch> = self.0.get($symbol).expect($symbol);
                launch(shape.0, shape.1, g, $($name),*)
            };
            assert_eq!(diverged, 0, "a thread missed a barrier in {} over {shape:?}", $symbol);
        }
    )*};
}

impl Emulator {
    /// The kernels; `None` where they cannot be compiled and need not be: there is no g++, and `CI` is not set.
    pub(crate) fn get(test: &str) -> Option<&'static Emulator> {
        static EMULATOR: OnceLock<Option<Emulator>> = OnceLock::new();
        let emulator = EMULATOR.get_or_init(compile).as_ref();
        if emulator.is_none() {
            let why = "there is no g++";
            skipped::skipped(test, why);
        }
        emulator
    }

    /// `faces_geometry`, of the same arguments.
    pub(crate) fn geometry(&self, of: &FacesGeometry) -> FacesGeometry {
        type Make = unsafe extern "C" fn(u32, *const u32, u32, *const u64, *mut FacesGeometry);
        let (n, m, neighbours, offset) = of.arguments();
        let mut made = FacesGeometry::empty();
        // SAFETY: `emulation.cpp` declares it so; it reads and writes no more than these.
        unsafe {
            let make: Symbol<'_, Make> = self.0.get("geometry").expect("geometry");
            make(n, m.as_ptr(), neighbours, offset.as_ptr(), &mut made);
        }
        made
    }

    /// `faces_geometry_fits`.
    pub(crate) fn fits(&self, n: u32, m: [u32; 3]) -> bool {
        type Fits = unsafe extern "C" fn(u32, *const u32) -> i32;
        // SAFETY: `emulation.cpp` declares it so; it reads three numbers.
        unsafe {
            let fits: Symbol<'_, Fits> = self.0.get("geometry_fits").expect("geometry_fits");
            fits(n, m.as_ptr()) != 0
        }
    }

    /// `faces_grids`.
    pub(crate) fn grids(&self, g: &FacesGeometry, sms: u32) -> Grids {
        type Make = unsafe extern "C" fn(&FacesGeometry, u32, *mut Grids);
        let mut made = Grids::default();
        // SAFETY: `emulation.cpp` declares it so, with the structs of these names.
        unsafe {
            let make: Symbol<'_, Make> = self.0.get("grids").expect("grids");
            make(g, sms, &mut made);
        }
        made
    }

    kernels! {
        init = "launch_init"(u: *mut f64, u_len: u64);
        init_part = "launch_init_part"(mode: u32, u: *mut f64, u_len: u64);
        copy_part = "launch_copy_part"(mode: u32, u: *const f64, u_len: u64, copy: *mut f64, copy_len: u64);
        pack = "launch_pack"(u: *const f64, u_len: u64, out: *mut f64, out_len: u64);
        unpack = "launch_unpack"(slots: *const Slot, slots_len: u64, u: *mut f64, u_len: u64);
        unpack_packed = "launch_unpack_packed"(received: *const f64, received_len: u64, u: *mut f64, u_len: u64);
        compute = "launch_compute"(u: *mut f64, u_len: u64);
    }
}

/// `None` if there is no compiler. One that does not compile this is an error.
fn compile() -> Option<Emulator> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/emulation");
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels");
    // Those of the fake driver ask for as little as this machine needs.
    let hooks = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fake-cuda/machine");
    // Of its own, since several of these programs may run at a time. Once it is loaded the file need not stay.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder to compile in");
    let library = folder.path().join("libemulation.so");
    // Fused multiplications and additions would round otherwise than the kernels do.
    let output = Command::new("g++")
        .args(["-std=c++17", "-O1", "-ffp-contract=off", "-shared", "-fPIC"])
        .args(["-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"])
        .arg("-DTIDEGATE_EMULATED")
        .arg("-I")
        .arg(kernels)
        .arg("-I")
        .arg(hooks)
        .arg(tests.join("emulation.cpp"))
        .arg("-o")
        .arg(&library)
        .output();
    let output = match output {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        output => output.expect("g++ starts"),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "g++ failed:\n{said}");
    // SAFETY: it has no constructors but those of the C++ library.
    let library = unsafe { Library::new(&library) }.expect("what was compiled can be loaded");
    Some(Emulator(library))
}
