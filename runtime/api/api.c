/* api.c - the compile side of the public API: contexts and modules, joining passes and runtime. */
#include "runtime/api/api.h"

#include "runtime/api/export.h"
#include "runtime/backend/memory.h"
#include "runtime/files/module_file.h"
#include "runtime/files/weights.h"

#include <libgen.h>
#include <stdlib.h>
#include <string.h>

const char *ampc_version(void) { return AMPC_VERSION; }

/* ---- context ---- */

static void receive(void *user, diag_level level, const char *message)
{
    ampc_context *c = user;
    static const ampc_log_level levels[] = {[DIAG_ERROR] = AMPC_LOG_ERROR,
                                            [DIAG_WARNING] = AMPC_LOG_WARNING,
                                            [DIAG_REMARK] = AMPC_LOG_REMARK,
                                            [DIAG_NOTE] = AMPC_LOG_NOTE};
    if (!c->log) return;
    c->reports = true;
    c->log(c->user, levels[level], message);
    c->reports = false;
}

void api_context_release(ampc_context *c)
{
    if (!c || --c->holders > 0) return;
    operators_free(&c->custom);
    diag_free(c->d);
    free(c);
}

ampc_status ampc_context_create(const ampc_context_options *options, ampc_context **context)
{
    ampc_context_options o;
    if (!context) return AMPC_USAGE;
    ampc_context *c = calloc(1, sizeof *c);
    if (!c) return AMPC_NO_MEMORY;
    c->d = diag_new(receive, c);
    if (c->d) diag_set_words(c->d, &api_words);
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

void ampc_context_free(ampc_context *context)
{
    if (context && !api_is_calling(context)) api_context_release(context);
}

const char *ampc_context_message(const ampc_context *context)
{
    return context ? diag_first_error(context->d) : "there is no context";
}

static const char *or_empty(const char *text) { return text ? text : ""; }

ampc_status ampc_context_place(const ampc_context *context, ampc_place *place)
{
    if (!context || !place || !api_sized(place)) return AMPC_USAGE; /* a message would replace the one asked about */
    const diag_loc *at = diag_first_loc(context->d);
    const ampc_place out = {.file = or_empty(at->file),
                            .line = at->line,
                            .column = at->column,
                            .kind = at->name || at->op ? diag_kind_word(at->kind) : "",
                            .name = or_empty(at->name),
                            .op = or_empty(at->op)};
    api_result(&out, place, sizeof out);
    return AMPC_OK;
}

/* ---- modules ---- */

void api_source_clear(api_source *source)
{
    for (size_t i = 0; source->dims && i < source->n_dims; i++) free((char *)(uintptr_t)source->dims[i].name);
    free(source->dims);
    free(source->bytes);
    free(source->path);
    *source = (api_source){0};
}

ampc_status api_module_new(ampc_context *c, ir_module *ir, const char *path, const api_source *source,
                           ampc_module **module)
{
    ampc_module *m = calloc(1, sizeof *m);
    char *copy = path ? strdup(path) : NULL;
    char *folder = copy ? strdup(dirname(copy)) : NULL;
    free(copy);
    if (!m || (path && !folder)) {
        api_source lost = *source;
        free(m);
        free(folder);
        ir_module_free(ir);
        api_source_clear(&lost);
        return rt_no_memory(c->d);
    }
    *m = (ampc_module){.context = c, .ir = ir, .source = *source, .folder = folder};
    m->holders = 1;
    m->stage = ir_graph_by_role(ir, IR_GRAPH_forward) ? API_IMPORTED : API_COMPILED;
    c->holders++;
    *module = m;
    return AMPC_OK;
}

void api_module_release(ampc_module *m)
{
    if (!m || --m->holders > 0) return;
    ir_module_free(m->ir);
    api_source_clear(&m->source);
    api_context_release(m->context);
    for (size_t i = 0; i < m->names.count; i++) free(m->names.items[i].text);
    free(m->names.items);
    free(m->folder);
    free(m->summary);
    free(m);
}

void ampc_module_free(ampc_module *module)
{
    if (module && !api_is_calling(module->context)) api_module_release(module);
}

ampc_status ampc_module_load(ampc_context *context, const char *path, ampc_module **module)
{
    ir_module *ir;
    diag *d;
    TRY(api_enter(context, &d));
    NEED(path);
    NEED(module);
    TRY(ir_parse_file(path, d, &ir));
    ampc_status s = ir_verify(ir, d);
    if (s == AMPC_OK) return api_module_new(context, ir, path, &(api_source){0}, module);
    ir_module_free(ir);
    return s;
}

/* ---- saving ---- */

/* Writes the weights to `weights`, from which the module reads them afterwards. */
static ampc_status write_module(ampc_module *m, const char *path, const char *weights, diag *d)
{
    char *copy = strdup(path), *folder = copy ? strdup(dirname(copy)) : NULL;
    free(copy);
    if (!folder) return rt_no_memory(d);
    ampc_status s = rt_module_save(m->ir, m->folder, path, weights, false, d);
    free(s == AMPC_OK ? m->folder : folder);
    if (s == AMPC_OK) m->folder = folder;
    return s;
}

ampc_status ampc_module_save(ampc_module *module, const char *path)
{
    static const char ending[] = ".ir", weights_ending[] = ".safetensors";
    diag *d;
    TRY(api_enter_module(module, &d));
    NEED(path);
    size_t n = strlen(path), base = n - (sizeof ending - 1);
    if (n < sizeof ending || strcmp(path + base, ending) != 0)
        return diag_error(d, AMPC_USAGE, DIAG_FILE(path), "the name of a saved module ends in .ir");
    if (module->holders > 1)
        return diag_error(d, AMPC_USAGE, DIAG_FILE(path), "a module cannot be saved while sessions of it are open");
    char *weights = malloc(base + sizeof weights_ending);
    if (!weights) return rt_no_memory(d);
    memcpy(weights, path, base);
    memcpy(weights + base, weights_ending, sizeof weights_ending);
    ampc_status s = write_module(module, path, weights, d);
    free(weights);
    return s;
}

/* ---- compiling ---- */

/* Splits a comma-separated list. */
static pass_strings split(const char *list, arena *a)
{
    const char **items = arena_array(a, strlen(list) / 2 + 1, sizeof *items);
    int count = 0;
    char *rest = NULL;
    for (char *w = strtok_r(arena_strdup(a, list), ",", &rest); w; w = strtok_r(NULL, ",", &rest)) items[count++] = w;
    return (pass_strings){items, count};
}

/* clang-format off */
static const api_option compile_rows[] = {
#define COMPILE(name, field, member, kind, ...) \
    API_OPTION(ampc_compile_options, member, offsetof(compile_options, field), kind)
#include "ir/base/options.def"
    {.name = NULL},
};
/* clang-format on */

/* `from`: a member that has been checked. */
static void set_option(const api_option *row, const void *from, arena *a, void *field)
{
    const char *text = NULL;
    int value;
    switch (row->kind) {
    case OPTION_SET: *(bool *)field = *(const int *)from != 0; return;
    case OPTION_CLEAR: *(bool *)field = *(const int *)from == 0; return;
    case OPTION_INT:
    case OPTION_SEED:
    case OPTION_REAL: memcpy(field, from, sizeof(int64_t)); return;
    case OPTION_ARRAY: {
        const size_t n = *(const size_t *)((const char *)from + sizeof(void *));
        *(pass_strings *)field = (pass_strings){*(const char *const *const *)from, (int)n};
        return;
    }
    default: text = *(const char *const *)from;
    }
    if (!text) return;
    if (row->kind == OPTION_TEXTS || row->kind == OPTION_LIST) *(pass_strings *)field = split(text, a);
    else if (row->kind != OPTION_WORD) *(const char **)field = text;
    else if (pass_find_word(row->words, text, &value)) memcpy(field, &value, sizeof value); /* an int or an enum */
}

static ampc_status set_options(const ampc_compile_options *o, arena *a, diag *d, compile_options *p)
{
    for (const api_option *row = compile_rows; row->name; row++)
        set_option(row, (const char *)o + row->at, a, (char *)p + row->field);
    if (p->low != IR_NO_DTYPE) return AMPC_OK;
    return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "dtype '%s' is for the programs, which choose a device", o->dtype);
}

