/* compile.c - loads what the options name, before the first pass runs. */
#include "passes/amp/consumer.h"
#include "passes/amp/device.h"

static bool places(const compile_options *o)
{
    return (o->placement == PASS_MINCUT || o->budget) && (o->level == PASS_O1 || o->level == PASS_O2);
}

ampc_status compile_load(const compile_options *o, arena *a, diag *d, compile **out)
{
    compile *c = arena_alloc(a, sizeof *c);
    amp_list *list;
    *c = (compile){.options = o, .arena = a, .diag = d};
    *out = c;
    TRY(amp_list_load(o, a, d, &list));
    c->list = list;
    c->scaling = scaling_resolve(o, list->scaling);
    if (o->consumer && o->plain_runtime) {
        TRY(consumer_load(o->consumer, a, d, &c->consumer));
        c->device = o->level == PASS_O1 || o->level == PASS_O2 ? &device_casts : NULL;
    }
    return places(o) ? device_load(o->target, a, d, &c->device) : AMPC_OK;
}

ampc_status compile_distribute(ir_module *m, const compile_options *o, diag *d)
{
    compile_options asked = *o;
    asked.distribute = true;
    arena *a = arena_new(0);
    jmp_buf guard;
    compile *c;
    if (!a || setjmp(guard)) {
        arena_free(a);
        return diag_error(d, AMPC_NO_MEMORY, DIAG_NOWHERE, "out of memory");
    }
    arena_set_guard(a, &guard);
    ampc_status status = compile_load(&asked, a, d, &c);
    if (status == AMPC_OK) status = pass_run(m, "distribute", c);
    arena_free(a);
    return status;
}
