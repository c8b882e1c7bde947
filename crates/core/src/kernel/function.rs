//! Kernels that are functions of loaded device code.
//!
//! # Model
//!
//! [`Module::load`] loads code. [`kernel!`](crate::kernel!) declares the parameters of a function of that code, and the
//! contract that makes it safe; binding the function is the only `unsafe` step. The resulting [`Function`] is launched
//! by safe code, over a grid, with regions, inboxes and plain values of exactly those types. Anything else does not
//! compile.
//!
//! # Failure
//!
//! Binding fails if the module does not have the function, or if its parameters have other sizes (where the driver can
//! tell).

use std::marker::PhantomData;
use std::sync::Arc;

use tidegate_hal::code::Code;
use tidegate_hal::device::{DeviceError, Grid, Issues, LaunchDevice, Parameters};

use super::{Argument, Kernel, Lowered, LoweredExclusive, LoweredShared, WaitsForNobody};
use crate::argument::check_handles;
use crate::element::Element;
use crate::error::{KernelError, Result};
use crate::part::{Cells, CellsMut, LoweredPart};
use crate::place::Of;
use crate::stream::Stream;
use crate::window::{
    AllSlots, Discipline, In, KernelInbox, KernelOutbox, LastSlots, LoweredAll, LoweredInbox,
    LoweredLast, LoweredOut, LoweredOutbox, LoweredSlots, Out, OutSlots, Slots,
};
use crate::world::World;

/// Code that is loaded to a device.
///
/// # Examples
///
/// ```
/// use tidegate::cuda::prelude::*;
///
/// tidegate::kernel! {
///     /// Scales a vector.
///     ///
///     /// # Safety
///     ///
///     /// The module is `kernels.cu`.
///     pub unsafe fn scale = "scale"(x: &mut [f64], by: f64);
/// }
///
/// fn run<'s>(s: &Stream<'s>, code: &[u8], x: &mut Region<f64, On<'s>>) -> Result<()> {
///     let module = Module::load(s.world(), code)?;
///     // SAFETY: the code is that of `kernels.cu`.
///     let scale = unsafe { scale(&module) }?;
///     s.launch(scale.threads(x.len(), 256), (x, 2.0))
/// }
/// ```
pub struct Module<D: LaunchDevice> {
    raw: Arc<D::Module>,
    device: D,
}

/// A function of a [`Module`], bound to the types of its parameters.
///
/// # Examples
///
/// ```
/// use tidegate::cuda::Cuda;
/// use tidegate::cuda::prelude::*;
/// use tidegate::kernel::Function;
///
/// /// `kernel!` makes a name of its own for this type.
/// type Scale = Function<Cuda, (&'static mut [f64], f64)>;
///
/// fn halve<'s>(s: &Stream<'s>, scale: &Scale, x: &mut Region<f64, On<'s>>) -> Result<()> {
///     s.launch(scale.threads(x.len(), 256), (x, 0.5))
/// }
/// ```
pub struct Function<D: LaunchDevice, S> {
    raw: D::Function,
    device: D,
    name: Arc<str>,
    signature: Of<S>,
}

/// A function together with a grid: a kernel.
///
/// # Examples
///
/// ```
/// use tidegate::cuda::Cuda;
/// use tidegate::kernel::{Function, Launch};
///
/// /// A kernel of `n` threads, to be launched several times.
/// fn over<S>(function: &Function<Cuda, S>, n: usize) -> Launch<'_, Cuda, S> {
///     function.threads(n, 128)
/// }
/// ```
pub struct Launch<'f, D: LaunchDevice, S> {
    function: &'f Function<D, S>,
    grid: Grid,
}

