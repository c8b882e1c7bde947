#![doc = include_str!("guide.md")]
#![doc = ""]
#![doc = include_str!("../docs/README.md")]
// Pages link to each other by references. A page ends with definitions that are file names, for readers of the repository.
// In front of it stand those of `guide.md`, which are modules: the first definition of a name counts.

/// Makes a module of each page of the guide. A page with a picture has a definition of that, too. Its programs are doc tests, if the features are on that they need.
macro_rules! pages {
    ($($(#[$when:meta])? $module:ident = $file:literal $(with $picture:literal)? $({ $item:item })?;)*) => {$(
        $(#[$when])?
        $(#[doc = include_str!($picture)])?
        #[doc = include_str!("guide.md")]
        #[doc = ""]
        #[doc = include_str!(concat!("../docs/", $file))]
        pub mod $module { $($item)? }
    )*};
}

pages! {
    tutorial = "tutorial.md";
    messages = "messages.md";
    collectives = "collectives.md";
    #[cfg(any(not(doctest), feature = "cuda"))]
    kernels = "kernels.md";
    groups = "groups.md";
    in_async_programs = "async.md";
    when_the_compiler_says_no = "when-the-compiler-says-no.md" { pub use tidegate_core::__private::StreamsDoNotMix; };
    from_mpi = "from-mpi.md";
    from_nvshmem = "from-nvshmem.md";
    #[cfg(any(not(doctest), feature = "cuda"))]
    from_nccl = "from-nccl.md";
    #[cfg(any(not(doctest), feature = "cuda"))]
    from_cudarc = "from-cudarc.md";
    #[cfg(any(not(doctest), feature = "cuda"))]
    gpus = "gpus.md";
    first_run_on_amd = "first-run-on-amd.md";
    #[cfg(any(not(doctest), feature = "fabric"))]
    nodes = "nodes.md";
    clusters = "clusters.md";
    large_jobs = "large-jobs.md";
    environment = "environment.md";
    verify = "verify.md";
    tools = "tools.md" with "trace-page.md";
    observe = "observe.md";
    troubleshooting = "troubleshooting.md";
    internals = "internals.md";
}
