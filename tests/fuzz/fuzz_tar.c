/* fuzz_tar.c - arbitrary bytes as a tar archive: the index, and every entry that it lists. */
#include "runtime/data/tar.h"
#include "tests/fuzz/memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool keep_some(const char *name) { return name[0] % 2; }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    memory_file file = memory_file_open(data, size);
    diag *d = diag_new(NULL, NULL);
    rt_tar tar = {0};
    bool opened = d && rt_tar_open(file.path, keep_some, d, &tar) == AMPC_OK;
    if (d && !opened && diag_count(d, DIAG_ERROR) != 1) abort();
    for (size_t i = 0; i < tar.count; i++) {
        void *bytes = NULL;
        if (tar.entries[i].size <= 1 << 20 && rt_tar_read(&tar, i, d, &bytes) == AMPC_OK && !bytes) abort();
        free(bytes);
    }
    rt_tar_clear(&tar);
    diag_free(d);
    memory_file_close(&file);
    return 0;
}
