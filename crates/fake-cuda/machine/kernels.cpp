// All kernels of `kernels/*.cu`, by the names that their PTX has.
//
// Model: each source is included as it is, in a namespace of its own, since their helpers share names. A kernel is called for one thread, with its arguments taken from where the launch has put them: what the table says of
// their sizes comes from the kernel's type, so that it is what the source says.
//
// Failure: an unknown name is not in the table. What writes where nothing is mapped would end the process; so the one kernel that does so on
// purpose is replaced by one that says so.
//
// Compiled for 9.0: kernels wait by themselves for what stands before them.

#include <string.h>

#include <utility>

#include "cuda.hpp"

#include "../../../kernels/tidegate.cuh"

namespace of_batch {
#include "../../../kernels/batch.cu"
}

namespace of_faces {
#include "../../../kernels/faces.cu"
}
namespace of_bench {
#include "../../../kernels/bench.cu"
}
namespace of_samples {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Warray-bounds"
#include "../../../kernels/samples.cu"
#pragma GCC diagnostic pop
}
namespace of_examples {
// That of the samples is the same; both would be one function.
#define increment increment_of_examples
#include "../../../kernels/examples.cu"
#undef increment
}
namespace of_schedules {
#include "../../../kernels/schedules.cu"
}
// This one includes the header again, with other checks.
namespace of_checked {
#undef TIDEGATE_CUH
#undef TIDEGATE_PUT_CUH
#undef TIDEGATE_OWN_CUH
#include "../../../kernels/checked.cu"
}
// The last, as it gives the batch kernel other names.
namespace of_stamps {
#include "../../../kernels/stamped.cu"
}
#undef tidegate_batch
#undef tidegate_reduce

namespace machine {

static_assert(THREADS == 512, "as on the device");

template <auto kernel>
struct Thunk;

template <typename... A, void (*kernel)(A...)>
struct Thunk<kernel> {
    static_assert(sizeof...(A) <= MOST_ARGUMENTS && (((sizeof(A) + 15) / 16 * 16) + ...) <= ROOM, "there is room for the arguments");

    static constexpr u32 sizes[] = {sizeof(A)...};

    template <size_t... I>
    static void call(void *const *arguments, std::index_sequence<I...>) {
        kernel(*(const A *)arguments[I]...);
    }

    static void run(void *const *arguments) { call(arguments, std::index_sequence_for<A...>()); }

    static constexpr Kernel named(const char *name) { return {name, run, sizes, sizeof...(A)}; }
};

static void trespass(u64 *, u64) { fail("a write where nothing is mapped", 8); }

#define AS(name, kernel) Thunk<kernel>::named(#name)
#define OF(place, name) AS(name, place::name)
#define OF_TYPE(T)                                                                                                                                      \
    OF(of_schedules, change_##T), OF(of_schedules, change_part_##T), OF(of_schedules, fold_##T), OF(of_schedules, log_##T), OF(of_schedules, sum_slots_##T), \
        OF(of_schedules, sum_##T), OF(of_schedules, harvest_##T), OF(of_schedules, copy_##T), OF(of_schedules, copy_slot_##T)

const Kernel kernels[] = {
    OF(of_batch, tidegate_batch),
    OF(of_batch, tidegate_reduce),
    OF(of_stamps, tidegate_batch_stamped),
    OF(of_stamps, tidegate_reduce_stamped),
    OF(of_stamps, tidegate_clock),
    OF(of_checked, put_checked),
    OF(of_checked, last_checked),
    OF(of_bench, bench_gather),
    OF(of_bench, bench_puts),
    OF(of_bench, bench_values),
    OF(of_bench, bench_pass),
    OF(of_faces::faces, faces_init),
    OF(of_faces::faces, faces_init_part),
    OF(of_faces::faces, faces_copy_part),
    OF(of_faces::faces, faces_pack),
    OF(of_faces::faces, faces_send),
    OF(of_faces::faces, faces_shares),
    OF(of_faces::faces, faces_unpack),
    OF(of_faces::faces, faces_unpack_packed),
    OF(of_faces::faces, faces_compute),
    OF(of_samples, increment),
    OF(of_samples, count),
    OF(of_samples, produce),
    OF(of_samples, tick),
    OF(of_samples, tick_early),
    OF(of_samples, consume),
    OF(of_samples, copy_slot),
    OF(of_samples, busy),
    OF(of_samples, put_values),
    OF(of_samples, put_by_team),
    OF(of_samples, own_all),
    OF(of_samples, hold),
    OF(of_samples, own_epochs),
    OF(of_samples, own_wrongly),
    OF(of_samples, put_bytes),
    OF(of_samples, copy_slot_as_bytes),
    OF(of_samples, put_u16),
    OF(of_samples, put_f32),
    OF(of_samples, put_triples),
    OF(of_samples, put_wides),
    OF(of_samples, put_to_number),
    OF(of_samples, put_last),
    OF(of_samples, complete_by),
    OF(of_samples, get_and_put),
    OF(of_samples, get_last),
    OF(of_samples, get_by_team),
    OF(of_samples, get_bytes),
    OF(of_samples, get_triples),
    OF(of_samples, get_wides),
    OF(of_samples, add_one),
    AS(trespass, machine::trespass),
    OF(of_examples, compare),
    OF(of_examples, fill_ghosts),
    OF(of_examples, sweep),
    OF(of_examples, send_edges),
    OF(of_examples, sweep_and_send),
    OF(of_examples, solve),
    OF(of_examples, fill),
    OF(of_examples, multiply),
    OF(of_examples, take_foreign),
    OF(of_examples, multiply_rows),
    OF(of_examples, step_along),
    OF(of_examples, turn),
    OF(of_examples, heat_inner),
    OF(of_examples, heat_outer),
    OF(of_examples, largest_change),
    OF(of_examples, clear_lists),
    OF(of_examples, move_particles),
    OF(of_examples, list_lengths),
    OF(of_examples, take_particles),
    OF(of_examples, count_particles),
    OF(of_examples, flow_along),
    OF(of_examples, clear_counts),
    OF(of_examples, route_tokens),
    OF(of_examples, apply_experts),
    OF(of_examples, mix_tokens),
    OF(of_examples, transform_rows),
    OF(of_examples, turn_rows),
    OF(of_examples, join_blocks),
    OF_TYPE(u64),
    OF_TYPE(u32),
    OF_TYPE(u8),
    OF_TYPE(i32),
    OF_TYPE(f64),
    OF_TYPE(pixel),
    OF_TYPE(triple),
};
const u32 kernel_count = sizeof kernels / sizeof kernels[0];

}  // namespace machine
