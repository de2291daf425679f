/* fuzz_safetensors.c - arbitrary bytes as a .safetensors file, read completely without and with its hashes. */
#include "runtime/files/safetensors.h"
#include "tests/fuzz/memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Every tensor must fit into the file of that size. */
static void read_all(const rt_safetensors *f, size_t size)
{
    unsigned char *bytes = malloc(size + 1);
    for (size_t i = 0; bytes && i < rt_safetensors_count(f); i++) {
        const rt_tensor_entry *e = rt_safetensors_entry(f, i);
        if (e->bytes > size || e->offset > size - e->bytes) abort();
        if (rt_safetensors_find(f, e->name) != e) abort();
        (void)rt_safetensors_read(f, e, bytes);
    }
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    memory_file file = memory_file_open(data, size);
    diag *d = diag_new(NULL, NULL);
    for (int verify = RT_VERIFY_NONE; d && verify <= RT_VERIFY_ALL; verify++) {
        rt_safetensors *f = NULL;
        if (rt_safetensors_open(file.path, (rt_verify)verify, d, &f) == AMPC_OK) read_all(f, size);
        rt_safetensors_close(f);
    }
    diag_free(d);
    memory_file_close(&file);
    return 0;
}
