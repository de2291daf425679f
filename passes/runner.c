/* runner.c - the table of passes, and the one way to run one: time, run, verify, dump, round-trip. */
#include "ir/write_guard.h"
#include "passes/pass.h"

#include <assert.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

const pass_info pass_table[] = {
    {"params", "choose the trained parameters (--train, --freeze), re-initialise them (--init)", pass_params},
    {"mode", "make @infer, @eval and @train from @forward", pass_mode_graphs},
    {"loss", "append the loss, or take the one in the graph", pass_loss},
    {"patterns", "recognise operators that the model writes out in smaller ones", pass_patterns},
    {"amp", "colour every float node and insert the casts that the colours need", pass_amp},
    {"masters", "train parameters of a low type as f32", pass_masters},
    {"scale_loss", "add the loss-scale state", pass_scale_loss},
    {"autodiff", "append the backward of @train", pass_autodiff},
    {"entries", "make @grad and @train_step from @train", pass_entries},
    {"unscale", "check the gradients for infinities, unscale them, update the loss scale", pass_unscale},
    {"optimizer", "append the parameter updates; every other state moves only with an accepted step", pass_optimizer},
    {"fold_casts", "let an op write the type that its cast asks for; drop casts that change nothing", pass_fold_casts},
    {"cse", "merge equal nodes", pass_cse},
    {"dce", "remove nodes that nothing reads", pass_dce},
    {NULL, NULL, NULL},
};

arena *pass_scratch_new(ir_module *m)
{
    arena *a = arena_new(0);
    if (!a) return NULL;
    jmp_buf *guard = arena_set_guard(m->arena, NULL);
    arena_set_guard(m->arena, guard);
    arena_set_guard(a, guard);
    return a;
}

bool pass_match(const pass_strings *globs, const char *name)
{
    for (int i = 0; i < globs->count; i++)
        if (fnmatch(globs->items[i], name, 0) == 0) return true;
    return false;
}

bool pass_next_option(const char **text, arena *a, const char **key, const char **value)
{
    if (!*text || !**text) return false;
    size_t length = strcspn(*text, ",");
    char *part = arena_strndup(a, *text, length);
    *text += length + ((*text)[length] == ',');
    char *equals = strchr(part, '=');
    if (equals) *equals = '\0';
    *key = part;
    *value = equals ? equals + 1 : NULL;
    return true;
}

#ifdef NDEBUG
enum { VERIFY_EACH = false };
#else
enum { VERIFY_EACH = true };
#endif

pass_options pass_options_default(void)
{
    return (pass_options){.level = PASS_O1,
                          .low = IR_f16,
                          .keep_io_types = true,
                          .init = "file",
                          .fuse = true,
                          .verify_each = VERIFY_EACH};
}

/* ---- running one pass ------------------------------------------------------------------------ */

static void say(const pass_options *o, const char *text)
{
    if (o->text_out) o->text_out(o->text_user, text);
}

static ampc_status round_trip(const ir_module *m, const char *name, diag *d, arena *scratch)
{
    const char *first = ir_print(m, scratch);
    ir_module *copy = NULL;
    TRY(ir_parse(first, strlen(first), name, d, &copy));
    const char *second = ir_print(copy, scratch);
    bool same = strcmp(first, second) == 0;
    ir_module_free(copy);
    return same ? AMPC_OK : diag_error(d, AMPC_REJECTED, DIAG_NOWHERE, "pass %s: text does not round-trip", name);
}

static ampc_status write_dump(const char *dir, int number, const char *name, const char *text, diag *d, arena *a)
{
    const char *path = arena_printf(a, "%s/%02d-%s.ir", dir, number, name);
    FILE *f = fopen(path, "w");
    if (!f) return diag_errno(d, DIAG_FILE(path), "cannot write");
    write_guard guard = write_guard_begin();
    bool ok = fputs(text, f) >= 0;
    ok &= fclose(f) == 0;
    write_guard_end(&guard);
    return ok ? AMPC_OK : diag_error(d, AMPC_IO, DIAG_FILE(path), "write failed");
}