impl<D: LaunchDevice> Module<D> {
    /// Loads the form of the code that suits the device. [`code!`](crate::code!) includes all forms of a source. Bytes
    /// alone are code, too: for CUDA these are PTX (text, with or without a final NUL), a cubin or a fatbin; for HIP,
    /// a code object, or a bundle of them. Load modules while setting up: the call is refused while a stream of the
    /// device may be waiting.
    ///
    /// ```
    /// # use tidegate::cuda::prelude::*;
    /// # macro_rules! include_bytes { ($file:literal) => { b"" } }
    /// const CODE: &[u8] = include_bytes!("kernels.ptx");
    ///
    /// fn load(world: &World) -> Result<Module<Gpu>> {
    ///     Module::load(world, CODE)
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Device`](crate::Error::Device) in these cases:
    ///
    /// - No form suits the device. The error says which GPU it is, and what there is code for.
    /// - The bytes are not code. The error says what they look like.
    /// - The device or its driver does not accept the code, such as PTX of a newer toolkit, or a cubin for other GPUs.
    /// - A stream of the device may be waiting.
    pub fn load<'c>(world: &World<D>, code: impl Into<Code<'c>>) -> Result<Self> {
        let device = world.device().clone();
        Ok(Module {
            raw: device.load(&code.into())?,
            device,
        })
    }

    /// Binds the function `name` to a signature, which is a tuple of [`Parameter`]s. [`kernel!`](crate::kernel!) writes
    /// this call.
    ///
    /// # Errors
    ///
    /// [`Error::Device`](crate::Error::Device) if there is no such function; if its parameters have other sizes, where
    /// the driver can tell (it does not compare types); or while a stream of the device may be waiting.
    /// [`KernelError::Signature`] if the signature has more than [`Parameters::MAX`] parameters (a slice counts as
    /// two), or more than [`Parameters::MAX_BYTES`] in all, each rounded up to 16.
    ///
    /// # Safety
    ///
    /// For every grid:
    ///
    /// - The function takes parameters of these types, in this order, as [`Parameter`] describes.
    /// - It accesses only memory that they name, each slice within its length, and writes only through exclusive ones.
    /// - If it gets slots of an open outbox, or a half of a window, it keeps the contract of kernels that communicate,
    ///   which `kernels/tidegate.cuh` lists.
    /// - It ends. On a stream that has failed, the memory of an inbox may change while the function runs.
    ///
    /// For a part, the function gets the address and length of the whole region, and not the set of the part's
    /// elements. The caller makes sure that a function with parts is launched only with parts that hold the elements
    /// that it accesses.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::cuda::Cuda;
    /// use tidegate::cuda::prelude::*;
    /// use tidegate::kernel::Function;
    ///
    /// fn bind(module: &Module<Cuda>) -> Result<Function<Cuda, (&'static [f64], &'static mut [f64])>> {
    ///     // SAFETY: `copy(const double *, size_t, double *, size_t)` keeps to both lengths, and ends.
    ///     unsafe { module.function("copy") }
    /// }
    /// ```
    pub unsafe fn function<S: Signature>(&self, name: &str) -> Result<Function<D, S>> {
        let sizes = S::sizes();
        if !Parameters::hold(&sizes) {
            let function = name.to_owned();
            return Err(KernelError::Signature { function, sizes }.into());
        }
        Ok(Function {
            raw: D::function(&self.raw, name, &sizes)?,
            device: self.device.clone(),
            name: name.into(),
            signature: PhantomData,
        })
    }
}

impl<D: LaunchDevice, S> Function<D, S> {
    /// Lets the function begin while the preceding kernel of the stream still runs, if the device can (programmatic
    /// dependent launch, from compute capability 9.0 on). Then its launch, and what it does before it waits, cost no
    /// time. Behind a call of an epoch it never begins before all waits for peers there have ended.
    ///
    /// # Safety
    ///
    /// In the loaded code:
    ///
    /// - Every thread of the function waits for the end of the preceding work, on every path through the function,
    ///   before it accesses memory that others use, and before it ends. It waits by `cudaGridDependencySynchronize()`
    ///   in CUDA C++, or `griddepcontrol.wait` in PTX, and by nothing else, because later work relies on it.
    /// - Before that it reads at most its parameters and the entries of an inbox's table, which nobody writes once the
    ///   window is open. It does not read what the entries point to, including the count of epochs. It does not use slots
    ///   of an open outbox.
    /// - It does not read data that the preceding work may write through the non-coherent path (`__ldg`, `const
    ///   __restrict__`): such data is not read-only while the function runs.
    ///
    /// Code for less than 9.0 cannot wait in this way.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::cuda::Cuda;
    /// use tidegate::cuda::prelude::*;
    /// use tidegate::kernel::Function;
    ///
    /// fn bind(module: &Module<Cuda>) -> Result<Function<Cuda, (&'static mut [f64],)>> {
    ///     // SAFETY: every thread of `step` calls `cudaGridDependencySynchronize()` first, and keeps to the length.
    ///     Ok(unsafe { module.function("step")?.waits_itself() })
    /// }
    /// ```
    pub unsafe fn waits_itself(mut self) -> Self {
        // SAFETY: the caller promises what `begin_early` requires.
        self.raw = unsafe { D::begin_early(self.raw) };
        self
    }

