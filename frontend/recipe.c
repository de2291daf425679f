/* recipe.c - the statements of a recipe that make its graph, and the file as a whole.
 *
 *   FILE      = "ampc-recipe" "1" {STATEMENT}              a statement begins on a line of its own
 *   STATEMENT = "model" NAME "=" STRING
 *             | "input" NAME [":" TYPE] ["=" ("normal" | "uniform")]
 *             | NAME {"," NAME} "=" (NAME "(" [ARGUMENT {"," ARGUMENT}] ")" | DETACH | SUM)   SUM: recipe_reader.h
 *             | loss, train (recipe_training.c) | option (recipe_options.c)
 *   ARGUMENT  = NAME | DETACH      DETACH = "detach" "(" NAME ")"
 *
 * Tokens, comments and messages are those of IR text. Statements take effect as they are read. */
#include "frontend/recipe_reader.h"
#include "ir/base/beneath.h"
#include "ir/graph/exported.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CALL = 256 };

/* ---- model ------------------------------------------------------------------------------------- */

static ampc_status import_model(recipe *r, const char *path, const char *name, ir_linked *out)
{
    ir_module *m, *into = r->p.module;
    onnx_import_options options = *r->options;
    options.n_dims = 0; /* the arguments of calls decide */
    options.batch = 0;
    vec_push(r->p.scratch, &r->models, NULL); /* before there is something to lose */
    TRY(onnx_import(path, &options, r->p.diag, &m));
    r->models.items[r->models.count - 1] = m;
    jmp_buf *guard = arena_set_guard(into->arena, NULL);
    arena_set_guard(into->arena, guard);
    arena_set_guard(m->arena, guard);
    ir_exported_copy(into, m, name);
    const ir_model_file file = {arena_strdup(into->arena, name), arena_strdup(into->arena, path)};
    vec_push(into->arena, &into->training.models, file);
    return ir_link_model(&r->linker, ir_graph_by_role(m, IR_GRAPH_forward), name, out);
}

static ampc_status read_model(recipe *r)
{
    recipe_name *n;
    const char *file, *path, *why;
    TRY(recipe_define(r, "the name of a model", RECIPE_MODEL, &n));
    TRY(ir_need_mark(&r->p, "="));
    const ir_token t = r->p.lex.token;
    TRY(ir_need(&r->p, IR_TOKEN_STRING, "the file of a model, in quotes", &file));
    if (beneath_find(r->p.file, file, r->p.scratch, &path, &why) != AMPC_OK)
        return FAIL_AT(&r->p, &t, "'%s' %s; the models of a recipe must be in its folder", file, why);
    if (import_model(r, path, n->name, &n->model) == AMPC_OK) return AMPC_OK;
    diag_note(r->p.diag, ir_place(&r->p, &n->at), "this is model %s", n->name);
    return diag_status(r->p.diag);
}

/* ---- input ------------------------------------------------------------------------------------- */

static ampc_status read_distribution(recipe *r, const recipe_name *n)
{
    static const ir_input_role roles[] = {IR_INPUT_normal, IR_INPUT_uniform};
    if (!ir_accept_mark(&r->p, "=")) return AMPC_OK;
    if (!n->value) return FAIL_AT(&r->p, &n->at, "input '%s' needs a type, such as f32[N,100], to be drawn", n->name);
    if (!ir_dtype_is_float(n->value->type.dtype))
        return FAIL_AT(&r->p, &n->at, "input '%s' must have a float type to be drawn", n->name);
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (ir_accept_word(&r->p, ir_input_words[roles[i]])) {
            n->value->role = roles[i];
            return AMPC_OK;
        }
    return ir_fail_expected(&r->p, "normal or uniform");
}

