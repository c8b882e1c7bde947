//! The macro that declares functions of device code.

/// Declares functions of device code: their parameters, and in a `# Safety` section the contract that they must keep.
///
/// ```
/// tidegate::kernel! {
///     /// Scales a vector.
///     ///
///     /// # Safety
///     ///
///     /// The module has `scale(double *x, size_t len, double by)`, which accesses `x[0..len]` only.
///     pub unsafe fn scale = "scale"(x: &mut [f64], by: f64);
/// }
/// ```
///
/// This makes an `unsafe fn scale<D>(module: &Module<D>) -> Result<scale<D>>`, to be called once. Safe code launches
/// the [`Function`](crate::kernel::Function): `stream.launch(scale.threads(n, 256), (&mut x, 2.0))`. The types of
/// parameters are those of [`Parameter`](crate::kernel::Parameter).
///
/// The type `scale<D>` is another name for the bound function's type, `Function<D, (&'static mut [f64], f64)>`. Use it
/// to keep the function in a struct. (No other type or module may have the same name there.)
///
/// ```
/// # use tidegate::cuda::{Cuda, prelude::*};
/// # tidegate::kernel! {
/// #     /// # Safety
/// #     ///
/// #     /// As above.
/// #     pub unsafe fn scale = "scale"(x: &mut [f64], by: f64);
/// # }
/// struct Kernels {
///     scale: scale<Cuda>,
/// }
///
/// fn bind(module: &Module<Cuda>) -> Result<Kernels> {
///     // SAFETY: `scale` in the module is what the declaration says.
///     let scale = unsafe { scale(module) }?;
///     Ok(Kernels { scale })
/// }
/// ```
///
/// A struct binds several functions of one module at once:
///
/// ```
/// use tidegate::cuda::prelude::*;
///
/// tidegate::kernel! {
///     /// Vector arithmetic.
///     ///
///     /// # Safety
///     ///
///     /// The module is `vectors.cu`.
///     pub unsafe struct Kernels {
///         /// `x *= by`
///         fn scale = "scale"(x: &mut [f64], by: f64);
///         /// `y += x`
///         fn add = "add"(x: &[f64], y: &mut [f64]);
///     }
/// }
///
/// fn load(world: &World, code: &[u8]) -> Result<Kernels<Cuda>> {
///     let module = Module::load(world, code)?;
///     // SAFETY: it is `vectors.cu`.
///     unsafe { Kernels::bind(&module) }
/// }
///
/// fn double<'s>(s: &Stream<'s>, k: &Kernels<Cuda>, x: &mut Region<f64, On<'s>>) -> Result<()> {
///     s.launch(k.scale.threads(x.len(), 256), (x, 2.0))
/// }
/// ```
#[macro_export]
macro_rules! kernel {
    (
        $(#[$meta:meta])* $vis:vis unsafe struct $name:ident {
            $($(#[$of_one:meta])* fn $function:ident = $symbol:literal ( $($parameters:tt)* );)*
        }
    ) => {
        $(#[$meta])*
        #[allow(dead_code, reason = "perhaps only some are launched")]
        $vis struct $name<D: $crate::__private::LaunchDevice> {
            $($(#[$of_one])* $vis $function: $crate::kernel::Function<D, $crate::__signature!([] $($parameters)*)>,)*
        }

        impl<D: $crate::__private::LaunchDevice> $name<D> {
            /// Binds all functions.
            ///
            /// # Errors
            ///
            /// The same as `Module::function`.
            ///
            /// # Safety
            ///
            /// The contract in the documentation of this struct.
            $vis unsafe fn bind(module: &$crate::kernel::Module<D>) -> $crate::Result<Self> {
                // The types are named once more, so that they are as declared even if an attribute has changed the
                // struct.
                $(
                    let $function: $crate::kernel::Function<D, $crate::__signature!([] $($parameters)*)> =
                        // SAFETY: the caller promises the struct's contract.
                        unsafe { $crate::kernel::Module::function(module, $symbol) }?;
                )*
                $crate::Result::Ok($name { $($function),* })
            }
        }
    };
    ($($(#[$meta:meta])* $vis:vis unsafe fn $name:ident = $symbol:literal ( $($parameters:tt)* );)*) => {$(
        $(#[$meta])*
        #[allow(unsafe_op_in_unsafe_fn, reason = "if an attribute removes `unsafe` from this function, its body must not compile")]
        $vis unsafe fn $name<D: $crate::__private::LaunchDevice>(
            module: &$crate::kernel::Module<D>,
        ) -> $crate::Result<$name<D>> {
            $crate::kernel::Module::function(module, $symbol)
        }

        #[doc = $crate::__private::concat!("The function `", $symbol, "`, bound to the types of its parameters.")]
        #[allow(non_camel_case_types, dead_code, reason = "the type has the name of the function, and a program need not use it")]
        $vis type $name<D> = $crate::kernel::Function<D, $crate::__signature!([] $($parameters)*)>;
    )*};
}

/// Includes a device source and its compiled forms, as a constant [`Code`](crate::kernel::Code). The arguments are the
/// source's path without its ending, and the architectures of AMD GPUs that there is a code object for. A relative path
/// begins in the folder of the file with the call.
///
/// `code!("kernels", gfx90a, gfx942)` includes `kernels.ptx`, `kernels.gfx90a.co`, `kernels.gfx942.co`, and `kernels.cu`,
/// which is compiled at run time for other AMD GPUs. To include other forms, use
/// [`Code::new`](crate::kernel::Code::new).
///
/// ```
/// # macro_rules! code { ($($any:tt)*) => { tidegate::kernel::Code::new(&[]) } }
/// use tidegate::cuda::prelude::*;
/// use tidegate::kernel::Code;
///
/// const CODE: Code = code!("kernels", gfx90a, gfx942);
///
/// fn load(world: &World) -> Result<Module<Gpu>> {
///     Module::load(world, CODE)
/// }
/// ```
#[macro_export]
macro_rules! code {
    ($path:literal $(, $gpu:ident)* $(,)?) => {
        $crate::kernel::Code::new(&[
            ("cuda", $crate::__private::include_bytes!($crate::__private::concat!($path, ".ptx"))),
            $((
                $crate::__private::stringify!($gpu),
                $crate::__private::include_bytes!($crate::__private::concat!(
                    $path,
                    ".",
                    $crate::__private::stringify!($gpu),
                    ".co"
                )),
            ),)*
        ])
        .with_source($crate::kernel::SourceText {
            name: $crate::__private::concat!($path, ".cu"),
            text: $crate::__private::include_str!($crate::__private::concat!($path, ".cu")),
            headers: &[],
        })
    };
}

/// The types of parameters, without the lifetimes that a signature does not have.
#[doc(hidden)]
#[macro_export]
macro_rules! __signature {
    ([$($done:ty,)*]) => { ($($done,)*) };
    ([$($done:ty,)*] $name:ident : &mut [$item:ty] $(, $($rest:tt)*)?) => {
        $crate::__signature!([$($done,)* &'static mut [$item],] $($($rest)*)?)
    };
    ([$($done:ty,)*] $name:ident : &[$item:ty] $(, $($rest:tt)*)?) => {
        $crate::__signature!([$($done,)* &'static [$item],] $($($rest)*)?)
    };
    ([$($done:ty,)*] $name:ident : Slots<$item:ty> $(, $($rest:tt)*)?) => {
        $crate::__signature!([$($done,)* $crate::window::Slots<'static, $item>,] $($($rest)*)?)
    };
    ([$($done:ty,)*] $name:ident : OutSlots<$item:ty> $(, $($rest:tt)*)?) => {
        $crate::__signature!([$($done,)* $crate::window::OutSlots<'static, $item>,] $($($rest)*)?)
    };
    ([$($done:ty,)*] $name:ident : OutRanges<$item:ty> $(, $($rest:tt)*)?) => {
        $crate::__signature!([$($done,)* $crate::window::OutRanges<'static, $item>,] $($($rest)*)?)
    };
    ([$($done:ty,)*] $name:ident : AllSlots<$item:ty> $(, $($rest:tt)*)?) => {
        $crate::__signature!([$($done,)* $crate::window::AllSlots<'static, $item>,] $($($rest)*)?)
    };
    ([$($done:ty,)*] $name:ident : AllRanges<$item:ty> $(, $($rest:tt)*)?) => {
        $crate::__signature!([$($done,)* $crate::window::AllRanges<'static, $item>,] $($($rest)*)?)
    };
    ([$($done:ty,)*] $name:ident : LastSlots<$item:ty> $(, $($rest:tt)*)?) => {
        $crate::__signature!([$($done,)* $crate::window::LastSlots<'static, $item>,] $($($rest)*)?)
    };
    ([$($done:ty,)*] $name:ident : LastRanges<$item:ty> $(, $($rest:tt)*)?) => {
        $crate::__signature!([$($done,)* $crate::window::LastRanges<'static, $item>,] $($($rest)*)?)
    };
    ([$($done:ty,)*] $name:ident : KernelInbox<$item:ty> $(, $($rest:tt)*)?) => {
        $crate::__signature!([$($done,)* $crate::window::KernelInbox<'static, $item>,] $($($rest)*)?)
    };
    ([$($done:ty,)*] $name:ident : KernelOutbox<$item:ty> $(, $($rest:tt)*)?) => {
        $crate::__signature!([$($done,)* $crate::window::KernelOutbox<'static, $item>,] $($($rest)*)?)
    };
    ([$($done:ty,)*] $name:ident : Cells<$item:ty> $(, $($rest:tt)*)?) => {
        $crate::__signature!([$($done,)* $crate::Cells<'static, $item>,] $($($rest)*)?)
    };
    ([$($done:ty,)*] $name:ident : CellsMut<$item:ty> $(, $($rest:tt)*)?) => {
        $crate::__signature!([$($done,)* $crate::CellsMut<'static, $item>,] $($($rest)*)?)
    };
    ([$($done:ty,)*] $name:ident : $plain:ty $(, $($rest:tt)*)?) => {
        $crate::__signature!([$($done,)* $plain,] $($($rest)*)?)
    };
}