static ampc_status dump(const ir_module *m, const pass_options *o, const pass_info *p, const char *before, diag *d,
                        arena *scratch)
{
    bool named = o->dump_after && (strcmp(o->dump_after, "all") == 0 || strcmp(o->dump_after, p->name) == 0);
    if (!named && !o->dump_changed) return AMPC_OK;
    const char *text = ir_print(m, scratch);
    if (!named && before && strcmp(before, text) == 0) return AMPC_OK;
    if (o->dump_dir) return write_dump(o->dump_dir, (int)(p - pass_table) + 1, p->name, text, d, scratch);
    say(o, arena_printf(scratch, "# after %s\n%s", p->name, text));
    return AMPC_OK;
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static ampc_status run_checked(ir_module *m, const pass_info *p, const pass_options *o, diag *d, arena *scratch)
{
    const char *before = o->dump_changed ? ir_print(m, scratch) : NULL;
    double start = seconds();
    TRY(p->run(m, o, d));
    double ran = seconds();
    for (size_t i = 0; i < m->graphs.count; i++) ir_graph_renumber(m->graphs.items[i]);
    if (o->verify_each) TRY(ir_verify(m, d));
    if (o->timing)
        say(o, arena_printf(scratch, "%-12s %8.2f ms  verify %8.2f ms\n", p->name, (ran - start) * 1e3,
                            (seconds() - ran) * 1e3));
    TRY(dump(m, o, p, before, d, scratch));
    return o->roundtrip_each ? round_trip(m, p->name, d, scratch) : AMPC_OK;
}

/* The module's arena gets a guard for the time of the pass: a failed allocation lands here. */
static ampc_status run_guarded(ir_module *m, const pass_info *p, const pass_options *o, diag *d)
{
    jmp_buf guard;
    arena *volatile scratch = NULL;
    volatile ampc_status status = AMPC_NO_MEMORY;
    if (setjmp(guard) == 0) {
        arena_set_guard(m->arena, &guard);
        scratch = pass_scratch_new(m);
        if (scratch) status = run_checked(m, p, o, d, scratch);
    }
    arena_free(scratch);
    arena_set_guard(m->arena, NULL);
    return status;
}

ampc_status pass_run(ir_module *m, const char *name, const pass_options *o, diag *d)
{
    const pass_info *p = pass_table;
    while (p->name && strcmp(p->name, name) != 0) p++;
    if (!p->name) return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "unknown pass '%s'", name);
    ampc_status status = run_guarded(m, p, o, d);
    if (status == AMPC_NO_MEMORY && diag_status(d) == AMPC_OK)
        return diag_error(d, status, DIAG_NOWHERE, "out of memory in pass %s", name);
    return status;
}

static bool makes_backward(const pass_info *p)
{
    return p->run == pass_masters || p->run == pass_scale_loss || p->run == pass_autodiff || p->run == pass_entries ||
           p->run == pass_unscale || p->run == pass_optimizer;
}

/* The passes that make a training step cannot tell updates that a graph brings along from their own. */
static ampc_status check_network(const ir_module *m, diag *d)
{
    const ir_graph *g = ir_graph_find(m, "forward");
    for (const ir_node *n = g ? g->first : NULL; n; n = n->next)
        if (ir_op_get(n->op)->traits & IR_COMMITS)
            return diag_error(d, AMPC_REJECTED, ir_diag_loc(n),
                              "the op belongs to a training step, @forward is a network");
    return AMPC_OK;
}

ampc_status pass_compile(ir_module *m, const pass_options *o, diag *d)
{
    TRY(check_network(m, d));
    for (const pass_info *p = pass_table; p->name; p++)
        if (!o->draws || !makes_backward(p)) TRY(pass_run(m, p->name, o, d));
    if (!o->fuse) ir_meta_set(m, "fuse", "off");
    return o->verify_each ? AMPC_OK : ir_verify(m, d);
}
