/* api_session.c - the run side of the public API: sessions, steps, checkpoints. */
#include "runtime/api/api.h"

#include "runtime/backend/alloc.h"
#include "ir/base/limits.h"
#include "runtime/api/export.h"
#include "runtime/backend/memory.h"
#include "runtime/train/schedule.h"
#include "runtime/files/convert.h"

#include <stdlib.h>
#include <string.h>

/* ---- opening a session ---- */

/* Sets sizes[i] for symbol i; -1 if the options do not fix it. */
static ampc_status bind_dims(const ir_module *m, const ampc_session_options *o, int64_t *sizes, diag *d)
{
    size_t symbols = ir_dim_symbol_count(m->dims);
    for (size_t i = 0; i < symbols; i++) sizes[i] = -1;
    for (size_t k = 0; k < o->n_dims; k++) {
        size_t i = 0;
        while (i < symbols && strcmp(ir_dim_symbol_name(m->dims, i), o->dims[k].name) != 0) i++;
        if (i == symbols)
            return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "the model has no dimension '%s'", o->dims[k].name);
        sizes[i] = o->dims[k].size;
    }
    return AMPC_OK;
}

static ampc_status make_keys(ampc_session *s, diag *d)
{
    s->n_keys = rt_session_storage_count(s->rt);
    s->keys = calloc((size_t)s->n_keys + 1, sizeof *s->keys);
    for (int i = 0; s->keys && i < s->n_keys; i++) {
        const ir_storage *storage = s->module->ir->storage.items[i];
        if (storage->kind != IR_CONST && !(s->keys[i] = rt_checkpoint_key(storage))) return rt_no_memory(d);
    }
    return s->keys ? AMPC_OK : rt_no_memory(d);
}

/* `share`: the session whose weights it uses, or NULL. */
static ampc_status open_session(ampc_session *s, const ampc_session_options *o, const ampc_session *share,
                                int64_t *sizes, diag *d)
{
    const ir_module *ir = s->module->ir;
    const rt_stepper_options watch = {.allow_skips = true}; /* the caller sees them */
    TRY(bind_dims(ir, o, sizes, d));
    const rt_session_options options = {.device = o->device ? o->device : "cpu",
                                        .threads = o->threads,
                                        .deterministic = o->deterministic,
                                        .sync_launch = o->sync_launch != 0,
                                        .no_tune = o->no_tune != 0,
                                        .symbol_sizes = sizes,
                                        .weights_dir = s->module->folder,
                                        .share = share ? share->rt : NULL,
                                        .custom = &s->context->custom};
    TRY(rt_session_open(ir, &options, d, &s->rt));
    TRY(make_keys(s, d));
    TRY(rt_stepper_select(s->rt, ir, NULL, 0, d));
    TRY(api_select_unscaled(s, d));
    for (size_t i = 0; i < ir->graphs.count && !s->loss; i++)
        s->loss = ir_output_name(ir_output_by_role(ir->graphs.items[i], IR_OUTPUT_loss));
    return ir_graph_by_role(ir, IR_GRAPH_train_step) ? rt_stepper_open(s->rt, ir, &watch, d, &s->stepper) : AMPC_OK;
}

static void session_close(ampc_session *s)
{
    for (int i = 0; s->keys && i < s->n_keys; i++) free(s->keys[i]);
    free(s->keys);
    api_evaluated_free(s->evaluated);
    rt_session_close(s->rt);
    api_module_release(s->module);
    api_context_release(s->context);
    free(s);
}

/* Opens a session of a compiled module, whose messages go to `c`. */
static ampc_status open_checked(ampc_context *c, ampc_module *m, const ampc_session_options *options,
                                const ampc_session *share, ampc_session **session)
{
    /* clang-format off */
    static const api_option rows[] = {
#define SESSION(name, member, kind, ...) API_OPTION(ampc_session_options, member, 0, kind)
#include "ir/base/options.def"
        {.name = NULL},
    };
    /* clang-format on */
    ampc_session_options o;
    TRY(api_options(options, &o, sizeof o, c->d));
    TRY(api_dims(c->d, "ampc_session_options", o.dims, o.n_dims));
    TRY(api_check_options(c->d, &o, rows));
    if (m->stage != API_COMPILED) return diag_error(c->d, AMPC_USAGE, DIAG_NOWHERE, "the module is not compiled");
    if (share && o.device)
        return diag_error(c->d, AMPC_USAGE, DIAG_NOWHERE, "sessions that share weights are on the same device");
    ampc_session *s = calloc(1, sizeof *s);
    int64_t *sizes = calloc(ir_dim_symbol_count(m->ir->dims) + 1, sizeof *sizes);
    if (!s || !sizes) {
        free(s);
        free(sizes);
        return rt_no_memory(c->d);
    }
    s->context = c;
    s->module = m;
    c->holders++;
    m->holders++;
    ampc_status status = open_session(s, &o, share, sizes, c->d);
    free(sizes);
    if (status == AMPC_OK) *session = s;
    else session_close(s);
    return status;
}

