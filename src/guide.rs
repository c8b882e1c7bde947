//! The guide: one module for each page of `docs/`. Its programs are doc tests.
//!
//! Start with the [tutorial].

/// Makes a module of each page. Pages link to each other by references: the definitions at a page's end are file names, for
/// readers of the repository; those in front of it are modules, and the first definition of a name counts.
macro_rules! pages {
    ($($module:ident = $file:literal $({ $item:item })?;)*) => {$(
        #[doc = "[contents]: crate::guide"]
        #[doc = "[tutorial]: crate::guide::tutorial"]
        #[doc = "[messages]: crate::guide::messages"]
        #[doc = "[async]: crate::guide::in_async_programs"]
        #[doc = "[when-the-compiler-says-no]: crate::guide::when_the_compiler_says_no"]
        #[doc = "[from-mpi]: crate::guide::from_mpi"]
        #[doc = "[from-nvshmem]: crate::guide::from_nvshmem"]
        #[doc = "[from-nccl]: crate::guide::from_nccl"]
        #[doc = "[from-cudarc]: crate::guide::from_cudarc"]
        #[doc = "[gpus]: crate::guide::gpus"]
        #[doc = "[nodes]: crate::guide::nodes"]
        #[doc = "[clusters]: crate::guide::clusters"]
        #[doc = "[environment]: crate::guide::environment"]
        #[doc = "[troubleshooting]: crate::guide::troubleshooting"]
        #[doc = "[internals]: crate::guide::internals"]
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
