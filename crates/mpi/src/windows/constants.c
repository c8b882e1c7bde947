/* Constants that are macros in some MPIs, with casts that no binding generator follows. */
#include <mpi.h>

MPI_Op tidegate_mpi_replace(void) { return MPI_REPLACE; }
MPI_Op tidegate_mpi_no_op(void) { return MPI_NO_OP; }
int tidegate_mpi_win_model(void) { return MPI_WIN_MODEL; }
int tidegate_mpi_win_unified(void) { return MPI_WIN_UNIFIED; }