    /// The kernel that runs the function over a grid.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::cuda::Cuda;
    /// use tidegate::cuda::prelude::*;
    /// use tidegate::kernel::Grid;
    /// use tidegate::kernel::Function;
    ///
    /// # type Stencil = Function<Cuda, (&'static mut [f64],)>;
    /// fn step<'s>(s: &Stream<'s>, stencil: &Stencil, u: &mut Region<f64, On<'s>>) -> Result<()> {
    ///     let grid = Grid { blocks: [8, 8, 1], threads: [32, 8, 1], shared: 0 };
    ///     s.launch(stencil.over(grid), (u,))
    /// }
    /// ```
    pub fn over(&self, grid: Grid) -> Launch<'_, D, S> {
        Launch {
            function: self,
            grid,
        }
    }

    /// The kernel that runs the function with at least `threads` threads, in one dimension, in blocks of `block`
    /// threads. It has at least one block, even for 0 threads. The launch is refused if `block` is 0, or if the device
    /// does not support a grid of so many blocks.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::cuda::Cuda;
    /// use tidegate::cuda::prelude::*;
    /// use tidegate::kernel::Function;
    ///
    /// # type Increment = Function<Cuda, (&'static mut [f64],)>;
    /// fn step<'s>(s: &Stream<'s>, increment: &Increment, x: &mut Region<f64, On<'s>>) -> Result<()> {
    ///     s.launch(increment.threads(x.len(), 256), (x,)) // so many blocks of 256 as all elements need
    /// }
    /// ```
    pub fn threads(&self, threads: usize, block: u32) -> Launch<'_, D, S> {
        let blocks = threads.div_ceil(block.max(1) as usize).max(1);
        self.over(Grid {
            blocks: [u32::try_from(blocks).unwrap_or(u32::MAX), 1, 1],
            threads: [block, 1, 1],
            shared: 0,
        })
    }
}

impl<D: LaunchDevice> std::fmt::Debug for Module<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Module")
            .field("device", &D::NAME)
            .finish_non_exhaustive()
    }
}

impl<D: LaunchDevice, S: Signature> std::fmt::Debug for Function<D, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Function")
            .field("device", &D::NAME)
            .field(
                "parameters",
                &format_args!("{}", std::any::type_name::<S>()),
            )
            .finish_non_exhaustive()
    }
}

/// The type of a function's parameter, named by the view that a closure would get.
///
/// | parameter | the function gets | launched with |
/// |---|---|---|
/// | `&[T]` | address, length (8 bytes each) | `&Region`, `inbox.memory()` |
/// | `&mut [T]` | address, length | `&mut Region`, `inbox.memory_mut()` |
/// | `Slots<T>` | address of the table of slots, number of slots | `inbox.view()` |
/// | `Cells<T>`, `CellsMut<T>` | address, length of the whole memory | `&Part`, `&mut Part`, `exposed.rest()?`, `exposed.rest_mut()?` |
/// | `In<T>` | the number of the slot (4 bytes): an index into the table of the `Slots` or `KernelInbox` before it (or behind it, if there is none before), less than its number of slots | a handle |
/// | `OutSlots<T>` | `tidegate::OutSlots<T>` by value (16 bytes) | `opened.slots()` |
/// | `LastSlots<T>` | `tidegate::LastSlots<T>` by value (32 bytes) | `opened.last(rank)?` |
/// | `AllSlots<T>` | `tidegate::AllSlots<T>` by value (24 bytes) | `opened.last_of_all()?` |
/// | `KernelInbox<T>` | `tidegate::KernelInbox<T>` by value (40 bytes) | `inbox.lend()` |
/// | `KernelOutbox<T>` | `tidegate::KernelOutbox<T>` by value (40 bytes) | `outbox.lend()` |
/// | `Out<T>` | the number of the slot (4 bytes), for the `OutSlots`, `LastSlots`, `AllSlots` or `KernelOutbox` before it (or behind it, if there is none before) | a handle |
/// | a number, `Plain<T>` | the value | a number, `Plain(value)` |
///
/// An entry of the table of slots has four fields of 8 bytes each:
///
/// - the address of the slot's memory
/// - its length in elements
/// - the bytes to add to the address after epochs with odd numbers
/// - the address of the word that counts epochs in quanta of 2^20; the last epoch's number is one less than that count
///
/// `kernels/tidegate.cuh` in the repository declares it as a struct, with a function that finds the memory of the last
/// epoch. It also has the puts of `tidegate::OutSlots` and `tidegate::LastSlots`, and says what a kernel with these must
/// promise. Include it.
///
/// # Examples
///
/// ```
/// use tidegate::kernel::Parameter;
///
/// assert_eq!(<&[f64]>::SIZES, [8, 8]); // an address and a length
/// assert_eq!(f32::SIZES, [4]);
/// ```
pub trait Parameter: 'static {
    /// The lowered form of arguments for this parameter.
    type Lowered: Lowered;
    /// The sizes of what the function gets, in bytes.
    const SIZES: &'static [usize];
}

