#![doc = include_str!("guide.md")]
#![doc = ""]
#![doc = include_str!("../docs/README.md")]
// Pages link to each other by references. A page ends with definitions that are file names, for readers of the repository.
// In front of it stand those of `guide.md`, which are modules: the first definition of a name counts.

/// Makes a module of each page of the guide, whose programs are doc tests.
macro_rules! pages {
    ($($module:ident = $file:literal $({ $item:item })?;)*) => {$(
        #[doc = include_str!("guide.md")]
        #[doc = ""]
        #[doc = include_str!(concat!("../docs/", $file))]
        pub mod $module { $($item)? }
    )*};
}

pages! {
    tutorial = "tutorial.md";
    messages = "messages.md";
    in_async_programs = "async.md";
    when_the_compiler_says_no = "when-the-compiler-says-no.md" { pub use tidegate_core::__private::StreamsDoNotMix; };
    from_mpi = "from-mpi.md";
    from_nvshmem = "from-nvshmem.md";
    from_nccl = "from-nccl.md";
    from_cudarc = "from-cudarc.md";
    gpus = "gpus.md";
    nodes = "nodes.md";
    clusters = "clusters.md";
    environment = "environment.md";
    troubleshooting = "troubleshooting.md";
    internals = "internals.md";
}
