//! Compiles the few constants of MPI that have no symbol of their own. Does nothing without the feature `mpi`.

fn main() {
    println!("cargo:rerun-if-changed=src/windows/constants.c");
    println!("cargo:rerun-if-env-changed=MPICC");
    #[cfg(feature = "mpi")]
    constants();
}

#[cfg(feature = "mpi")]
fn constants() {
    // It is found in the same way as `mpi-sys` finds it, so both find the same MPI.
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
