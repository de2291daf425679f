/* api.c - the public API, compile side: contexts, modules. The one file of this room that opens all front doors. */
#include "runtime/api.h"

#include "frontend/onnx.h"
#include "passes/passes.h"
#include "runtime/memory.h"
#include "runtime/module_file.h"
#include "runtime/weights.h"

#include <libgen.h>
#include <stdlib.h>
#include <string.h>

const char *ampc_version(void) { return AMPC_VERSION; }

/* ---- options and results of several versions ---- */

ampc_status api_options(const void *from, void *to, size_t size, diag *d)
{
    size_t given = 0;
    memset(to, 0, size);
    if (!from) return AMPC_OK;
    memcpy(&given, from, sizeof given);
    if (given < sizeof given)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "struct_size of the options is not set");
    for (size_t i = size; i < given; i++)
        if (((const char *)from)[i])
            return diag_error(d, AMPC_USAGE, DIAG_NOWHERE,
                              "options of a newer version than this library (%s)", AMPC_VERSION);
    memcpy(to, from, given < size ? given : size);
    return AMPC_OK;
}

ampc_status api_result(const void *from, void *to, size_t size, diag *d)
{
    size_t room = 0;
    if (!to) return AMPC_OK;
    memcpy(&room, to, sizeof room);
    if (room < sizeof room)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "struct_size of the result is not set");
    size_t n = room < size ? room : size;
    memcpy((char *)to + sizeof room, (const char *)from + sizeof room, n - sizeof room);
    return AMPC_OK;
}

int api_word(const char *word, const char *const *words)
{
    for (int i = 0; words[i]; i++)
        if (strcmp(words[i], word) == 0) return i;
    return -1;
}

/* ---- context ---- */

static void receive(void *user, diag_level level, const char *message)
{
    const ampc_context *c = user;
    static const ampc_log_level levels[] = {[DIAG_ERROR] = AMPC_LOG_ERROR,
                                            [DIAG_WARNING] = AMPC_LOG_WARNING,
                                            [DIAG_REMARK] = AMPC_LOG_REMARK,
                                            [DIAG_NOTE] = AMPC_LOG_NOTE};
    if (c->log) c->log(c->user, levels[level], message);
}

ampc_status ampc_context_create(const ampc_context_options *options, ampc_context **context)
{
    ampc_context_options o;
    ampc_context *c = calloc(1, sizeof *c);
    if (!c) return AMPC_NO_MEMORY;
    c->d = diag_new(receive, c);
    c->holders = 1;
    ampc_status s = c->d ? api_options(options, &o, sizeof o, c->d) : AMPC_NO_MEMORY;
    if (s != AMPC_OK) {
        api_context_release(c);
        return s;
    }
    c->log = o.log;
    c->user = o.user;
    diag_set_strict(c->d, o.strict != 0);
    *context = c;
    return AMPC_OK;
}

void api_context_release(ampc_context *c)
{
    if (!c || --c->holders > 0) return;
    diag_free(c->d);
    free(c);
}

void ampc_context_free(ampc_context *context) { api_context_release(context); }

const char *ampc_context_message(const ampc_context *context)
{
    return context ? diag_first_error(context->d) : "there is no context";
}

diag *api_enter(ampc_context *c)
{
    diag_clear(c->d);
    return c->d;
}

/* ---- modules ---- */

static ampc_status module_new(ampc_context *c, ir_module *ir, const char *path,
                              ampc_module **module)
{
    ampc_module *m = calloc(1, sizeof *m);
    char *copy = path ? strdup(path) : NULL;
    char *folder = copy ? strdup(dirname(copy)) : NULL;
    free(copy);
    if (!m || (path && !folder)) {
        free(m);
        free(folder);
        ir_module_free(ir);
        return rt_no_memory(c->d);
    }
    *m = (ampc_module){.context = c, .ir = ir, .folder = folder, .holders = 1};
    m->stage = ir_graph_find(ir, "forward") ? API_IMPORTED : API_COMPILED;
    c->holders++;
    *module = m;
    return AMPC_OK;
}

void api_module_release(ampc_module *m)
{
    if (!m || --m->holders > 0) return;
    ir_module_free(m->ir);
    api_context_release(m->context);
    free(m->folder);
    free(m->summary);
    free(m);
}

void ampc_module_free(ampc_module *module) { api_module_release(module); }

