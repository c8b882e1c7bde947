// Where the variables lie that blocks of the batch kernel share: the library's own of each thread, in one piece.
//
// To be included before the kernel, whose machine redefines words that this header uses.
#pragma once

#include <link.h>

struct Shared {
    unsigned char *at;
    unsigned long long bytes;
};

// The piece of the library in which this lies; nothing if it has none, or the calling thread has not touched it.
static inline Shared find_shared(const void *here) {
    struct Search {
        unsigned long long here;
        Shared found;
    } search = {(unsigned long long)here, {}};
    auto look = [](dl_phdr_info *info, size_t, void *data) {
        auto &search = *(Search *)data;
        bool ours = false;
        for (int i = 0; i < info->dlpi_phnum; i++) {
            const auto &part = info->dlpi_phdr[i];
            const unsigned long long at = info->dlpi_addr + part.p_vaddr;
            ours |= part.p_type == PT_LOAD && search.here >= at && search.here < at + part.p_memsz;
        }
        for (int i = 0; ours && i < info->dlpi_phnum; i++)
            if (info->dlpi_phdr[i].p_type == PT_TLS) search.found = {(unsigned char *)info->dlpi_tls_data, info->dlpi_phdr[i].p_memsz};
        return (int)ours;
    };
    dl_iterate_phdr(look, &search);
    return search.found;
}