/// The types of all parameters of a function: a tuple of at most 16 [`Parameter`]s.
///
/// # Examples
///
/// ```
/// use tidegate::kernel::Signature;
///
/// assert_eq!(<(&mut [f64], u32)>::sizes(), [8, 8, 4]);
/// ```
#[diagnostic::on_unimplemented(
    message = "a function of device code cannot take the parameters `{Self}`",
    note = "it takes at most 16: put several arrays into one region, or several numbers into one struct (`#[derive(Clone, Copy, Element)] #[repr(C)]`, as `Plain<T>`)",
    note = "each is `&[T]`, `&mut [T]`, `Slots<T>`, `OutSlots<T>`, `LastSlots<T>`, `AllSlots<T>` (or `OutRanges<T>`, …), `KernelInbox<T>`, `KernelOutbox<T>`, `In<T>`, `Out<T>`, `Cells<T>`, `CellsMut<T>`, `Plain<T>`, or a number of a fixed size"
)]
pub trait Signature: 'static {
    /// The sizes of what the function gets, in bytes.
    fn sizes() -> Vec<usize>;
}

/// A plain struct that a function takes by value.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::kernel::Plain;
///
/// # tidegate::doc::stream(|world, s| {
/// #[derive(Clone, Copy, Element)]
/// #[repr(C)]
/// struct Box3 {
///     from: [u32; 3],
///     to: [u32; 3],
/// }
/// # let mut count = Region::<u32>::zeroed(world, 1)?.on(s)?;
/// let size = |count: &mut [u32], cut: Box3| count[0] = (0..3).map(|k| cut.to[k] - cut.from[k]).product();
/// s.launch(size, (&mut count, Plain(Box3 { from: [1, 1, 1], to: [3, 4, 5] })))?;
/// assert_eq!(count.into_host(s)?[0], 2 * 3 * 4);
/// # Ok(()) });
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Plain<T>(pub T);

// SAFETY: a value is a copy of its own, and names no memory.
unsafe impl<T: Element> Lowered for Plain<T> {
    type View<'k> = T;

    unsafe fn view<'k>(self, _: &'k dyn Issues) -> Self::View<'k> {
        self.0
    }

    fn push(self, parameters: &mut Parameters) {
        parameters.push(&self.0);
    }
}

impl<T: Element> WaitsForNobody for Plain<T> {}

// SAFETY: a value names no memory.
unsafe impl<'s, T: Element, D: tidegate_hal::device::Device> Argument<'s, D> for Plain<T> {
    type Lowered = Plain<T>;

    fn lower(&mut self, _stream: &Stream<'s, D>) -> Result<Plain<T>> {
        Ok(*self)
    }
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        // SAFETY: a number names no memory.
        unsafe impl<'s, D: tidegate_hal::device::Device> Argument<'s, D> for $number {
            type Lowered = Plain<$number>;

            fn lower(&mut self, _stream: &Stream<'s, D>) -> Result<Plain<$number>> {
                Ok(Plain(*self))
            }
        }

        impl Parameter for $number {
            type Lowered = Plain<$number>;
            const SIZES: &'static [usize] = &[size_of::<$number>()];
        }
    )*};
}
numbers!(i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64);
#[cfg(feature = "half")]
numbers!(half::f16 half::bf16);

