/* fuzz_npz.c - arbitrary bytes as a .npz file. */
#include "runtime/data/npz.h"
#include "tests/fuzz/memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    memory_file file = memory_file_open(data, size);
    diag *d = diag_new(NULL, NULL);
    rt_arrays all = {0};
    if (d && rt_npz_read(file.path, IR_bf16, d, &all) == AMPC_OK)
        for (size_t i = 0; i < all.count; i++)
            if (!all.items[i].name || !all.items[i].data) abort();
    rt_arrays_clear(&all);
    diag_free(d);
    memory_file_close(&file);
    return 0;
}