/* Replaces symbols that have sizes. */
static bool set_sizes(recipe *r, ir_type *type)
{
    ir_dim_table *dims = r->p.module->dims;
    const size_t count = ir_dim_symbol_count(dims);
    ir_dim *sizes = arena_array(r->p.scratch, count + 1, sizeof *sizes);
    for (size_t i = 0; i < count; i++) sizes[i] = ir_link_symbol(&r->linker, ir_dim_symbol_name(dims, i));
    for (int i = 0; i < type->rank; i++) {
        type->dims[i] = ir_dim_replace(dims, dims, type->dims[i], sizes);
        const bool symbolic = ir_dim_is_symbolic(type->dims[i]);
        if (!symbolic && (type->dims[i] < 0 || type->dims[i] > IR_DIM_MAX_SIZE)) return false;
    }
    return true;
}

static ampc_status read_input(recipe *r)
{
    recipe_name *n;
    ir_type type;
    TRY(recipe_define(r, "the name of an input", RECIPE_INPUT, &n));
    if (ir_accept_mark(&r->p, ":")) {
        const ir_token t = r->p.lex.token;
        TRY(ir_parse_type(&r->p, &type));
        if (type.dtype == IR_NO_DTYPE) return FAIL_AT(&r->p, &t, "expected a type, found '_'");
        if (!set_sizes(r, &type)) return FAIL_AT(&r->p, &t, "a size is not within 0 and %d", (int)IR_DIM_MAX_SIZE);
        n->value = ir_graph_input(r->linker.graph, n->name, &type);
    }
    return read_distribution(r, n);
}

/* ---- values ------------------------------------------------------------------------------------ */

/* Reads "(NAME)" after the word detach. */
static ampc_status read_detached(recipe *r, ir_argument *out)
{
    recipe_name *n;
    const ir_token t = r->p.lex.token;
    TRY(ir_need_mark(&r->p, "("));
    TRY(recipe_find(r, "a value", RECIPE_VALUES, &n));
    TRY(ir_need_mark(&r->p, ")"));
    if (!n->value || !ir_dtype_is_float(n->value->type.dtype))
        return FAIL_AT(&r->p, &t, "'%s' has no gradient that detach could stop", n->name);
    ir_builder b = ir_builder_at_end(r->linker.graph, r->p.diag);
    b.nameless = true;
    ir_node *node = ir_new(&b, IR_OP_detach, 1, n->value);
    ir_value_rename(node->out[0], arena_printf(r->p.module->arena, "%s.detached", n->name));
    *out = (ir_argument){ir_done(&b, node), n->name};
    return diag_status(r->p.diag);
}

static ampc_status read_argument(recipe *r, ir_argument *out, recipe_name **of)
{
    *of = NULL;
    if (ir_accept_word(&r->p, "detach")) return read_detached(r, out);
    TRY(recipe_find(r, "a value", RECIPE_VALUES, of));
    *out = (ir_argument){(*of)->value, (*of)->name};
    return AMPC_OK;
}

/* Reads "(ARGUMENT, ..)" into args and, where an argument is a name, names. */
static ampc_status read_arguments(recipe *r, ir_argument *args, recipe_name **names, size_t *count)
{
    *count = 0;
    TRY(ir_need_mark(&r->p, "("));
    if (ir_accept_mark(&r->p, ")")) return AMPC_OK;
    do {
        if (*count == MAX_CALL) return FAIL(&r->p, "more than %d arguments", MAX_CALL);
        TRY(read_argument(r, &args[*count], &names[*count]));
        ++*count;
    } while (ir_accept_mark(&r->p, ","));
    return ir_need_mark(&r->p, ")");
}

static size_t count_outputs(const ir_graph *g)
{
    size_t n = 0;
    for (const ir_node *node = ir_first_output(g); node; node = ir_next_output(node)) n++;
    return n;
}

static ampc_status check_counts(recipe *r, const recipe_name *model, const ir_token *at, size_t args, size_t results)
{
    const ir_graph *g = model->model.model;
    const size_t outputs = count_outputs(g);
    if (args != g->inputs.count)
        return FAIL_AT(&r->p, at, "%s has %zu input%s, not %zu", model->name, g->inputs.count,
                       g->inputs.count == 1 ? "" : "s", args);
    if (results == outputs) return AMPC_OK;
    return FAIL_AT(&r->p, at, "%s has %zu output%s, not %zu", model->name, outputs, outputs == 1 ? "" : "s", results);
}