ampc_status ampc_module_import(ampc_context *context, const char *path, const ampc_dim *dims,
                               size_t n_dims, ampc_module **module)
{
    ir_module *ir;
    diag *d = api_enter(context);
    onnx_dim_binding *bindings = calloc(n_dims + 1, sizeof *bindings);
    if (!bindings) return rt_no_memory(d);
    for (size_t i = 0; i < n_dims; i++)
        bindings[i] = (onnx_dim_binding){dims[i].name, dims[i].size};
    const onnx_import_options o = {.dims = bindings, .n_dims = (int)n_dims};
    ampc_status s = onnx_import(path, &o, d, &ir);
    free(bindings);
    return s == AMPC_OK ? module_new(context, ir, NULL, module) : s;
}

ampc_status ampc_module_load(ampc_context *context, const char *path, ampc_module **module)
{
    ir_module *ir;
    diag *d = api_enter(context);
    TRY(ir_parse_file(path, d, &ir));
    ampc_status s = ir_verify(ir, d);
    if (s == AMPC_OK) return module_new(context, ir, path, module);
    ir_module_free(ir);
    return s;
}

/* ---- saving ---- */

/* The weights go to `weights`; from then on the module finds them there. */
static ampc_status write_module(ampc_module *m, const char *path, const char *weights, diag *d)
{
    char *copy = strdup(path), *folder = copy ? strdup(dirname(copy)) : NULL;
    free(copy);
    if (!folder) return rt_no_memory(d);
    ampc_status s = rt_module_save(m->ir, m->folder, path, weights, d);
    free(s == AMPC_OK ? m->folder : folder);
    if (s == AMPC_OK) m->folder = folder;
    return s;
}

ampc_status ampc_module_save(ampc_module *module, const char *path)
{
    static const char ending[] = ".ir", weights_ending[] = ".safetensors";
    diag *d = api_enter(module->context);
    size_t n = strlen(path), stem = n - (sizeof ending - 1);
    if (n < sizeof ending || strcmp(path + stem, ending) != 0)
        return diag_error(d, AMPC_USAGE, DIAG_FILE(path), "the name of a saved module ends in .ir");
    if (module->holders > 1)
        return diag_error(d, AMPC_USAGE, DIAG_FILE(path),
                          "a module cannot be saved while sessions of it are open");
    char *weights = malloc(stem + sizeof weights_ending);
    if (!weights) return rt_no_memory(d);
    memcpy(weights, path, stem);
    memcpy(weights + stem, weights_ending, sizeof weights_ending);
    ampc_status s = write_module(module, path, weights, d);
    free(weights);
    return s;
}

/* ---- compiling ---- */

/* Comma-separated words; `text` and `items` are freed by clear_words. */
typedef struct words {
    char *text;
    const char **items;
    int count;
} words;

static bool split(const char *list, words *out)
{
    *out = (words){0};
    if (!list) return true;
    size_t most = strlen(list) / 2 + 1;
    char *rest = NULL;
    out->text = strdup(list);
    out->items = calloc(most + 1, sizeof *out->items);
    if (!out->text || !out->items) return false;
    for (char *w = strtok_r(out->text, ",", &rest); w; w = strtok_r(NULL, ",", &rest))
        out->items[out->count++] = w;
    return true;
}

enum { WHITE, BLACK, GRAY, BLACK_VARS, FP32_NODES, TRAIN, FREEZE, WORD_LISTS };

static bool split_all(const ampc_compile_options *o, words *w, pass_options *p)
{
    const char *const lists[] = {o->white,      o->black, o->gray,  o->black_vars,
                                 o->fp32_nodes, o->train, o->freeze};
    pass_strings *const to[] = {&p->white,      &p->black, &p->gray,  &p->black_vars,
                                &p->fp32_nodes, &p->train, &p->freeze};
    bool good = true;
    for (int i = 0; i < WORD_LISTS; i++) {
        good = split(lists[i], &w[i]) && good;
        *to[i] = (pass_strings){w[i].items, w[i].count};
    }
    return good;
}

static void clear_words(words *w)
{
    for (int i = 0; i < WORD_LISTS; i++) {
        free(w[i].text);
        free(w[i].items);
    }
}

static const char *const level_words[] = {
    [PASS_O0] = "O0", [PASS_O1] = "O1", [PASS_O2] = "O2", [PASS_OD] = "OD", [PASS_OD + 1] = NULL};
static const char *const dtype_words[] = {"fp16", "bf16", NULL};
static const ir_dtype dtype_values[] = {IR_f16, IR_bf16};
static const char *const scaling_words[] = {"default", "dynamic", "static", "off", NULL};
static const char *const placement_words[] = {[PASS_GREEDY] = "greedy", [PASS_MINCUT] = "mincut", NULL};
static const char *const mode_words[] = {"default", "file", "train", "eval", NULL};

/* The number of the word in its table, or `absent` when there is none. */
static ampc_status choose(const char *what, const char *word, const char *const *table, int absent,
                          diag *d, int *out)
{
    *out = word ? api_word(word, table) : absent;
    if (*out >= 0) return AMPC_OK;
    return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "%s '%s' is not known", what, word);
}

