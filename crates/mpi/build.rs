//! Compiles the few constants of MPI that have no symbol of their own. Nothing is done unless the feature `mpi` is on.

fn main() {
    println!("cargo:rerun-if-changed=src/windows/constants.c");
    println!("cargo:rerun-if-env-changed=MPICC");
    #[cfg(feature = "mpi")]
    constants();
}

#[cfg(feature = "mpi")]
fn constants() {
    // As `mpi-sys` looks for it, so that both find the same.
    let found = build_probe_mpi::probe().unwrap_or_else(|errors| {
        let all: Vec<_> = errors.iter().map(ToString::to_string).collect();
        panic!("no MPI was found (MPICC says where): {}", all.join("; "))
    });
    let mut build = cc::Build::new();
    build.file("src/windows/constants.c");
    match found.mpicc {
        Some(mpicc) => {
            build.compiler(mpicc);
        }
        None => {
            build.includes(&found.include_paths);
        }
    }
    build.compile("tidegate_mpi_constants");
}
