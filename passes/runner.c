/* runner.c - the pass table, and the pipeline that runs the passes over a module. */
#include "ir/base/pipeline.h"
#include "passes/pass.h"
#include "passes/train/distribution.h"

#include <string.h>

enum { NETWORK, TRAINING, CLEANUP };

const pass_info pass_table[] = {
#define PASS(name, function, part, needs, sentence) {#name, sentence, function, part == TRAINING},
#include "passes/passes.def"
#undef PASS
    {NULL, NULL, NULL, false},
};

/* ---- pass order: a pass has a higher number than the passes it needs --------------------------- */

enum {
#define PASS(name, function, part, needs, sentence) NUMBER_##name,
#include "passes/passes.def"
#undef PASS
};

#define AFTER(name) (1u << NUMBER_##name)
#define PASS(name, function, part, needs, sentence) PIPELINE_CHECK_ORDER(name, NUMBER_##name, needs);
#include "passes/passes.def"
#undef PASS
#undef AFTER

/* ---- the pipeline -------------------------------------------------------------------------------- */

typedef struct subject {
    ir_module *module;
    compile *compile;
} subject;

static ampc_status run_pass(void *user, int number)
{
    const subject *s = user;
    TRY(pass_table[number].run(s->module, s->compile));
    for (ir_graph *g = ir_first_graph(s->module); g; g = ir_next_graph(g)) {
        ir_captures_order(g);
        ir_graph_renumber(g);
    }
    return AMPC_OK;
}

static ampc_status verify(void *user, const char *name)
{
    const subject *s = user;
    (void)name;
    return ir_verify(s->module, s->compile->diag);
}

static const char *print(void *user, arena *a)
{
    const subject *s = user;
    return ir_print(s->module, a);
}

static ampc_status round_trip(void *user, const char *name, arena *a)
{
    const subject *s = user;
    diag *d = s->compile->diag;
    const char *first = ir_print(s->module, a);
    ir_module *copy = NULL;
    TRY(ir_parse(first, strlen(first), name, d, &copy));
    bool same = strcmp(first, ir_print(copy, a)) == 0;
    ir_module_free(copy);
    return same ? AMPC_OK : diag_error(d, AMPC_REJECTED, DIAG_NOWHERE, "pass %s: text does not round-trip", name);
}

static ampc_status run_step(ir_module *m, int number, compile *c, arena *scratch)
{
    subject s = {m, c};
    pipeline_options options = c->options->pipeline;
    options.dumps = options.times = c->report.text;
    const pipeline p = {.options = &options,
                        .subject = &s,
                        .run = run_pass,
                        .verify = verify,
                        .print = print,
                        .round_trip = round_trip,
                        .extension = "ir",
                        .title = {"# after ", "\n", ""},
                        .diag = c->diag};
    return pipeline_run_step(&p, number, pass_table[number].name, scratch);
}

/* Sets the arena guards for the duration of the pass: a failed allocation returns here. */
static ampc_status run_guarded(ir_module *m, int number, compile *c)
{
    jmp_buf guard, *outer = arena_set_guard(c->arena, &guard);
    arena *volatile scratch = NULL;
    volatile ampc_status status = AMPC_NO_MEMORY;
    if (setjmp(guard) == 0) {
        arena_set_guard(m->arena, &guard);
        scratch = pass_scratch_new(m);
        status = run_step(m, number, c, scratch);
    }
    arena_free(scratch);
    arena_set_guard(m->arena, NULL);
    arena_set_guard(c->arena, outer);
    if (status == AMPC_NO_MEMORY && diag_status(c->diag) == AMPC_OK)
        return diag_error(c->diag, status, DIAG_NOWHERE, "out of memory in pass %s", pass_table[number].name);
    return status;
}

ampc_status pass_run(ir_module *m, const char *name, compile *c)
{
    for (int i = 0; pass_table[i].name; i++)
        if (strcmp(pass_table[i].name, name) == 0) return run_guarded(m, i, c);
    return diag_error(c->diag, AMPC_USAGE, DIAG_NOWHERE, "unknown pass '%s'", name);
}

/* A model with updates of its own is rejected: the training passes could not tell them from theirs. */
static ampc_status check_network(const ir_module *m, diag *d)
{
    const ir_graph *g = ir_graph_by_role(m, IR_GRAPH_forward);
    for (const ir_node *n = g ? g->first : NULL; n; n = n->next)
        if (ir_op_get(n->op)->traits & IR_COMMITS)
            return diag_error(d, AMPC_REJECTED, ir_diag_loc(n),
                              "the op belongs to a training step, @forward is a network");
    return AMPC_OK;
}

/* --explain=distribution is about a copy for several ranks; the module itself is for any number of them. */
static ampc_status explain_distribution(const ir_module *m, compile *c)
{
    compile_options options = *c->options;
    options.distribute = true;
    compile with = *c;
    with.options = &options;
    const char *text = ir_print(m, c->arena);
    ir_module *copy = NULL;
    TRY(ir_parse(text, strlen(text), "distribution", c->diag, &copy));
    ampc_status status = run_guarded(copy, NUMBER_distribute, &with);
    if (status == AMPC_OK) status = distribution_explain(copy, c, c->arena);
    ir_module_free(copy);
    return status;
}

ampc_status compile_module(ir_module *m, compile *c)
{
    TRY(check_network(m, c->diag));
    for (int i = 0; pass_table[i].name; i++)
        if (!c->options->draws || !pass_table[i].trains) TRY(run_guarded(m, i, c));
    if (!c->options->fuse) m->training.unfused = true;
    if (!c->options->pipeline.verify_each) TRY(ir_verify(m, c->diag));
    return pass_explains(c->options) == EXPLAINS_DISTRIBUTION ? explain_distribution(m, c) : AMPC_OK;
}
