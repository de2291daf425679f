/* run_ranks.c - commands that a launcher has started on several ranks; see run.h. */
#include "runtime/backend/backend.h"
#include "runtime/backend/ranks.h"
#include "runtime/train/checkpoint_identity.h"
#include "tools/run.h"

#include <inttypes.h>
#include <string.h>

/* Errors of this rank are printed at the end, unless rank 0 prints the same. */
static void hold_messages(const run_context *c)
{
    const k_ranks *r = rt_team_ranks(c->peers);
    if (rt_team_first(c->peers)) return;
    c->tool->console.rank = arena_printf(c->tool->arena, "rank %d on %s: ", r->index, rt_team_host(c->peers, r->index));
}

static ampc_status check_command(const run_context *c)
{
    if (c->tool->command->bit == COMMAND_TRAIN) return AMPC_OK;
    return diag_error(c->tool->diag, AMPC_USAGE, DIAG_FILE(c->tool->command->name),
                      "only train runs on several ranks; start it without mpirun");
}

/* Each rank of a host has a device of its own, unless the user sets a number. If the launcher shows each rank
 * other devices, all begin with 0. */
static void choose_device(const run_context *c)
{
    tool *t = c->tool;
    int index;
    const rt_backend *b = rt_backend_find(t->o.device, &index);
    const int count = b && b->count && strcmp(t->o.device, b->name) == 0 ? b->count() : 0;
    if (count) t->o.device = arena_printf(t->arena, "%s:%d", b->name, rt_team_local(c->peers) % count);
}

ampc_status run_on_ranks(run_context *c, run_verb *body)
{
    tool *t = c->tool;
    k_ranks *r = NULL;
    const rt_ranks_options o = {.timeout = t->o.timeout};
    TRY(rt_ranks_open(&o, t->diag, &r));
    ampc_status status = rt_team_open(r, t->diag, &c->peers);
    if (status == AMPC_OK) {
        hold_messages(c);
        status = check_command(c);
        choose_device(c);
        if (status == AMPC_OK) status = body(c);
        status = rt_team_agree(c->peers, status, NULL, t->diag);
    }
    console_release(&t->console, !rt_team_repeats(c->peers));
    t->console.rank = NULL;
    rt_team_close(c->peers);
    rt_ranks_close(r, status);
    return status;
}

/* ---- what ranks have in common ---- */

static bool is_file(const option *row)
{
    return row->group == GROUP_FILES && row->kind == OPTION_TEXT && row->in_recipe != RECIPE_DESCRIBES;
}

/* Options of the network and the training, and switches of a run. Of files, whether they are given, which decides what
 * ranks compute and when they meet: rank 0 alone writes them, and data and weights are compared by their contents. */
static bool is_common(const option *row)
{
    return is_file(row) || row->in_recipe == RECIPE_DESCRIBES ||
           (row->kind == OPTION_SET && row->group == GROUP_EXECUTION);
}

static const char *print_texts(const pass_strings *texts, arena *a)
{
    const char *text = "";
    for (int i = 0; i < texts->count; i++) text = arena_printf(a, "%s%s%s", text, i ? "," : "", texts->items[i]);
    return text;
}

static const char *print_value(const option *row, const tool_options *o, arena *a)
{
    const void *at = (const char *)o + row->field;
    const char *text;
    switch (row->kind) {
    case OPTION_SET:
    case OPTION_CLEAR: return *(const bool *)at ? "on" : "off";
    case OPTION_WORD: return arena_printf(a, "%d", *(const int *)at);
    case OPTION_INT: return arena_printf(a, "%" PRId64, *(const int64_t *)at);
    case OPTION_REAL: return arena_printf(a, "%.17g", *(const double *)at);
    case OPTION_SEED: return arena_printf(a, "%" PRIu64, *(const uint64_t *)at);
    case OPTION_TEXTS:
    case OPTION_LIST: return print_texts(at, a);
    case OPTION_ARRAY: return print_texts(at, a);
    default:
        text = *(const char *const *)at;
        if (is_file(row)) return text ? "given" : "not given";
        return text ? text : "";
    }
}

/* Of one process, only the sums of a window. */
static bool adds_in_tree(const run_context *c)
{
    const tool *t = c->tool;
    const bool many = c->peers || ir_graph_by_role(t->module, IR_GRAPH_accumulate);
    return many && t->command->bit == COMMAND_TRAIN && t->o.deterministic > 0;
}

ampc_status run_distribute(run_context *c)
{
    tool *t = c->tool;
    VEC(rt_team_fact) facts = {0};
    t->o.pass.tree = adds_in_tree(c);
    if (!c->peers) return t->o.pass.tree ? compile_distribute(t->module, &t->o.pass, t->diag) : AMPC_OK;
    vec_push(t->arena, &facts, ((rt_team_fact){"the version", AMPC_VERSION}));
    const char *device = arena_printf(t->arena, "%.*s", (int)strcspn(t->o.device, ":"), t->o.device);
    vec_push(t->arena, &facts, ((rt_team_fact){"the kind of --device", device}));
    for (const option *row = option_table; row->name; row++)
        if (option_applies(row, COMMAND_TRAIN) && is_common(row))
            vec_push(t->arena, &facts,
                     ((rt_team_fact){arena_printf(t->arena, "--%s", row->name), print_value(row, &t->o, t->arena)}));
    char hash[RT_HASH_TEXT];
    TRY(rt_module_hash(t->module, t->diag, hash));
    vec_push(t->arena, &facts, ((rt_team_fact){"the hash of the module", hash}));
    TRY(rt_team_compare(c->peers, facts.items, facts.count, t->diag));
    t->o.pass.ranks = rt_team_ranks(c->peers)->count;
    t->module->hash_for_one = arena_strdup(t->arena, hash);
    return compile_distribute(t->module, &t->o.pass, t->diag);
}
