/* fuzz_idx.c - arbitrary bytes as an IDX file, plain or gzipped. */
#include "runtime/data/idx.h"
#include "tests/fuzz/memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    memory_file file = memory_file_open(data, size);
    diag *d = diag_new(NULL, NULL);
    for (int rank = 1; d && rank <= 3; rank += 2) {
        rt_array a = {0};
        if (rt_idx_read(file.path, rank, d, &a) == AMPC_OK && (a.rank != rank || !a.data)) abort();
        rt_array_clear(&a);
    }
    diag_free(d);
    memory_file_close(&file);
    return 0;
}