static ampc_status call_model(recipe *r, recipe_name **results, size_t count)
{
    recipe_name *model, *names[MAX_CALL];
    ir_argument args[MAX_CALL];
    ir_value *values[MAX_CALL];
    size_t n;
    const ir_token t = r->p.lex.token;
    TRY(recipe_find(r, "a model", RECIPE_KIND(RECIPE_MODEL), &model));
    TRY(read_arguments(r, args, names, &n));
    TRY(check_counts(r, model, &t, n, count));
    if (ir_link_call(&model->model, results[0]->name, ir_place(&r->p, &t), args, values) != AMPC_OK) {
        diag_note(r->p.diag, ir_place(&r->p, &t), "in this call of %s", model->name);
        return diag_status(r->p.diag);
    }
    for (size_t i = 0; i < n; i++)
        if (names[i]) names[i]->value = args[i].value;
    for (size_t i = 0; i < count; i++) recipe_bind(r, results[i], values[i]);
    return AMPC_OK;
}

/* Whether the current token is a name that "(" follows. */
static bool is_call(recipe *r)
{
    const ir_lexer before = r->p.lex;
    ir_lexer_next(&r->p.lex);
    const bool call = before.token.kind == IR_TOKEN_WORD && ir_is_mark(&r->p, "(");
    r->p.lex = before;
    return call;
}

static ampc_status read_values(recipe *r)
{
    recipe_name *results[MAX_CALL];
    size_t count = 0;
    do {
        if (count == MAX_CALL) return FAIL(&r->p, "more than %d results", MAX_CALL);
        TRY(recipe_define(r, "a statement (model, input, loss, train, option) or the name of a value", RECIPE_VALUE,
                          &results[count++]));
    } while (ir_accept_mark(&r->p, ","));
    TRY(ir_need_mark(&r->p, "="));
    for (size_t i = 0; i < count; i++) /* not yet usable */
        strmap_put(r->names, results[i]->name, NULL);
    const ir_token t = r->p.lex.token;
    if (!is_call(r)) {
        ir_value *v;
        recipe_name *name;
        if (count != 1) return FAIL_AT(&r->p, &t, "a sum has 1 result, not %zu", count);
        TRY(recipe_read_sum(r, &v, &name));
        if (name) return FAIL_AT(&r->p, &t, "'%s' is a value already: expected a call or a sum", name->name);
        recipe_bind(r, results[0], v);
    } else if (ir_accept_word(&r->p, "detach")) {
        ir_argument v;
        if (count != 1) return FAIL_AT(&r->p, &t, "detach has 1 result, not %zu", count);
        TRY(read_detached(r, &v));
        recipe_bind(r, results[0], v.value);
    } else {
        TRY(call_model(r, results, count));
    }
    for (size_t i = 0; i < count; i++) strmap_put(r->names, results[i]->name, results[i]);
    return AMPC_OK;
}

/* ---- the file ---------------------------------------------------------------------------------- */

/* Whether only blanks precede the current token in its line. */
static bool begins_line(const ir_parser *p)
{
    const ir_token *t = &p->lex.token;
    for (size_t i = t->line_start; i < t->start; i++)
        if (!isspace((unsigned char)p->lex.text[i])) return false;
    return true;
}

static ampc_status read_statement(recipe *r)
{
    if (!begins_line(&r->p)) return ir_fail_expected(&r->p, "the end of the line");
    if (ir_accept_word(&r->p, "model")) return read_model(r);
    if (ir_accept_word(&r->p, "input")) return read_input(r);
    if (ir_accept_word(&r->p, "loss")) return recipe_read_loss(r);
    if (ir_accept_word(&r->p, "train")) return recipe_read_train(r);
    if (ir_is_word(&r->p, "option")) return recipe_skip_options(r);
    return read_values(r);
}

