/* fuzz_list.c - arbitrary bytes as a list file. If it loads, the effective list written from it must load
 * again and have the same effect. */
#include "passes/passes.h"
#include "tests/fuzz/memory_file.h"

#include <setjmp.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *effective(const char *text, size_t size, diag *d, arena *a)
{
    memory_file file = memory_file_open((const uint8_t *)text, size);
    compile_options o = compile_options_default();
    const char *path = file.path;
    o.lists = (pass_strings){&path, 1};
    compile *c;
    const char *printed = compile_load(&o, a, d, &c) == AMPC_OK ? pass_print_list(c, a) : NULL;
    memory_file_close(&file);
    return printed;
}

static void round_trip(const uint8_t *data, size_t size, diag *d, arena *a)
{
    const char *first = effective((const char *)data, size, d, a);
    if (!first) {
        if (diag_status(d) == AMPC_OK) abort(); /* rejected without a message */
        return;
    }
    const char *second = effective(first, strlen(first), d, a);
    if (!second || strcmp(first, second) != 0) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    arena *a = arena_new(0);
    diag *d = diag_new(NULL, NULL);
    jmp_buf guard;
    if (a && d && !setjmp(guard)) {
        arena_set_guard(a, &guard);
        round_trip(data, size, d, a);
    }
    diag_free(d);
    arena_free(a);
    return 0;
}
