/* fuzz_calibration.c - arbitrary bytes as a file of statistics, of which all that a report shows is computed. */
#include "runtime/inspect/calibration.h"
#include "tests/fuzz/memory_file.h"

#include <setjmp.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_shares(const rt_calibration *c, const rt_calibrated *r)
{
    const int shift = rt_calibration_shift(c, r->kind);
    const ir_exponents *e = &r->numbers;
    const ir_exponent_shares s = ir_exponents_in(e, IR_f16, shift), b = ir_exponents_in(e, IR_bf16, shift);
    if (ir_exponents_finite(e) < e->zero || e->large < 0 || e->large > e->count) abort();
    if (!(s.above >= 0 && s.above < 1.001 && s.below_normal < 1.001 && b.above < 1.001)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    memory_file file = memory_file_open(data, size);
    arena *a = arena_new(0);
    diag *d = diag_new(NULL, NULL);
    rt_calibration c;
    jmp_buf guard;
    if (a && d && !setjmp(guard)) {
        arena_set_guard(a, &guard);
        const ampc_status status = rt_calibration_read(file.path, a, d, &c);
        if (status != diag_status(d)) abort();
        for (size_t i = 0; status == AMPC_OK && i < c.tensors.count; i++) read_shares(&c, c.tensors.items[i]);
    }
    diag_free(d);
    arena_free(a);
    memory_file_close(&file);
    return 0;
}