ampc_status ampc_session_open(ampc_module *module, const ampc_session_options *options, ampc_session **session)
{
    diag *d;
    TRY(api_enter_module(module, &d));
    NEED(session);
    return open_checked(module->context, module, options, NULL, session);
}

ampc_status ampc_session_share(ampc_session *session, ampc_context *context, const ampc_session_options *options,
                               ampc_session **shared)
{
    diag *d;
    if (!context) { /* the other handle has a place for the message */
        TRY(api_enter_session(session, &d));
        NEED(context);
    }
    TRY(api_enter(context, &d));
    NEED(session);
    NEED(shared);
    TRY(api_enter_idle(session, &d));
    return open_checked(context, session->module, options, session, shared);
}

void ampc_session_free(ampc_session *session)
{
    if (!session || api_is_calling(session->context)) return;
    if (session->trains)
        diag_error(session->context->d, AMPC_USAGE, DIAG_NOWHERE,
                   "a session cannot be freed while ampc_train runs on it");
    else session_close(session);
}

/* ---- running ---- */

/* The graph output that a result key refers to. */
static const char *result_name(const ampc_session *s, const char *key)
{
    static const char prefix[] = "output/";
    if (s->loss && strcmp(key, ir_output_words[IR_OUTPUT_loss]) == 0) return s->loss;
    return strncmp(key, prefix, sizeof prefix - 1) == 0 ? key + sizeof prefix - 1 : key;
}

ampc_status ampc_select(ampc_session *session, const char *graph, const char *const *results, size_t n_results)
{
    diag *d;
    TRY(api_enter_idle(session, &d));
    NEED(graph);
    if (results) NEED_ITEMS(results, n_results);
    const ir_graph *g;
    TRY(api_graph(session->module, graph, d, &g));
    const bool steps = g->role == IR_GRAPH_train_step || g->role == IR_GRAPH_accumulate || g->role == IR_GRAPH_apply;
    if (!results) return rt_session_select(session->rt, g->name, NULL, 0, d);
    const char **names = rt_alloc(n_results + 1, sizeof *names);
    if (!names) return rt_no_memory(d);
    for (size_t i = 0; i < n_results; i++) names[i] = result_name(session, results[i]);
    ampc_status status = steps ? rt_stepper_select_of(session->rt, g, names, (int)n_results, d)
                               : rt_session_select(session->rt, g->name, names, (int)n_results, d);
    rt_free(names);
    return status;
}

ampc_status ampc_session_run(ampc_session *session, const char *graph, ampc_tensor *const *inputs, size_t n_inputs)
{
    diag *d;
    const ir_graph *g;
    TRY(api_enter_session(session, &d));
    NEED(graph);
    NEED_ITEMS(inputs, n_inputs);
    TRY(api_graph(session->module, graph, d, &g));
    if (g->role == IR_GRAPH_train_step) TRY(api_enter_idle(session, &d));
    TRY(api_refuse_window_graph(g, d));
    rt_tensor *views = api_views(inputs, n_inputs);
    if (!views) return rt_no_memory(d);
    ampc_status s = rt_session_run(session->rt, g->name, views, (int)n_inputs, d);
    free(views);
    return s;
}

ampc_status ampc_train_step(ampc_session *session, ampc_tensor *const *inputs, size_t n_inputs,
                            ampc_step_result *result)
{
    rt_step_result r;
    const rt_stepper_options watch = {0};
    diag *d;
    TRY(api_enter_idle(session, &d));
    NEED_ITEMS(inputs, n_inputs);
    TRY(api_result_check(result, d));
    rt_stepper *t = &session->stepper;
    if (!t->session) return rt_stepper_open(session->rt, session->module->ir, &watch, d, t);
    TRY(api_refuse_in_window(session, d));
    rt_tensor *views = api_views(inputs, n_inputs);
    if (!views) return rt_no_memory(d);
    ampc_status s = rt_stepper_run(t, views, (int)n_inputs, d, &r);
    free(views);
    if (s == AMPC_OK || s == AMPC_NUMERIC) api_step_result(t, &r, result);
    return s;
}