ampc_status rt_compile_module(ir_module *m, compile *c)
{
    rt_weights *weights;
    TRY(rt_weights_open(m, NULL, c->diag, &weights));
    c->read = rt_weights_read_part;
    c->read_user = weights;
    ampc_status status = compile_module(m, c);
    rt_weights_close(weights);
    return status;
}

static ampc_status compile_with(api_compilation *compilation, const ampc_compile_options *o, arena *a, diag *d)
{
    compile_options p = compile_options_default();
    compile *c;
    TRY(set_options(o, a, d, &p));
    if ((p.consumer || p.opset) && !compilation->for_onnx)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "%s is for a model that is converted to ONNX",
                          p.consumer ? "consumer" : "opset");
    p.plain_runtime = compilation->for_onnx;
    p.wide = compilation->wide;
    p.explain = compilation->explain;
    p.json = compilation->json;
    compilation->begun = true;
    TRY(compile_load(&p, a, d, &c));
    c->report.text = compilation->text;
    TRY(rt_compile_module(compilation->ir, c));
    if (compilation->finish) TRY(compilation->finish(compilation, c));
    compilation->summary = strdup(pass_summary(c, a));
    return compilation->summary ? AMPC_OK : rt_no_memory(d);
}

ampc_status api_compile(api_compilation *c, const ampc_compile_options *options, diag *d)
{
    jmp_buf guard;
    arena *a = arena_new(0);
    if (!a) return rt_no_memory(d);
    if (setjmp(guard)) {
        arena_free(a);
        return rt_no_memory(d);
    }
    arena_set_guard(a, &guard);
    ampc_status s = compile_with(c, options, a, d);
    arena_free(a);
    return s;
}

ampc_status api_compile_options(const ampc_compile_options *from, diag *d, ampc_compile_options *to)
{
    TRY(api_options(from, to, sizeof *to, d));
    return api_check_options(d, to, compile_rows);
}

void api_summarize(ampc_module *m, const api_compilation *c)
{
    if (!c->summary) return;
    free(m->summary);
    m->summary = c->summary;
}

static ampc_status check_stage(const ampc_module *m, diag *d)
{
    const char *why = m->stage == API_COMPILED ? "the module is compiled already"
                      : m->stage == API_BROKEN ? "compiling the module has failed before"
                      : m->source.keep_unknown ? "a module with unknown operators can only be converted"
                      : m->holders > 1         ? "a module cannot be compiled while sessions of it are open"
                                               : NULL;
    return why ? diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "%s", why) : AMPC_OK;
}

ampc_status ampc_module_compile(ampc_module *module, const ampc_compile_options *options)
{
    ampc_compile_options o;
    diag *d;
    TRY(api_enter_module(module, &d));
    TRY(api_compile_options(options, d, &o));
    TRY(check_stage(module, d));
    api_compilation compilation = {.ir = module->ir};
    ampc_status status = api_compile(&compilation, &o, d);
    api_summarize(module, &compilation);
    if (compilation.begun) module->stage = status == AMPC_OK ? API_COMPILED : API_BROKEN;
    return status;
}

const char *ampc_module_summary(const ampc_module *module) { return module && module->summary ? module->summary : ""; }
