// NCCL between two GPUs: how long a message takes, and how fast messages are.
#pragma once

#include "nccl_common.cuh"

// Two ranks: one way of a ping-pong, and a stream of messages.
static void pair_rows(Job& job, const Options& options, ncclComm_t comm, cudaStream_t stream, Report& report) {
    const size_t most = 64 << 20;
    NcclMemory out(comm, most, true), in(comm, most, true);
    auto* a = reinterpret_cast<uint64_t*>(out.values());
    auto* b = reinterpret_cast<uint64_t*>(in.values());
    unsigned long long* wrong = nullptr;
    CUDA(cudaMalloc(&wrong, 8));
    CUDA(cudaMemset(wrong, 0, 8));
    const int other = 1 - job.rank;
    unsigned long long seed = 0, bad = 0;
    for (size_t bytes : {8ul, 64ul, 512ul, 4096ul, 32768ul, 262144ul, 2097152ul, 16777216ul, 67108864ul}) {
        for (bool ping : {true, false}) {
            const int repeats = bytes <= 262144 ? 100 : 10;
            Timed timed;
            timed.units = repeats;
            timed.prepare = [&] {
                ++seed;
                write_words<<<64, 256, 0, stream>>>(a, bytes / 8, seed);
                CUDA(cudaMemsetAsync(b, 0, bytes, stream));
            };
            timed.unit = [&] {
                if (ping && job.rank == 1) NCCL(ncclRecv(b, bytes, ncclChar, other, comm, stream));
                if (job.rank == 0 || ping) NCCL(ncclSend(a, bytes, ncclChar, other, comm, stream));
                if (job.rank == 0 && ping) NCCL(ncclRecv(b, bytes, ncclChar, other, comm, stream));
                if (job.rank == 1 && !ping) NCCL(ncclRecv(b, bytes, ncclChar, other, comm, stream));
            };
            timed.check = [&] {
                if (ping || job.rank == 1) check_words<<<64, 256, 0, stream>>>(b, bytes / 8, seed, wrong);
                CUDA(cudaMemcpyAsync(&bad, wrong, 8, cudaMemcpyDeviceToHost, stream));
                CUDA(cudaStreamSynchronize(stream));
                return bad == 0;
            };
            Row row = time_rounds(job, options, stream, timed);
            row.row = ping ? "send and receive, one way" : "send after send";
            if (ping) {
                for (double* t : {&row.us, &row.least, &row.most}) *t /= 2;
            }
            row.more = {{"bytes", static_cast<double>(bytes)}, {"gbps", bytes / row.us * 1e-3}};
            report.add(row);
        }
    }
    CUDA(cudaFree(wrong));
}

#ifdef PEER_NCCL_PUTS
// The same by puts with signals: one way of a ping-pong, on the stream and in a graph of 20.
static void put_rows(Job& job, const Options& options, ncclComm_t comm, cudaStream_t stream, Report& report) {
    const size_t most = 64 << 20;
    PutWindow out(comm, most), in(comm, most);
    auto* a = reinterpret_cast<uint64_t*>(out.values());
    auto* b = reinterpret_cast<uint64_t*>(in.values());
    unsigned long long* wrong = nullptr;
    CUDA(cudaMalloc(&wrong, 8));
    CUDA(cudaMemset(wrong, 0, 8));
    const int other = 1 - job.rank;
    std::vector<ncclWaitSignalDesc_t> signal = {{1, other, 0, 0}};
    unsigned long long seed = 0, bad = 0;
    for (size_t bytes : {8ul, 64ul, 512ul, 4096ul, 32768ul, 262144ul, 2097152ul, 16777216ul, 67108864ul}) {
        for (int in_graph : {0, 20}) {
            const auto ping = [&] {
                if (job.rank == 1) in.wait(signal, stream);
                in.put(a, bytes, other, 0, stream);
                if (job.rank == 0) in.wait(signal, stream);
            };
            std::unique_ptr<Graph> graph;
            if (in_graph > 0) {
                graph = std::make_unique<Graph>(stream, [&] {
                    for (int k = 0; k < in_graph; ++k) ping();
                });
                job.barrier();
            }
            Timed timed;
            timed.per_unit = std::max(in_graph, 1);
            timed.units = (bytes <= 262144 ? 100 : 20) / timed.per_unit;
            timed.prepare = [&] {
                ++seed;
                write_words<<<64, 256, 0, stream>>>(a, bytes / 8, seed);
                CUDA(cudaMemsetAsync(b, 0, bytes, stream));
                CUDA(cudaStreamSynchronize(stream));
                job.barrier();
            };
            timed.unit = [&] {
                if (graph) graph->launch(stream);
                else ping();
            };
            timed.check = [&] {
                check_words<<<64, 256, 0, stream>>>(b, bytes / 8, seed, wrong);
                CUDA(cudaMemcpyAsync(&bad, wrong, 8, cudaMemcpyDeviceToHost, stream));
                CUDA(cudaStreamSynchronize(stream));
                return bad == 0;
            };
            Row row = time_rounds(job, options, stream, timed);
            row.row = std::string("put_signal and wait_signal, one way") + (graph ? ", graph of 20" : "");
            for (double* t : {&row.us, &row.least, &row.most}) *t /= 2;
            row.more = {{"bytes", static_cast<double>(bytes)}, {"gbps", bytes / row.us * 1e-3}};
            report.add(row);
        }
    }
    CUDA(cudaFree(wrong));
}
#endif