ampc_status ampc_eval_step(ampc_session *session, ampc_tensor *const *inputs, size_t n_inputs, double *loss)
{
    diag *d;
    TRY(api_enter_session(session, &d));
    NEED(loss);
    TRY(ampc_session_run(session, ir_graph_words[IR_GRAPH_eval], inputs, n_inputs));
    return ampc_session_get_number(session, ir_output_words[IR_OUTPUT_loss], loss);
}

ampc_status ampc_set_loss_scaling(ampc_session *session, int enabled)
{
    diag *d;
    TRY(api_enter_idle(session, &d));
    return rt_stepper_set_scaling(session->rt, session->module->ir, enabled != 0, d);
}

/* ---- tensors by key ---- */

/* Index of the storage with this key, or -1. */
static int find_storage(const ampc_session *s, const char *key)
{
    for (int i = 0; i < s->n_keys; i++)
        if (s->keys[i] && strcmp(s->keys[i], key) == 0) return i;
    return -1;
}

static ampc_status find(const ampc_session *s, const char *key, diag *d, rt_tensor *t)
{
    int storage = find_storage(s, key);
    if (storage >= 0) return rt_session_read(s->rt, storage, d, t);
    const char *name = result_name(s, key);
    const rt_tensor *result = rt_session_output(s->rt, name);
    TRY(rt_session_fetched(s->rt, d));
    if (result) {
        *t = *result;
        return AMPC_OK;
    }
    const char *graph = rt_session_not_selected(s->rt, name);
    if (graph)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE,
                          "the last run of '%s' did not compute '%s'; select it with ampc_select before the run", graph,
                          key);
    return diag_error(d, AMPC_USAGE, DIAG_NOWHERE,
                      "the session has no '%s': neither state nor a result of the last run", key);
}

ampc_status ampc_session_get(ampc_session *session, const char *key, ampc_tensor **tensor)
{
    rt_tensor t;
    diag *d;
    TRY(api_enter_session(session, &d));
    NEED(key);
    NEED(tensor);
    TRY(find(session, key, d, &t));
    return api_tensor_new(session->context, key, &t, tensor);
}

static bool same_shape(const rt_tensor *a, const rt_tensor *b)
{
    return a->rank == b->rank && memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) == 0;
}

ampc_status ampc_session_get_into(ampc_session *session, const char *key, ampc_tensor *tensor)
{
    rt_tensor t;
    diag *d;
    TRY(api_enter_session(session, &d));
    NEED(key);
    NEED(tensor);
    const rt_tensor *to = &tensor->view;
    TRY(find(session, key, d, &t));
    if (!same_shape(&t, to)) return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "the tensor and '%s' differ in shape", key);
    const size_t n = tensor->bytes / ir_dtype_size(to->dtype);
    if (n) ir_convert(to->dtype, to->data, t.dtype, t.data, n);
    return AMPC_OK;
}

static ampc_status find_writable(const ampc_session *s, const char *key, diag *d, int *storage, rt_tensor *t)
{
    *storage = find_storage(s, key);
    if (*storage >= 0) {
        rt_session_storage_at(s->rt, *storage, t, NULL);
        return AMPC_OK;
    }
    return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "the session has no state '%s' that could be set", key);
}

ampc_status ampc_session_set(ampc_session *session, const char *key, const ampc_tensor *tensor)
{
    int storage;
    rt_tensor t;
    diag *d;
    TRY(api_enter_session(session, &d));
    NEED(key);
    NEED(tensor);
    const rt_tensor *from = &tensor->view;
    TRY(find_writable(session, key, d, &storage, &t));
    if (!same_shape(&t, from))
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "the tensor and '%s' differ in shape", key);
    const ir_storage *state = session->module->ir->storage.items[storage];
    if (t.rank == 0) TRY(api_state(d, state, key, ir_load_f64(from->dtype, from->data)));
    size_t n = tensor->bytes / ir_dtype_size(from->dtype);
    void *bytes = rt_alloc_block(n * ir_dtype_size(t.dtype));
    if (!bytes) return rt_no_memory(d);
    ampc_status status = rt_convert(t.dtype, bytes, from->dtype, from->data, n, DIAG_NOWHERE, key, d);
    if (status == AMPC_OK) status = rt_session_write(session->rt, storage, bytes, d);
    rt_free(bytes);
    return status;
}

static ampc_status check_scalar(const rt_tensor *t, const char *key, diag *d)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->dims[i];
    return n == 1 ? AMPC_OK : diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "'%s' is not a single number", key);
}

