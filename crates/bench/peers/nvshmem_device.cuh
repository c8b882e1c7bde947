// NVSHMEM from inside a kernel: the whole exchange is one launch.
//
// Block 0 waits; every other block moves one piece and adds one to the signal word of its message. So a message is complete
// when its word has grown by the number of its pieces, which both ends know. The number of the exchange is kept on the device,
// one word a block, so that a graph replays the kernel as it is.
//
// With exposure there is one receive buffer, and a sender first waits for the receiver's word that it is free. Without there
// are two in turn: a rank that has received exchange k + 1 from a neighbour knows that the neighbour is done with exchange k,
// because its stream unpacked k before it sent k + 1.
#pragma once

#include <nvshmem.h>
#include <nvshmemx.h>

#include "share.cuh"

// Symmetric memory; zero at first. All ranks make and drop it together.
class Symmetric {
  public:
    explicit Symmetric(size_t bytes) : at_(nvshmem_calloc(1, bytes)) {
        if (at_ == nullptr) throw std::runtime_error("the symmetric heap is too small (NVSHMEM_SYMMETRIC_SIZE)");
    }
    Symmetric(const Symmetric&) = delete;
    ~Symmetric() { nvshmem_free(at_); }
    double* values() const { return static_cast<double*>(at_); }
    uint64_t* words() const { return static_cast<uint64_t*>(at_); }

  private:
    void* at_;
};

struct FusedArguments {
    const double* source;   // packed, or the block
    const unsigned* list;   // where each value of a message is in the block
    double* slots;
    size_t buffer_stride;  // in values; 0: one buffer
    uint64_t* arrived;
    uint64_t* exposed;
    uint64_t* epochs;
};

enum class Sends { Puts, Stores, Gathers };

template <Sends How, bool Exposed>
static __global__ void __launch_bounds__(1024) fused_exchange(const __grid_constant__ FusedArguments a) {
    constexpr bool Direct = How != Sends::Puts;
    uint64_t epoch = 0;
    if (blockIdx.x == 0) {
        begin_early();
        epoch = a.epochs[blockIdx.x] + 1;
        if (threadIdx.x < static_cast<unsigned>(pieces.count)) {
            const auto& r = pieces.route[threadIdx.x];
            if (Exposed) {
                uint64_t* word = a.exposed + r.there * word_stride;
                if (Direct) {
                    release_store(static_cast<uint64_t*>(nvshmem_ptr(word, r.rank)), epoch);
                } else {
                    nvshmemx_signal_op(word, epoch, NVSHMEM_SIGNAL_SET, r.rank);
                }
            }
            uint64_t* word = a.arrived + r.here * word_stride;
            if (Direct) {
                acquire_at_least(word, epoch * r.pieces);
            } else {
                nvshmem_signal_wait_until(word, NVSHMEM_CMP_GE, epoch * r.pieces);
            }
        }
        __syncthreads();
    } else {
        const Piece piece(blockIdx.x - 1);
        const auto& r = *piece.route;
        uint64_t* word = a.arrived + r.there * word_stride;
        // Returns the receiver's buffer, once the work before this kernel is over and the buffer is free.
        const auto ready = [&] {
            begin_early();
            epoch = a.epochs[blockIdx.x] + 1;
            if (Exposed) {
                if (threadIdx.x == 0) {
                    uint64_t* free = a.exposed + r.here * word_stride;
                    if (Direct) {
                        acquire_at_least(free, epoch);
                    } else {
                        nvshmem_signal_wait_until(free, NVSHMEM_CMP_GE, epoch);
                    }
                }
                __syncthreads();
            }
            double* to = a.slots + ((epoch + 1) & 1) * a.buffer_stride + piece.to;
            return Direct ? static_cast<double*>(nvshmem_ptr(to, r.rank)) : to;
        };
        if (How == Sends::Gathers) {
            block_gather(a.source, a.list + piece.from, piece.values, ready);
        } else if (Direct) {
            block_copy(ready(), a.source + piece.from, piece.values * sizeof(double));
        } else {
            nvshmemx_putmem_signal_nbi_block(ready(), a.source + piece.from, piece.values * sizeof(double), word, 1,
                                             NVSHMEM_SIGNAL_ADD, r.rank);
        }
        __syncthreads();
        if (Direct && threadIdx.x == 0) release_add(static_cast<uint64_t*>(nvshmem_ptr(word, r.rank)), 1);
    }
    if (threadIdx.x == 0) a.epochs[blockIdx.x] = epoch;
}

class Fused final : public Exchange {
  public:
    Fused(const Layout& layout, Sends how, bool exposed, const Options::Shape& shape, unsigned sms)
        : layout_(layout), how_(how), exposed_(exposed), threads_(shape.threads), out_(layout.packed_bytes()), in_((exposed ? 1 : 2) * layout.packed_bytes()),
          words_(2 * 26 * word_stride * sizeof(uint64_t)) {
        period = exposed ? 1 : 2;
        launches = 1;
        early = shape.early;
        gathers = how == Sends::Gathers;
        if (gathers) places_ = std::make_unique<PackedFrom>(layout);
        const Pieces cut(layout, shape.blocks);
        use(cut);
        blocks_ = static_cast<unsigned>(cut.blocks + 1);
        note = std::to_string(cut.blocks) + " pieces";
        if (blocks_ > sms) note += ", more blocks than multiprocessors";
        CUDA(cudaMalloc(&epochs_, blocks_ * sizeof(uint64_t)));
        CUDA(cudaMemset(epochs_, 0, blocks_ * sizeof(uint64_t)));
        for (const auto& m : layout.messages) {
            if (how != Sends::Puts && nvshmem_ptr(in_.values(), m.rank) == nullptr) {
                throw std::runtime_error("the memory of a neighbour is not mapped");
            }
        }
    }
    ~Fused() override { cudaFree(epochs_); }
    double* source() override { return out_.values(); }
    double* slots(int k) override { return in_.values() + (exposed_ ? 0 : k % 2) * layout_.packed(); }
    void from(const double* block) override { block_ = block; }
    void enqueue(cudaStream_t stream, int) override {
        const FusedArguments a{gathers ? block_ : source(), gathers ? places_->list() : nullptr, in_.values(),
                               exposed_ ? 0 : layout_.packed(), words_.words(), words_.words() + 26 * word_stride, epochs_};
        launch(kernel(), blocks_, threads_, stream, early, a);
    }

  private:
    const Layout& layout_;
    Sends how_;
    bool exposed_;
    int threads_;
    unsigned blocks_ = 0;
    Symmetric out_, in_, words_;
    std::unique_ptr<PackedFrom> places_;
    const double* block_ = nullptr;
    uint64_t* epochs_ = nullptr;

    void (*kernel() const)(FusedArguments) {
        switch (how_) {
            case Sends::Puts: return exposed_ ? fused_exchange<Sends::Puts, true> : fused_exchange<Sends::Puts, false>;
            case Sends::Stores: return exposed_ ? fused_exchange<Sends::Stores, true> : fused_exchange<Sends::Stores, false>;
            default: return exposed_ ? fused_exchange<Sends::Gathers, true> : fused_exchange<Sends::Gathers, false>;
        }
    }
};
