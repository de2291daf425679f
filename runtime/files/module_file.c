/* module_file.c - writes the text and the weights of a module as one transaction. */
#include "runtime/files/module_file.h"

#include "runtime/backend/alloc.h"
#include "runtime/files/atomic_file.h"
#include "runtime/backend/memory.h"
#include "runtime/files/weights.h"

#include <string.h>

/* The previous location of the module's weights. */
typedef struct origin {
    const char *path, *hash;
    ir_data *data; /* indexed by storage */
} origin;

static bool origin_keep(const ir_module *m, origin *o)
{
    *o = (origin){m->weights_path, m->weights_hash, rt_alloc(m->storage.count + 1, sizeof *o->data)};
    for (size_t i = 0; o->data && i < m->storage.count; i++) o->data[i] = m->storage.items[i]->data;
    return o->data != NULL;
}

static void origin_restore(ir_module *m, const origin *o)
{
    m->weights_path = o->path;
    m->weights_hash = o->hash;
    for (size_t i = 0; i < m->storage.count; i++) m->storage.items[i]->data = o->data[i];
}

static ampc_status write_text(const ir_module *m, rt_atomic_file *f, diag *d)
{
    jmp_buf guard;
    arena *a = arena_new(0);
    if (!a) return rt_no_memory(d);
    if (setjmp(guard)) {
        arena_free(a);
        return rt_no_memory(d);
    }
    arena_set_guard(a, &guard);
    const char *text = ir_print_sealed(m, a);
    ampc_status s = rt_atomic_write(f, text, strlen(text));
    arena_free(a);
    return s;
}

static ampc_status write_both(ir_module *m, const char *dir, rt_atomic_file *text, const char *weights, bool refer,
                              diag *d)
{
    rt_atomic_file *sidecar = NULL;
    ampc_status s = rt_weights_write(m, dir, weights, refer, d, &sidecar);
    if (s == AMPC_OK) s = write_text(m, text, d);
    if (s == AMPC_OK) return rt_atomic_commit_both(sidecar, text);
    rt_atomic_abort(sidecar);
    rt_atomic_abort(text);
    return s;
}

ampc_status rt_module_save(ir_module *m, const char *dir, const char *path, const char *weights, bool refer, diag *d)
{
    origin before;
    rt_atomic_file *text;
    TRY(rt_atomic_open(path, d, &text)); /* first, so that a bad path is reported before any work */
    if (!origin_keep(m, &before)) {
        rt_atomic_abort(text);
        return rt_no_memory(d);
    }
    ampc_status s = write_both(m, dir, text, weights, refer, d);
    if (s != AMPC_OK) origin_restore(m, &before);
    rt_free(before.data);
    return s;
}