ampc_status ampc_session_get_number(ampc_session *session, const char *key, double *value)
{
    rt_tensor t;
    diag *d;
    TRY(api_enter_session(session, &d));
    NEED(key);
    NEED(value);
    TRY(find(session, key, d, &t));
    TRY(check_scalar(&t, key, d));
    *value = ir_load_f64(t.dtype, t.data);
    return AMPC_OK;
}

ampc_status ampc_session_set_number(ampc_session *session, const char *key, double value)
{
    int storage;
    rt_tensor t;
    char bytes[8];
    diag *d;
    TRY(api_enter_session(session, &d));
    NEED(key);
    TRY(find_writable(session, key, d, &storage, &t));
    TRY(check_scalar(&t, key, d));
    TRY(api_state(d, session->module->ir->storage.items[storage], key, value));
    TRY(rt_convert(t.dtype, bytes, IR_f64, &value, 1, DIAG_NOWHERE, key, d));
    return rt_session_write(session->rt, storage, bytes, d);
}

const char *ampc_session_key(const ampc_session *session, size_t index)
{
    for (int i = 0; session && i < session->n_keys; i++)
        if (session->keys[i] && index-- == 0) return session->keys[i];
    return NULL;
}

/* ---- checkpoints ---- */

ampc_status ampc_checkpoint_save(ampc_session *session, const char *path, const ampc_position *position)
{
    diag *d;
    TRY(api_enter_session(session, &d));
    NEED(path);
    rt_run_state run = session->stepper.state;
    if (position) run.position = (rt_position){position->seed, position->epoch, position->batch};
    return rt_checkpoint_write(session->rt, session->module->ir, &run, path, d);
}

ampc_status ampc_checkpoint_load_with(ampc_session *session, const char *path, const ampc_load_options *options,
                                      ampc_position *position)
{
    ampc_load_options o;
    rt_run_state run;
    diag *d;
    TRY(api_enter_idle(session, &d));
    NEED(path);
    TRY(api_options(options, &o, sizeof o, d));
    NEED_ITEMS(o.reinit, o.n_reinit);
    if (o.n_reinit > INT32_MAX || (o.n_reinit && !o.weights_only))
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "reinit requires weights_only");
    const rt_checkpoint_how how = {.part = o.weights_only ? RT_CHECKPOINT_WEIGHTS : RT_CHECKPOINT_ALL,
                                   .reset_optimizer = o.reset_optimizer != 0,
                                   .reinit = o.reinit,
                                   .n_reinit = (int)o.n_reinit};
    TRY(rt_checkpoint_read(session->rt, session->module->ir, path, &how, d, o.weights_only ? NULL : &run));
    if (o.weights_only) return AMPC_OK;
    session->stepper.state = run;
    if (position) *position = (ampc_position){run.position.seed, run.position.epoch, run.position.batch};
    return AMPC_OK;
}

ampc_status ampc_checkpoint_load(ampc_session *session, const char *path, ampc_position *position)
{
    return ampc_checkpoint_load_with(session, path, NULL, position);
}

ampc_status ampc_checkpoint_load_weights(ampc_session *session, const char *path)
{
    const ampc_load_options weights = {.struct_size = sizeof weights, .weights_only = 1};
    return ampc_checkpoint_load_with(session, path, &weights, NULL);
}

ampc_status ampc_export_onnx(ampc_session *session, const char *path)
{
    diag *d;
    TRY(api_enter_session(session, &d));
    NEED(path);
    return rt_export_onnx(session->rt, session->module->ir, NULL, session->module->folder, path, d);
}

ampc_status ampc_export_model(ampc_session *session, const char *model, const char *path)
{
    diag *d;
    TRY(api_enter_session(session, &d));
    NEED(model);
    NEED(path);
    return rt_export_onnx(session->rt, session->module->ir, model, session->module->folder, path, d);
}

/* ---- schedules ---- */

ampc_status ampc_schedule_rate(ampc_context *context, const char *schedule, double lr, int64_t steps, int64_t accepted,
                               double *rate)
{
    rt_schedule s;
    diag *d;
    TRY(api_enter(context, &d));
    NEED(schedule);
    NEED(rate);
    TRY(api_number(d, "lr", lr, LIMITS_RATE));
    TRY(api_number(d, "steps", (double)steps, LIMITS_STEPS));
    TRY(api_number(d, "accepted", (double)accepted, 0, 1e15));
    TRY(rt_schedule_parse(schedule, lr, steps, d, &s));
    if (rt_schedule_is_plateau(&s))
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "the rate of schedule 'plateau' depends on the losses");
    *rate = rt_schedule_rate(&s, accepted);
    return AMPC_OK;
}