static ampc_status check_sizes(const recipe *r)
{
    for (int i = 0; i < r->linker.n_sizes; i++)
        if (!r->linker.sizes[i].used)
            diag_error(r->p.diag, AMPC_USAGE, DIAG_FILE(r->p.file), "no input has the dimension '%s'",
                       r->linker.sizes[i].name);
    return diag_status(r->p.diag);
}

static ampc_status read_recipe(recipe *r)
{
    int64_t version;
    if (!ir_accept_word(&r->p, "ampc-recipe")) return ir_fail_expected(&r->p, "'ampc-recipe 1'");
    const ir_token t = r->p.lex.token;
    TRY(ir_need_int(&r->p, &version));
    if (version != 1) return FAIL_AT(&r->p, &t, "version %lld of recipes is not supported", (long long)version);
    r->p.module->training.recipe = arena_strdup(r->p.module->arena, r->p.file);
    while (r->p.lex.token.kind != IR_TOKEN_END) TRY(read_statement(r));
    if (!r->linker.graph->first) return FAIL(&r->p, "the recipe calls no model");
    TRY(recipe_check_used(r));
    TRY(check_sizes(r));
    ir_link_stores(&r->linker);
    ir_module_remove_dead(r->p.module);
    return diag_status(r->p.diag);
}

/* Sets the guards of both arenas and reads the recipe. */
static ampc_status read_guarded(recipe *r, const char *text, size_t length)
{
    jmp_buf guard;
    ir_parser *p = &r->p;
    if (setjmp(guard)) return diag_error(p->diag, AMPC_NO_MEMORY, DIAG_FILE(p->file), "out of memory");
    arena_set_guard(p->scratch, &guard);
    arena_set_guard(p->module->arena, &guard);
    p->version = IR_TEXT_VERSION;
    p->lex = ir_lexer_start(text, length, p->scratch);
    r->names = strmap_new(p->scratch);
    ir_graph *g = ir_graph_new(p->module, ir_graph_words[IR_GRAPH_forward]);
    g->role = IR_GRAPH_forward;
    r->linker = (ir_linker){
        .graph = g, .file = arena_strdup(p->module->arena, p->file), .scratch = p->scratch, .diag = p->diag};
    r->linker.n_sizes = r->options->n_dims;
    r->linker.sizes = arena_array(p->scratch, (size_t)r->options->n_dims + 1, sizeof *r->linker.sizes);
    for (int i = 0; i < r->options->n_dims; i++)
        r->linker.sizes[i] = (ir_link_size){.name = r->options->dims[i].name, .size = r->options->dims[i].size};
    return read_recipe(r);
}

ampc_status recipe_import_memory(const char *text, size_t length, const char *name, const onnx_import_options *o,
                                 diag *d, ir_module **out)
{
    static const onnx_import_options defaults = {0};
    recipe r = {.p = {.diag = d, .file = name, .module = ir_module_new(), .scratch = arena_new(0)},
                .options = o ? o : &defaults};
    *out = NULL;
    ampc_status status = r.p.module && r.p.scratch ? read_guarded(&r, text, length)
                                                   : diag_error(d, AMPC_NO_MEMORY, DIAG_FILE(name), "out of memory");
    if (r.p.module) arena_set_guard(r.p.module->arena, NULL);
    for (size_t i = 0; i < r.models.count; i++) ir_module_free(r.models.items[i]);
    if (status == AMPC_OK) *out = r.p.module;
    else ir_module_free(r.p.module);
    arena_free(r.p.scratch);
    return status;
}

bool recipe_detect(const char *path)
{
    static const char ending[] = ".recipe";
    const size_t n = strlen(path), m = sizeof ending - 1;
    return n >= m && strcmp(path + n - m, ending) == 0;
}

ampc_status recipe_import(const char *path, const onnx_import_options *o, diag *d, ir_module **out)
{
    size_t length = 0;
    char *text;
    *out = NULL;
    TRY(recipe_read_file(path, &text, &length, d));
    const ampc_status status = recipe_import_memory(text, length, path, o, d, out);
    free(text);
    return status;
}