macro_rules! parameters {
    ($($view:ty => $lowered:ty;)*) => {$(
        impl<T: Element> Parameter for $view {
            type Lowered = $lowered;
            const SIZES: &'static [usize] = &[8, 8];
        }
    )*};
}
parameters! {
    &'static [T] => LoweredShared<T>;
    &'static mut [T] => LoweredExclusive<T>;
    Slots<'static, T> => LoweredSlots<T>;
    Cells<'static, T> => LoweredPart<T, false>;
    CellsMut<'static, T> => LoweredPart<T, true>;
}

impl<T: Element, K: Discipline> Parameter for OutSlots<'static, T, K> {
    type Lowered = LoweredOut<T, K>;
    const SIZES: &'static [usize] = &[LoweredOut::<T, K>::SIZE];
}

impl<T: Element, K: Discipline> Parameter for LastSlots<'static, T, K> {
    type Lowered = LoweredLast<T, K>;
    const SIZES: &'static [usize] = &[LoweredLast::<T, K>::SIZE];
}

impl<T: Element, K: Discipline> Parameter for AllSlots<'static, T, K> {
    type Lowered = LoweredAll<T, K>;
    const SIZES: &'static [usize] = &[LoweredAll::<T, K>::SIZE];
}

impl<T: Element> Parameter for KernelInbox<'static, T> {
    type Lowered = LoweredInbox<T>;
    const SIZES: &'static [usize] = &[LoweredInbox::<T>::SIZE];
}

impl<T: Element> Parameter for KernelOutbox<'static, T> {
    type Lowered = LoweredOutbox<T>;
    const SIZES: &'static [usize] = &[LoweredOutbox::<T>::SIZE];
}

impl<T: Element> Parameter for In<T> {
    type Lowered = In<T>;
    const SIZES: &'static [usize] = &[size_of::<u32>()];
}

impl<T: Element> Parameter for Out<T> {
    type Lowered = Out<T>;
    const SIZES: &'static [usize] = &[size_of::<u32>()];
}

impl<T: Element> Parameter for Plain<T> {
    type Lowered = Plain<T>;
    const SIZES: &'static [usize] = &[size_of::<T>()];
}

macro_rules! signature {
    ($($parameter:ident $argument:ident),+) => {
        impl<$($parameter: Parameter),+> Signature for ($($parameter,)+) {
            fn sizes() -> Vec<usize> {
                [$($parameter::SIZES),+].concat()
            }
        }

        #[diagnostic::do_not_recommend]
        impl<'s, Dev, $($parameter, $argument),+> Kernel<'s, Dev, ($($argument,)+)> for Launch<'_, Dev, ($($parameter,)+)>
        where
            Dev: LaunchDevice,
            $($parameter: Parameter, $argument: Argument<'s, Dev, Lowered = $parameter::Lowered>,)+
        {
            fn name(&self) -> Arc<str> {
                self.function.name.clone()
            }

            #[allow(non_snake_case)]
            fn enqueue(self, stream: &Stream<'s, Dev>, arguments: ($($argument,)+)) -> Result<()> {
                let Launch { function, grid } = self;
                if !function.device.same(stream.world().device()) {
                    return Err(DeviceError::Code("the function was loaded to another device".into()).into());
                }
                let ($(mut $argument,)+) = arguments;
                let mut parameters = Parameters::new();
                {
                    let ($($argument,)+) = ($($argument.lower(stream)?,)+);
                    check_handles(&[$($argument.of_slots()),+])?;
                    $($argument.push(&mut parameters);)+
                }
                let waits = false $(|| <$parameter::Lowered as Lowered>::WAITS)+;
                // The sizes were compared when the function was bound.
                if !parameters.fit() {
                    return Err(super::too_many());
                }
                // SAFETY: the binding of the function promised that it takes parameters of these types. They name
                // memory of this stream only (by the brand). It is alive until the stream has passed, since regions and
                // halves are retired in stream order. It is exclusive where the function may write.
                unsafe { Dev::launch(stream.raw(), &function.raw, grid, waits, &parameters) }?;
                $($argument.launched(stream);)+
                Ok(())
            }
        }
    };
}

for_tuples!(signature);
