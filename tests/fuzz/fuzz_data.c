/* fuzz_data.c - arbitrary bytes as the SPEC of a data set. Only the parser runs: a path in the bytes is not opened. */
#include "runtime/data/kinds.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    rt_data_spec spec = {0};
    diag *d = diag_new(NULL, NULL);
    char *text = malloc(size + 1);
    if (!d || !text) abort();
    memcpy(text, data, size);
    text[size] = 0;
    ampc_status s = rt_kinds_parse(text, d, &spec);
    if ((s == AMPC_OK) != (diag_count(d, DIAG_ERROR) == 0)) abort();
    if (s == AMPC_OK && spec.o.validation >= 1) abort();
    rt_data_spec_clear(&spec);
    free(text);
    diag_free(d);
    return 0;
}