static ampc_status set_options(const ampc_compile_options *o, diag *d, pass_options *p)
{
    int level, dtype, scaling, mode, placement;
    TRY(choose("amp", o->amp, level_words, (int)p->level, d, &level));
    TRY(choose("dtype", o->dtype, dtype_words, 0, d, &dtype));
    TRY(choose("loss_scale", o->loss_scale, scaling_words, 0, d, &scaling));
    TRY(choose("mode", o->mode, mode_words, 0, d, &mode));
    TRY(choose("placement", o->placement, placement_words, (int)p->placement, d, &placement));
    p->level = (pass_level)level;
    p->low = dtype_values[dtype];
    p->scaling = (pass_scaling)scaling;
    p->mode = (pass_mode)mode;
    p->placement = (pass_placement)placement;
    p->white_soft = o->white_soft != 0;
    p->target = o->target;
    if (o->profile) p->profile = o->profile;
    if (o->init) p->init = o->init;
    p->lists = (pass_strings){o->lists, (int)o->n_lists};
    p->keep_io_types = !o->change_io_types;
    p->fuse = !o->no_fuse;
    p->loss = o->loss;
    p->loss_output = o->loss_output;
    p->optimizer = o->optimizer;
    p->init_scale = o->init_loss_scaling;
    p->incr_ratio = o->incr_ratio;
    p->decr_ratio = o->decr_ratio;
    p->min_scale = o->min_loss_scaling;
    p->incr_every = o->incr_every_n_steps;
    p->decr_every = o->decr_every_n_nan_or_inf;
    p->seed = o->seed;
    return AMPC_OK;
}

static ampc_status set_summary(ampc_module *m, const pass_options *p, diag *d)
{
    jmp_buf guard;
    arena *a = arena_new(0);
    if (!a || setjmp(guard)) {
        arena_free(a);
        return rt_no_memory(d);
    }
    arena_set_guard(a, &guard);
    m->summary = strdup(pass_summary(p, a));
    arena_free(a);
    return m->summary ? AMPC_OK : rt_no_memory(d);
}

/* What lies in files is read where it was when the model was imported. */
static ampc_status compile_passes(ampc_module *m, pass_options *p, diag *d)
{
    rt_weights *weights;
    TRY(rt_weights_open(m->ir, NULL, d, &weights));
    p->read = rt_weights_read_part;
    p->read_user = weights;
    ampc_status status = pass_compile(m->ir, p, d);
    rt_weights_close(weights);
    return status;
}

static ampc_status compile(ampc_module *m, const ampc_compile_options *o, diag *d)
{
    words w[WORD_LISTS];
    pass_stats stats = {0};
    pass_options p = pass_options_default();
    p.stats = &stats;
    ampc_status s = split_all(o, w, &p) ? set_options(o, d, &p) : rt_no_memory(d);
    if (s == AMPC_OK) {
        m->stage = API_BROKEN;
        s = compile_passes(m, &p, d);
    }
    if (s == AMPC_OK) s = set_summary(m, &p, d);
    if (s == AMPC_OK) m->stage = API_COMPILED;
    clear_words(w);
    return s;
}

ampc_status ampc_module_compile(ampc_module *module, const ampc_compile_options *options)
{
    ampc_compile_options o;
    diag *d = api_enter(module->context);
    TRY(api_options(options, &o, sizeof o, d));
    if (module->stage != API_IMPORTED)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE,
                          module->stage == API_COMPILED ? "the module is compiled already"
                                                        : "compiling the module has failed before");
    if (module->holders > 1)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE,
                          "a module cannot be compiled while sessions of it are open");
    return compile(module, &o, d);
}

const char *ampc_module_summary(const ampc_module *module)
{
    return module->summary ? module->summary : "";
}

/* ---- looking at a module ---- */

ampc_status ampc_module_input(ampc_module *module, const char *graph, size_t index,
                              ampc_input_info *info)
{
    diag *d = api_enter(module->context);
    const ir_graph *g = ir_graph_find(module->ir, graph);
    if (!g)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "the module has no entry graph '%s'", graph);
    if (index >= g->inputs.count)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "graph '%s' has %zu inputs", graph,
                          g->inputs.count);
    const ir_value *v = g->inputs.items[index];
    ampc_input_info out = {
        .name = v->name, .dtype = (ampc_dtype)v->type.dtype, .rank = v->type.rank};
    for (int i = 0; i < v->type.rank; i++)
        out.dims[i] = ir_dim_is_symbolic(v->type.dims[i]) ? -1 : v->type.dims[i];
    return api_result(&out, info, sizeof out, d);
}
