/* casts.c - for each value id, a list of its casts. */
#include "passes/amp/casts.h"

typedef struct cast_entry {
    cast_kind kind;
    ir_value *cast;
    struct cast_entry *next;
} cast_entry;

struct cast_table {
    arena *arena;
    VEC(cast_entry *) by_value;
};

cast_table *casts_new(arena *a)
{
    cast_table *t = arena_alloc(a, sizeof *t);
    t->arena = a;
    return t;
}

ir_value *casts_find(const cast_table *t, const ir_value *v, cast_kind kind)
{
    const cast_entry *e = v->id < t->by_value.count ? t->by_value.items[v->id] : NULL;
    while (e && (e->kind.to != kind.to || e->kind.attribute != kind.attribute || e->kind.limit != kind.limit))
        e = e->next;
    return e ? e->cast : NULL;
}

void casts_add(cast_table *t, const ir_value *v, cast_kind kind, ir_value *cast)
{
    while (t->by_value.count <= v->id) vec_push(t->arena, &t->by_value, NULL);
    cast_entry *e = arena_alloc(t->arena, sizeof *e);
    *e = (cast_entry){kind, cast, t->by_value.items[v->id]};
    t->by_value.items[v->id] = e;
}
