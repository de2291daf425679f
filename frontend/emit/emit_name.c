/* emit_name.c - names of values: names in use and names of shared values; also messages about a node. */
#include "frontend/emit/emit.h"

#include <stdarg.h>

static const char *key_of(emitter *e, const ir_node *n) { return arena_printf(e->arena, "%p", (const void *)n); }

bool emit_is_own(emitter *e, const ir_node *n) { return e->own && n && strmap_get(e->own, key_of(e, n)); }

bool emit_inexact(emitter *e)
{
    if (!e->own || !e->node || emit_is_own(e, e->node)) return false;
    strmap_put(e->own, key_of(e, e->node), e);
    e->changed = true;
    return true;
}

void emit_refuse(emitter *e, const ir_node *n, const char *format, ...)
{
    va_list args;
    if (emit_inexact(e)) return;
    va_start(args, format);
    diag_verror(e->diag, AMPC_UNSUPPORTED, ir_diag_loc(n), format, args);
    va_end(args);
}

void emit_refuse_training(emitter *e, const ir_node *n, const char *format, ...)
{
    va_list args;
    if (emit_inexact(e)) return;
    va_start(args, format);
    diag_verror(e->diag, AMPC_UNSUPPORTED, DIAG_USE(ir_diag_loc(n), OPTION_mode, .value = "eval"), format, args);
    va_end(args);
}

const char *emit_made(const emitter *e, const char *key)
{
    const char *name = NULL;
    for (const emit_scope *s = e->scope; s && !name; s = s->outer) name = strmap_get(s->made, key);
    return name;
}

void emit_make(emitter *e, const char *key, const char *name)
{
    strmap_put(e->scope->made, key, (void *)(uintptr_t)name);
}

const char *emit_name(emitter *e, const char *base)
{
    const char *name = base;
    for (int k = 1; strmap_get(e->names, name); k++) name = arena_printf(e->arena, "%s.%d", base, k);
    strmap_put(e->names, name, e);
    return name;
}
