/* fuzz_ir.c - arbitrary bytes as the text of a module. Whatever parses must print to text that parses and
 * prints identically, and the verifier must terminate. */
#include "ir/graph/ir.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void round_trip(const ir_module *m, arena *a, diag *d)
{
    const char *first = ir_print(m, a);
    ir_module *again = NULL;
    if (ir_parse(first, strlen(first), "again.ir", d, &again) != AMPC_OK) abort();
    if (strcmp(first, ir_print(again, a)) != 0) abort();
    ir_module_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    arena *a = arena_new(0);
    diag *d = diag_new(NULL, NULL);
    ir_module *m = NULL;
    jmp_buf guard;
    if (a && d && !setjmp(guard)) {
        arena_set_guard(a, &guard);
        if (ir_parse((const char *)data, size, "fuzz.ir", d, &m) == AMPC_OK) {
            round_trip(m, a, d);
            (void)ir_verify(m, d);
        }
    }
    ir_module_free(m);
    diag_free(d);
    arena_free(a);
    return 0;
}
