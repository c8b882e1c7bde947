// NCCL from inside a kernel: the whole exchange is one launch, which stores to the windows of the other ranks.
#pragma once

#include "nccl_common.cuh"
#include "share.cuh"

#ifdef PEER_NCCL_DEVICE
// What kernels need to meet at barriers of all ranks, `barriers` of them.
inline ncclDevComm device_comm(ncclComm_t comm, int barriers) {
#ifdef NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER
    ncclDevCommRequirements wants = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
#else
    ncclDevCommRequirements wants{};
#endif
    wants.lsaMultimem = false;
    wants.lsaBarrierCount = barriers;
    ncclDevComm made{};
    NCCL(ncclDevCommCreate(comm, &wants, &made));
    return made;
}

// Every piece is stored straight into the receiver's window by one block, and a barrier of all ranks, block by block, ends it.
// Two buffers in turn: a rank that passes the barrier of exchange k + 1 has unpacked the messages of exchange k.
static __global__ void __launch_bounds__(1024)
    device_barrier(const __grid_constant__ ncclDevComm comm, ncclWindow_t window, const double* source, size_t stride,
                   unsigned long long* epochs) {
    begin_early();
    const unsigned long long epoch = epochs[blockIdx.x];
    ncclLsaBarrierSession<ncclCoopCta> barrier{ncclCoopCta(), comm, ncclTeamTagLsa(), blockIdx.x};
    for (int b = static_cast<int>(blockIdx.x); b < pieces.blocks; b += static_cast<int>(gridDim.x)) {
        const Piece piece(b);
        auto* slots = static_cast<double*>(ncclGetLsaPointer(window, 0, piece.route->rank)) + (epoch & 1) * stride;
        block_copy(slots + piece.to, source + piece.from, piece.values * sizeof(double));
    }
    barrier.sync(ncclCoopCta(), cuda::memory_order_acq_rel);
    if (threadIdx.x == 0) epochs[blockIdx.x] = epoch + 1;
}

// The same, with words of our own in the window instead of the barrier: each block adds to a word of the receiver, and one
// block waits for all words. `Gathers`: the messages are gathered from the block, by a list of places; `source` is the block.
// `Exposed`: there is one buffer, and a sender first waits for the receiver's word that it is free.
template <bool Gathers, bool Exposed>
static __global__ void __launch_bounds__(1024)
    device_signal(ncclWindow_t window, const double* source, const unsigned* list, size_t stride, size_t words,
                  unsigned long long* epochs) {
    const auto word = [&](int rank, int number) {
        return static_cast<uint64_t*>(ncclGetLsaPointer(window, words, rank)) + word_stride * number;
    };
    const auto own = [&](int number) {
        return static_cast<uint64_t*>(ncclGetLocalPointer(window, words)) + word_stride * number;
    };
    unsigned long long epoch = 0;
    if (blockIdx.x == 0) {
        begin_early();
        epoch = epochs[blockIdx.x];
        if (threadIdx.x < static_cast<unsigned>(pieces.count)) {
            const auto& r = pieces.route[threadIdx.x];
            if (Exposed) release_store(word(r.rank, 26 + r.there), epoch + 1);
            acquire_at_least(own(r.here), (epoch + 1) * r.pieces);
        }
        __syncthreads();
    } else {
        const Piece piece(blockIdx.x - 1);
        const auto& r = *piece.route;
        // Returns the receiver's buffer, once the work before this kernel is over and the buffer is free.
        const auto ready = [&] {
            begin_early();
            epoch = epochs[blockIdx.x];
            if (Exposed) {
                if (threadIdx.x == 0) acquire_at_least(own(26 + r.here), epoch + 1);
                __syncthreads();
            }
            auto* slots = static_cast<double*>(ncclGetLsaPointer(window, 0, r.rank)) + piece.to;
            return Exposed ? slots : slots + (epoch & 1) * stride;
        };
        if (Gathers) {
            block_gather(source, list + piece.from, piece.values, ready);
        } else {
            block_copy(ready(), source + piece.from, piece.values * sizeof(double));
        }
        __syncthreads();
        if (threadIdx.x == 0) release_add(word(r.rank, r.there), 1);
    }
    if (threadIdx.x == 0) epochs[blockIdx.x] = epoch + 1;
}

class Device final : public Exchange {
  public:
    enum Kind { Barrier, Words, Gathers };

    Device(Job& job, ncclComm_t comm, const Layout& layout, Kind kind, bool exposed, const Options::Shape& shape)
        : comm_(comm), kind_(kind), exposed_(exposed), threads_(shape.threads), stride_(layout.packed()),
          out_(comm, layout.packed_bytes(), false), in_(comm, bytes(), false) {
        period = exposed ? 1 : 2;
        launches = 1;
        early = shape.early;
        gathers = kind == Gathers;
        if (gathers) places_ = std::make_unique<PackedFrom>(layout);
        const Pieces cut(layout, shape.blocks);
        use(cut);
        // All ranks must have equally many blocks; pieces are dealt out to them.
        blocks_ = kind == Barrier ? static_cast<int>(std::min(job.max(cut.blocks), 128.0)) : cut.blocks + 1;
        NCCL(ncclCommWindowRegister(comm, in_.values(), bytes(), &window_, NCCL_WIN_COLL_SYMMETRIC));
        if (window_ == nullptr) throw std::runtime_error("NCCL has no symmetric windows here");
        device_ = device_comm(comm, blocks_);
        if (ncclTeamLsa(comm).nRanks != job.size) throw std::runtime_error("not all ranks can store to each other");
        CUDA(cudaMalloc(&epochs_, blocks_ * sizeof(*epochs_)));
        CUDA(cudaMemset(epochs_, 0, blocks_ * sizeof(*epochs_)));
    }
    ~Device() override {
        ncclDevCommDestroy(comm_, &device_);
        ncclCommWindowDeregister(comm_, window_);
        cudaFree(epochs_);
    }
    double* source() override { return out_.values(); }
    double* slots(int k) override { return in_.values() + (exposed_ ? 0 : k % 2) * stride_; }
    void from(const double* block) override { block_ = block; }
    void enqueue(cudaStream_t stream, int) override {
        const unsigned blocks = static_cast<unsigned>(blocks_);
        if (kind_ == Barrier) {
            launch(device_barrier, blocks, threads_, stream, early, device_, window_, out_.values(), stride_, epochs_);
        } else {
            launch(signal(), blocks, threads_, stream, early, window_, gathers ? block_ : out_.values(),
                   gathers ? places_->list() : nullptr, stride_, buffers(), epochs_);
        }
    }

  private:
    ncclComm_t comm_;
    Kind kind_;
    bool exposed_;
    int threads_, blocks_ = 0;
    size_t stride_;
    NcclMemory out_, in_;
    std::unique_ptr<PackedFrom> places_;
    const double* block_ = nullptr;
    ncclWindow_t window_ = nullptr;
    ncclDevComm device_{};
    unsigned long long* epochs_ = nullptr;

    size_t buffers() const { return 2 * stride_ * sizeof(double); }
    // The words lie behind the buffers: those of messages that have come, and those of slots that are free.
    size_t bytes() const { return buffers() + 2 * 26 * word_stride * sizeof(uint64_t); }
    using Kernel = void (*)(ncclWindow_t, const double*, const unsigned*, size_t, size_t, unsigned long long*);
    Kernel signal() const {
        if (gathers) return exposed_ ? device_signal<true, true> : device_signal<true, false>;
        return exposed_ ? device_signal<false, true> : device_signal<false, false>;
    }
};
#endif
