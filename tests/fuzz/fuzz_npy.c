/* fuzz_npy.c - arbitrary bytes as a .npy file. Writing what was read and reading it again must yield the same array. */

#include "tests/data.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void round_trip(const rt_array *a, diag *d)
{
    unsigned char *bytes = malloc(RT_NPY_HEADER_MAX + a->bytes);
    rt_array again = {0};
    if (!bytes) return;
    size_t head = rt_npy_header(a, bytes);
    memcpy(bytes + head, a->data, a->bytes);
    if (npy_parse("again", bytes, head + a->bytes, IR_bf16, d, &again) != AMPC_OK) abort();
    if (again.rank != a->rank || again.bytes != a->bytes) abort();
    if (memcmp(again.data, a->data, a->bytes) != 0) abort();
    rt_array_clear(&again);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    rt_array a = {0};
    diag *d = diag_new(NULL, NULL);
    if (d && npy_parse("fuzz", data, size, IR_bf16, d, &a) == AMPC_OK) round_trip(&a, d);
    rt_array_clear(&a);
    diag_free(d);
    return 0;
}
