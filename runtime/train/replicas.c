/* replicas.c - copies the state of a training to all ranks, and compares it; see the header. */
#include "runtime/train/replicas.h"

#include "runtime/backend/memory.h"
#include "runtime/inspect/numbers.h"
#include "runtime/plan/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { SAMPLES = 4 };

/* ---- copying ---- */

static ampc_status copy_storage(rt_team *p, rt_session *s, int i, diag *d)
{
    rt_tensor t;
    ir_storage_kind kind;
    rt_session_storage_at(s, i, &t, &kind);
    if (kind == IR_CONST || rt_session_is_derived(s, i)) return AMPC_OK;
    if (rt_session_is_shard(s, i)) return rt_session_share_whole(s, i, d);
    TRY(rt_session_read(s, i, d, &t));
    const size_t bytes = (size_t)rt_tensor_count(&t) * ir_dtype_size(t.dtype);
    if (rt_team_first(p)) return rt_team_copy(p, t.data, bytes, d);
    void *received = malloc(bytes + 1);
    if (!received) return rt_no_memory(d);
    ampc_status status = rt_team_copy(p, received, bytes, d);
    if (status == AMPC_OK) status = rt_session_write(s, i, received, d);
    free(received);
    return status;
}

ampc_status rt_replicas_copy(rt_team *p, rt_session *s, rt_run_state *run, diag *d)
{
    if (!p) return AMPC_OK;
    TRY(rt_team_copy(p, run, sizeof *run, d));
    for (int i = 0; i < rt_session_storage_count(s); i++) TRY(copy_storage(p, s, i, d));
    return AMPC_OK;
}

/* ---- comparing ---- */

typedef struct facts {
    arena *arena;
    VEC(rt_team_fact) list;
} facts;

static void add_fact(facts *f, const char *name, const char *value)
{
    vec_push(f->arena, &f->list, ((rt_team_fact){name, value}));
}

static const char *print_hash(facts *f, const void *data, size_t bytes)
{
    return arena_printf(f->arena, "%016" PRIx64, (uint64_t)XXH3_64bits(data, bytes));
}

static ampc_status add_storage(facts *f, rt_session *s, diag *d)
{
    for (int i = 0; i < rt_session_storage_count(s); i++) {
        rt_tensor t;
        if (rt_session_is_shard(s, i)) continue;
        TRY(rt_session_read(s, i, d, &t));
        add_fact(f, arena_printf(f->arena, "the hash of '%s'", t.name),
                 print_hash(f, t.data, (size_t)rt_tensor_count(&t) * ir_dtype_size(t.dtype)));
    }
    return AMPC_OK;
}

static ampc_status add_field(facts *f, rt_dataset *data, size_t i, const uint32_t *rows, int64_t n, const rt_draw *draw,
                             diag *d)
{
    const rt_field *field = rt_dataset_field(data, i);
    const size_t bytes = (size_t)rt_field_elements(field) * ir_dtype_size(field->dtype) *
                         (size_t)(field->whole ? 1 : n);
    char *shape = arena_printf(f->arena, "%s", ir_dtype_name(field->dtype));
    for (int k = 0; k < field->rank; k++) shape = arena_printf(f->arena, "%s %" PRId64, shape, field->dims[k]);
    add_fact(f, arena_printf(f->arena, "field '%s' of the data", field->name), shape);
    void *samples = arena_alloc(f->arena, bytes + 1);
    TRY(rt_dataset_read(data, rows, n, draw, i, samples, field->dtype, d));
    add_fact(f, arena_printf(f->arena, "the hash of the first samples of '%s'", field->name),
             print_hash(f, samples, bytes));
    return AMPC_OK;
}

static ampc_status add_data(facts *f, rt_dataset *data, uint64_t seed, diag *d)
{
    uint32_t rows[SAMPLES];
    const int64_t all = rt_dataset_rows(data), n = all < SAMPLES ? all : SAMPLES;
    const rt_draw draw = {seed, 0};
    add_fact(f, "the number of samples", arena_printf(f->arena, "%" PRId64, all));
    TRY(rt_dataset_order(data, &(rt_position){.seed = seed}, n, 0, n, rows, d));
    for (size_t i = 0; i < rt_dataset_field_count(data); i++) TRY(add_field(f, data, i, rows, n, &draw, d));
    return AMPC_OK;
}

static ampc_status find_facts(facts *f, rt_session *s, rt_dataset *data, uint64_t seed, diag *d)
{
    jmp_buf guard;
    if (setjmp(guard)) return rt_no_memory(d);
    arena_set_guard(f->arena, &guard);
    ampc_status status = add_data(f, data, seed, d);
    return status == AMPC_OK ? add_storage(f, s, d) : status;
}

ampc_status rt_replicas_compare(rt_team *p, rt_session *s, rt_dataset *data, uint64_t seed, diag *d)
{
    if (!p) return AMPC_OK;
    facts f = {.arena = arena_new(0)};
    ampc_status status = f.arena ? find_facts(&f, s, data, seed, d) : rt_no_memory(d);
    status = rt_team_agree(p, status, NULL, d);
    if (status == AMPC_OK) status = rt_team_compare(p, f.list.items, f.list.count, d);
    arena_free(f.arena);
    return status;
}

/* ---- the plan ---- */

static void add_collective(facts *f, const rt_step *s, int number)
{
    int64_t n = 0;
    const char *order = "";
    for (int i = 0; i < s->n_in; i++) {
        n += k_count(&s->in[i]);
        order = arena_printf(f->arena, "%s %" PRId64, order, k_count(&s->in[i]));
    }
    const char *name = arena_printf(f->arena, "collective %d of '%s'", number, s->node->graph->name);
    add_fact(f, name,
             arena_printf(f->arena, "%s of %" PRId64 " elements in %s (hash %s)", ir_op_get(s->op)->name, n,
                          ir_dtype_name(s->in[0].dtype), print_hash(f, order, strlen(order))));
}

static void add_collectives(facts *f, const rt_session *s)
{
    const rt_plan *plan;
    int number = 0;
    for (int part = 0; (plan = rt_session_planned(s, part)); part++)
        for (const rt_step *step = plan->first_step; step; step = step->next)
            if (ir_op_has(step->op, IR_COLLECTIVE)) add_collective(f, step, ++number);
}

static ampc_status add_plans(facts *f, rt_session *s, const ir_graph *g, const rt_tensor *inputs, int n, diag *d)
{
    jmp_buf guard;
    const rt_plan *plan;
    if (setjmp(guard)) return rt_no_memory(d);
    arena_set_guard(f->arena, &guard);
    TRY(rt_session_plan(s, g->name, inputs, n, NULL, d, &plan));
    add_collectives(f, s);
    return AMPC_OK;
}

ampc_status rt_replicas_compare_plans(rt_team *p, rt_session *s, const ir_graph *g, const rt_tensor *inputs, int n,
                                      diag *d)
{
    if (!p || !g) return AMPC_OK;
    facts f = {.arena = arena_new(0)};
    ampc_status status = f.arena ? add_plans(&f, s, g, inputs, n, d) : rt_no_memory(d);
    status = rt_team_agree(p, status, NULL, d);
    if (status == AMPC_OK) status = rt_team_compare(p, f.list.items, f.list.count, d);
    arena_free(f.arena);
    return status;
}
