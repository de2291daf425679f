/* dnn.c - builds cuDNN operation graphs and finds plans for them (see dnn.h).
 *
 * Candidates are the engine configurations of heuristic mode A, followed by those of fallback mode. Engines are
 * excluded if the graph refuses them, or if their notes say that they are nondeterministic, accumulate in low
 * precision, transform their operands or (if exact) round f32 operands. FFT and Winograd round between transforms:
 * in f16 their errors were 27 times those of one rounding on an H200, and FFT computed nonsense there. Only a few
 * candidates race and many are variants of one engine, so the first configuration of each engine is moved ahead of its
 * other ones. Engines that compile their kernel come last, because compiling takes a second per convolution. A choice
 * is stored as the position of a candidate, which is the same in every process with the same library and device.
 *
 * Engines that compile their kernel do so when the plan is created, which takes a second or more. Plans that are
 * slow to create are cached in sealed files (cache.h) in the library's serialised form, which includes the kernel.
 * The key covers the graph, the choice, the device and the library versions. Text that the library rejects counts
 * as missing. */
#include "kernels/cuda/dnn.h"

#include "kernels/cuda/tune.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    MAX_CANDIDATES = 48,
    MAX_RACED = 12,
    MAX_NOTES = CUDNN_NUMERICAL_NOTE_TYPE_COUNT,
    MAX_BEHAVIORS = CUDNN_BEHAVIOR_NOTE_TYPE_COUNT
};
enum { MAX_TEXT = 64 << 20, CACHED_FROM = 50 /* ms */ };
static const size_t max_workspace = (size_t)1 << 30; /* for plans chosen by speed */
static const char cache_kind[] = "plan";

struct dnn_plan {
    dnn_plan *next;
    char *key;
    dnn_descriptor plan;
    size_t workspace;
    int engines;
    dnn_scalars scalars;
    bool tuned;                        /* chosen while the context tuned */
    dnn_descriptor made[DNN_MAX_MADE]; /* descriptors that the plan refers to */
    int n_made;
};

/* ---- building -------------------------------------------------------------------------------- */

static void check(dnn_graph *g, cudnnStatus_t error, const char *call)
{
    if (g->status == AMPC_OK) g->status = cuda_dnn_status(g->ctx, error, call);
}

dnn_graph dnn_begin(const k_context *ctx)
{
    dnn_graph g = {.ctx = ctx, .alignment = CUDA_ALIGNMENT, .contents = cuda_cache_start()};
    g.status = cuda_open_dnn(ctx);
    return g;
}

/* The number that identifies a descriptor in the hash of the graph. */
static int number_of(const dnn_graph *g, dnn_descriptor d)
{
    int i = 0;
    while (i < g->n_made && g->made[i] != d) i++;
    return i;
}

static size_t size_of(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE: return sizeof(int64_t);
    case CUDNN_TYPE_BOOLEAN: return sizeof(bool);
    case CUDNN_TYPE_CHAR: return 1;
    default: return sizeof(int32_t); /* enumerations, int32, float */
    }
}

static void note(dnn_graph *g, dnn_descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                 int64_t count, const void *values)
{
    const int64_t what[] = {number_of(g, d), name, type, count};
    cuda_cache_add(&g->contents, what, sizeof what);
    if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR) cuda_cache_add(&g->contents, values, (size_t)count * size_of(type));
    for (int64_t i = 0; type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < count; i++) {
        const int number = number_of(g, ((const dnn_descriptor *)values)[i]);
        cuda_cache_add(&g->contents, &number, sizeof number);
    }
}

dnn_descriptor dnn_make(dnn_graph *g, cudnnBackendDescriptorType_t type)
{
    dnn_descriptor d = NULL;
    if (g->status != AMPC_OK) return NULL;
    assert(g->n_made < DNN_MAX_MADE); /* counted for the longest graph that dnn_ops.c makes */
    check(g, cuda.cudnnBackendCreateDescriptor(type, &d), "cudnnBackendCreateDescriptor");
    if (d) g->made[g->n_made++] = d;
    cuda_cache_add(&g->contents, &type, sizeof type);
    return d;
}

void dnn_set(dnn_graph *g, dnn_descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
             int64_t count, const void *values)
{
    if (g->status != AMPC_OK) return;
    note(g, d, name, type, count, values);
    check(g, cuda.cudnnBackendSetAttribute(d, name, type, count, values), "cudnnBackendSetAttribute");
}

void dnn_set_descriptor(dnn_graph *g, dnn_descriptor d, cudnnBackendAttributeName_t name, dnn_descriptor value)
{
    dnn_set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

void dnn_finish(dnn_graph *g, dnn_descriptor d)
{
    if (g->status == AMPC_OK) check(g, cuda.cudnnBackendFinalize(d), "cudnnBackendFinalize");
}

void dnn_append(dnn_graph *g, dnn_descriptor operation)
{
    dnn_finish(g, operation);
    assert(g->n_ops < DNN_MAX_OPS); /* as many as dnn_ops.c makes at most */
    g->ops[g->n_ops++] = operation;
    note(g, operation, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &operation);
}

void dnn_refuse(dnn_graph *g, int64_t engine)
{
    assert(g->n_refused < DNN_MAX_REFUSED); /* rows of the table in conv.c for one kind */
    g->refused[g->n_refused++] = engine;
}

static cudnnDataType_t data_type(ir_dtype t)
{
    switch (t) {
    case IR_f16: return CUDNN_DATA_HALF;
    case IR_bf16: return CUDNN_DATA_BFLOAT16;
    case IR_i32: return CUDNN_DATA_INT32;
    case IR_bool: return CUDNN_DATA_BOOLEAN;
    default: assert(t == IR_f32); return CUDNN_DATA_FLOAT; /* cuda_check_dtypes has rejected f64 */
    }
}

/* What a tensor is: data in memory, a value that never reaches memory, or a number on the host. */
typedef enum residence { IN_MEMORY, INTERMEDIATE, BY_VALUE } residence;

static dnn_descriptor describe_tensor(dnn_graph *g, int64_t uid, ir_dtype dtype, const dnn_layout *layout,
                                      residence where)
{
    const cudnnDataType_t type = data_type(dtype);
    const bool intermediate = where == INTERMEDIATE, by_value = where == BY_VALUE;
    dnn_descriptor t = dnn_make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    dnn_set(g, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    dnn_set(g, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, layout->rank, layout->dims);
    dnn_set(g, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, layout->rank, layout->strides);
    dnn_set(g, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    dnn_set(g, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &g->alignment);
    dnn_set(g, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &intermediate);
    if (by_value) dnn_set(g, t, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    dnn_finish(g, t);
    return t;
}

dnn_descriptor dnn_tensor(dnn_graph *g, int64_t uid, ir_dtype dtype, const dnn_layout *layout)
{
    int64_t last = 0;
    for (int i = 0; i < layout->rank; i++) last += (layout->dims[i] - 1) * layout->strides[i];
    assert(g->n_tensors < DNN_MAX_TENSORS); /* as many as dnn_ops.c makes at most */
    g->uids[g->n_tensors] = uid;
    g->bytes[g->n_tensors++] = (size_t)(last + 1) * ir_dtype_size(dtype);
    return describe_tensor(g, uid, dtype, layout, IN_MEMORY);
}

dnn_descriptor dnn_intermediate(dnn_graph *g, int64_t uid, ir_dtype dtype, const dnn_layout *layout)
{
    return describe_tensor(g, uid, dtype, layout, INTERMEDIATE);
}

dnn_descriptor dnn_scalar(dnn_graph *g, int64_t uid, int rank, float value)
{
    dnn_layout layout = {.rank = rank};
    for (int i = 0; i < rank; i++) layout.dims[i] = layout.strides[i] = 1;
    assert(g->scalars.n < DNN_MAX_SCALARS); /* as many as attention_dnn.c makes at most */
    g->scalars.uids[g->scalars.n] = uid;
    g->scalars.values[g->scalars.n++] = value;
    return describe_tensor(g, uid, IR_f32, &layout, BY_VALUE);
}

/* ---- candidates ------------------------------------------------------------------------------ */

typedef struct candidates {
    dnn_graph *g;
    cuda_cache_key contents; /* hash of the graph */
    dnn_descriptor device, configs[MAX_CANDIDATES];
    int64_t engines[MAX_CANDIDATES]; /* engine of each configuration, in the library's numbering */
    bool compiles[MAX_CANDIDATES];   /* whether the engine compiles its kernel */
    int n;
    cudnnStatus_t refusal;           /* status of the last refusal */
    dnn_descriptor plans[MAX_RACED]; /* plans that race */
    int which[MAX_RACED];            /* their positions among the candidates */
    size_t workspaces[MAX_RACED];    /* their workspace sizes */
    long took[MAX_RACED];            /* milliseconds needed to create each */
    int n_plans;
    void *data[DNN_MAX_TENSORS], *workspace; /* buffers of the race */
} candidates;

static void destroy_all(dnn_descriptor *d, int n)
{
    for (int i = n - 1; i >= 0; i--)
        if (d[i]) cuda.cudnnBackendDestroyDescriptor(d[i]);
}

static bool notes_refuse(const dnn_graph *g, const cudnnBackendNumericalNote_t *notes, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC ||
            notes[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION || notes[i] == CUDNN_NUMERICAL_NOTE_FFT ||
            notes[i] == CUDNN_NUMERICAL_NOTE_WINOGRAD)
            return true;
        if (g->exact &&
            (notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE || notes[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS))
            return true;
    }
    return false;
}

/* Reads the properties of a configuration's engine. Returns false if the engine must not be used. *number: the
 * library's number of the engine; *compiles: whether it compiles its kernel when the plan is created. */
static bool config_serves(const dnn_graph *g, dnn_descriptor config, int64_t *number, bool *compiles)
{
    dnn_descriptor engine = NULL;
    cudnnBackendNumericalNote_t notes[MAX_NOTES];
    cudnnBackendBehaviorNote_t behaviors[MAX_BEHAVIORS];
    int64_t n = 0, n_behaviors = 0;
    if (cuda.cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine)) return false;
    bool known = !cuda.cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                                &n, &engine) &&
                 !cuda.cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n,
                                                number) &&
                 !cuda.cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                                MAX_NOTES, &n, notes) &&
                 !cuda.cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                                MAX_BEHAVIORS, &n_behaviors, behaviors);
    cuda.cudnnBackendDestroyDescriptor(engine);
    *compiles = false;
    for (int64_t i = 0; known && i < n_behaviors; i++)
        *compiles = *compiles || behaviors[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
    for (int i = 0; i < g->n_refused; i++) known = known && g->refused[i] != *number;
    return known && !(g->precompiled && *compiles) && !notes_refuse(g, notes, n);
}

/* Appends the configurations that a heuristic proposes, in its order; none if it fails. */
static void ask_heuristic(candidates *c, dnn_descriptor graph, cudnnBackendHeurMode_t mode)
{
    dnn_graph *g = c->g;
    int64_t n = 0;
    dnn_descriptor found[MAX_CANDIDATES] = {NULL}, heuristic = dnn_make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    dnn_set_descriptor(g, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    dnn_set(g, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    dnn_set_descriptor(g, heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, c->device);
    if (g->status != AMPC_OK || (c->refusal = cuda.cudnnBackendFinalize(heuristic))) return;
    for (int i = c->n; i < MAX_CANDIDATES; i++)
        if (cuda.cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &found[i - c->n])) break;
    if (cuda.cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                      MAX_CANDIDATES - c->n, &n, found))
        n = 0;
    for (int i = 0, left = MAX_CANDIDATES - c->n; i < left; i++)
        if (i < n && config_serves(g, found[i], &c->engines[c->n], &c->compiles[c->n])) c->configs[c->n++] = found[i];
        else destroy_all(&found[i], 1);
}

/* Sort key of candidate i: whether its engine compiles, then whether it is not the engine's first configuration. */
static int rank_of(const candidates *c, int i)
{
    int first = 0;
    while (c->engines[first] != c->engines[i]) first++;
    return 2 * c->compiles[i] + (first < i);
}

/* Sorts candidates by rank; stable. */
static void order_candidates(candidates *c)
{
    const candidates old = *c;
    c->n = 0;
    for (int rank = 0; rank < 4; rank++)
        for (int i = 0; i < old.n; i++) {
            if (rank_of(&old, i) != rank) continue;
            c->configs[c->n] = old.configs[i];
            c->engines[c->n] = old.engines[i];
            c->compiles[c->n++] = old.compiles[i];
        }
}

/* Creates a plan with one attribute set; NULL if cuDNN rejects it. */
static dnn_descriptor plan_from(candidates *c, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                int64_t count, const void *value, size_t *workspace)
{
    dnn_descriptor plan = NULL;
    int64_t bytes = 0, n = 0;
    if (cuda.cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan)) return NULL;
    bool made = !cuda.cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                                               CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &c->device) &&
                !cuda.cudnnBackendSetAttribute(plan, name, type, count, value) &&
                !(c->refusal = cuda.cudnnBackendFinalize(plan)) &&
                !cuda.cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n,
                                               &bytes);
    *workspace = (size_t)bytes;
    if (made) return plan;
    cuda.cudnnBackendDestroyDescriptor(plan);
    return NULL;
}

static long milliseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Returns the properties of the context's device, created on first use. */
static dnn_descriptor device_of(dnn_graph *g)
{
    cuda_context *c = cuda_of(g->ctx);
    const int32_t number = c->device;
    if (c->dnn_device || g->status != AMPC_OK) return c->dnn_device;
    dnn_descriptor d = dnn_make(g, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    if (c->described)
        dnn_set(g, d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)strlen(c->described) + 1,
                c->described);
    else dnn_set(g, d, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, 1, &number);
    dnn_finish(g, d);
    if (g->status == AMPC_OK) c->dnn_device = g->made[--g->n_made];
    return c->dnn_device;
}

static void find_candidates(candidates *c)
{
    dnn_graph *g = c->g;
    dnn_descriptor graph = dnn_make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    dnn_set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->n_ops, g->ops);
    if (g->status != AMPC_OK) return;
    if ((c->refusal = cuda.cudnnBackendFinalize(graph))) return; /* cuDNN does not support this graph */
    ask_heuristic(c, graph, CUDNN_HEUR_MODE_A);
    ask_heuristic(c, graph, CUDNN_HEUR_MODE_FALLBACK);
    order_candidates(c);
}

/* ---- plans on disk --------------------------------------------------------------------------- */

/* Computes the cache key; returns false if a part of it is unknown. `which`: the candidate that won a race, or -1 if
 * there was no race. */
static bool cache_key_of(const candidates *c, int which, cuda_cache_key *key)
{
    struct cudaDeviceProp device;
    int version = 0;
    if (cuda_is_described(c->g->ctx)) return false; /* without a device there are no compiled plans to cache */
    if (cuda.cudaGetDeviceProperties(&device, cuda_of(c->g->ctx)->device) || cuda.cudaRuntimeGetVersion(&version))
        return false;
    const size_t numbers[] = {DNN_RULES,
                              c->g->exact,
                              (size_t)which,
                              cuda.cudnnGetVersion(),
                              cuda.cudnnGetCudartVersion(),
                              (size_t)version,
                              (size_t)device.major,
                              (size_t)device.minor,
                              (size_t)device.multiProcessorCount,
                              device.totalGlobalMem};
    *key = c->contents;
    cuda_cache_add(key, numbers, sizeof numbers);
    cuda_cache_add_text(key, device.name);
    return true;
}

static void find_cached(candidates *c, int which)
{
    cuda_cache_key key;
    size_t bytes = 0;
    char *text = cache_key_of(c, which, &key) ? cuda_cache_find(cache_kind, &key, MAX_TEXT, &bytes) : NULL;
    if (text)
        c->plans[0] = plan_from(c, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)bytes, text,
                                &c->workspaces[0]);
    c->n_plans = c->plans[0] != NULL;
    free(text);
}

static void store_on_disk(const candidates *c, dnn_descriptor plan, int which)
{
    const cudnnBackendAttributeName_t name = CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION;
    cuda_cache_key key;
    int64_t n = 0;
    if (cuda.cudnnBackendGetAttribute(plan, name, CUDNN_TYPE_CHAR, 0, &n, NULL) || n <= 0 || n > MAX_TEXT) return;
    char *text = malloc((size_t)n);
    if (text && !cuda.cudnnBackendGetAttribute(plan, name, CUDNN_TYPE_CHAR, n, &n, text) &&
        cache_key_of(c, which, &key))
        cuda_cache_store(cache_kind, &key, text, (size_t)n);
    free(text);
}

/* ---- choosing -------------------------------------------------------------------------------- */

/* If nothing will run, avoids compiling an engine's kernel: its configuration already knows the workspace size and
 * serves as the plan. Returns false if the engine is precompiled or the workspace size is not known. */
static bool plan_from_config(candidates *c, int i)
{
    int64_t bytes = 0, n = 0;
    if (!c->compiles[i] || cuda.cudnnBackendGetAttribute(c->configs[i], CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE,
                                                         CUDNN_TYPE_INT64, 1, &n, &bytes))
        return false;
    c->workspaces[c->n_plans] = (size_t)bytes;
    c->which[c->n_plans] = i;
    c->plans[c->n_plans++] = c->configs[i];
    c->configs[i] = NULL;
    return true;
}

/* Creates plans for the candidates from position `first` on, until there are `count` plans. */
static void plan_candidates(candidates *c, int first, int count)
{
    for (int i = first; i < c->n && c->n_plans < count; i++) {
        size_t *bytes = &c->workspaces[c->n_plans];
        const long start = milliseconds();
        if (c->g->ctx->plan_only && plan_from_config(c, i)) continue;
        dnn_descriptor plan = plan_from(c, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                        &c->configs[i], bytes);
        if (!plan) continue;
        c->took[c->n_plans] = milliseconds() - start;
        if (c->n_plans > 0 && *bytes > max_workspace) {
            destroy_all(&plan, 1);
            continue;
        }
        c->plans[c->n_plans] = plan;
        c->which[c->n_plans++] = i;
    }
}

static ampc_status race_run(void *race, int i)
{
    candidates *c = race;
    const dnn_plan plan = {.plan = c->plans[i], .scalars = c->g->scalars};
    return dnn_run(c->g->ctx, &plan, c->g->n_tensors, c->g->uids, c->data, c->workspace);
}

static ampc_status race(candidates *c, const char *key, int *best)
{
    const k_context *ctx = c->g->ctx;
    size_t bytes = 1;
    for (int i = 0; i < c->n_plans; i++) bytes = c->workspaces[i] > bytes ? c->workspaces[i] : bytes;
    ampc_status status = cuda_tune_buffer(ctx, bytes, &c->workspace);
    for (int i = 0; i < c->g->n_tensors && status == AMPC_OK; i++)
        status = cuda_tune_buffer(ctx, c->g->bytes[i], &c->data[i]);
    if (status == AMPC_OK) status = cuda_tune(ctx, CUDA_DNN, key, c->n_plans, c->which, race_run, c, best);
    for (int i = 0; i < c->g->n_tensors; i++) cuda_tune_free(c->data[i]);
    cuda_tune_free(c->workspace);
    return status == AMPC_NO_MEMORY ? AMPC_OK : status;
}

static ampc_status no_engine(const candidates *c, const char *key)
{
    char reason[CUDA_MAX_REASON] = "all its engines are nondeterministic, imprecise, known to be wrong or not compiled";
    if (c->refusal) cuda_dnn_reason(c->refusal, reason);
    return cuda_fail(c->g->ctx, AMPC_UNSUPPORTED, "cuDNN has no engine for %s: %s", key, reason);
}

/* Moves the chosen plan to position 0: that of candidate `tuned` or, if -1, the first or the fastest. */
static ampc_status choose(candidates *c, const char *key, int tuned)
{
    const bool tune = c->g->ctx->tune;
    const int candidate = c->g->ctx->candidate;
    int best = 0;
    if (candidate) {
        plan_candidates(c, candidate - 1, 1);
        return c->n_plans ? AMPC_OK : no_engine(c, key);
    }
    if (tuned >= 0 && tuned < c->n) plan_candidates(c, tuned, 1);
    if (c->n_plans == 0) {
        plan_candidates(c, 0, tune ? MAX_RACED : 1);
        if (tune && c->n_plans > 0) CUDA_FORWARD(race(c, key, &best)); /* even alone, to record it */
    }
    if (c->n_plans == 0) return no_engine(c, key);
    if (c->took[best] >= CACHED_FROM) store_on_disk(c, c->plans[best], tune ? c->which[best] : -1);
    dnn_descriptor chosen = c->plans[best];
    c->plans[best] = c->plans[0];
    c->plans[0] = chosen;
    c->workspaces[0] = c->workspaces[best];
    return AMPC_OK;
}

/* Finds a plan and moves it to position 0, from the disk cache if possible. Races the candidates if that was not done
 * before. */
static ampc_status find_plan(candidates *c, const char *key)
{
    const k_context *ctx = c->g->ctx;
    const int tuned = cuda_tuned(ctx, CUDA_DNN, key);
    c->device = device_of(c->g);
    CUDA_FORWARD(c->g->status);
    if (!ctx->candidate && (tuned >= 0 || !ctx->tune)) find_cached(c, tuned);
    if (c->n_plans > 0) return AMPC_OK;
    find_candidates(c);
    CUDA_FORWARD(c->g->status);
    return choose(c, key, tuned);
}

/* Transfers ownership of the first plan and its descriptors to the context. */
static ampc_status add_plan(candidates *c, const char *key, const dnn_plan **out)
{
    cuda_context *context = cuda_of(c->g->ctx);
    dnn_plan *plan = calloc(1, sizeof *plan);
    char *name = strdup(key);
    if (!plan || !name) {
        free(plan);
        free(name);
        return cuda_fail(c->g->ctx, AMPC_NO_MEMORY, "out of memory");
    }
    plan->key = name;
    plan->plan = c->plans[0];
    plan->workspace = c->workspaces[0];
    plan->engines = c->n;
    plan->scalars = c->g->scalars;
    plan->tuned = c->g->ctx->tune;
    memcpy(plan->made, c->g->made, sizeof plan->made);
    plan->n_made = c->g->n_made;
    c->g->n_made = 0;
    c->plans[0] = NULL;
    plan->next = context->dnn_plans;
    *out = context->dnn_plans = plan;
    return AMPC_OK;
}

const dnn_plan *dnn_plan_find(const k_context *ctx, const char *key)
{
    const dnn_plan *p = cuda_of(ctx)->dnn_plans;
    while (p && (strcmp(p->key, key) != 0 || (ctx->tune && !p->tuned))) p = p->next;
    return p;
}

ampc_status dnn_plan_of(dnn_graph *g, const char *key, const dnn_plan **out)
{
    candidates c = {.g = g, .contents = g->contents};
    ampc_status status = g->status;
    if (status == AMPC_OK) status = find_plan(&c, key);
    if (status == AMPC_OK) status = add_plan(&c, key, out);
    destroy_all(c.plans, c.n_plans);
    destroy_all(c.configs, c.n);
    destroy_all(g->made, g->n_made);
    g->n_made = 0;
    return status;
}

size_t dnn_plan_workspace(const dnn_plan *plan) { return plan->workspace; }

int dnn_plan_engines(const dnn_plan *plan) { return plan->engines; }

void dnn_close(cuda_context *c)
{
    while (c->dnn_plans) {
        dnn_plan *p = c->dnn_plans;
        c->dnn_plans = p->next;
        destroy_all(&p->plan, 1);
        destroy_all(p->made, p->n_made);
        free(p->key);
        free(p);
    }
    if (c->dnn_device) destroy_all(&c->dnn_device, 1);
    c->dnn_device = NULL;
}

/* ---- running --------------------------------------------------------------------------------- */

static ampc_status fill_pack(const k_context *ctx, dnn_descriptor pack, int n, const int64_t *uids, void *const *data,
                             void *workspace)
{
    CUDA_DNN_CALL(ctx, cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, uids));
    CUDA_DNN_CALL(ctx,
                  cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, data));
    CUDA_DNN_CALL(
        ctx, cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace));
    CUDA_DNN_CALL(ctx, cudnnBackendFinalize(pack));
    return AMPC_OK;
}

/* Appends the plan's scalars to the n tensors; returns the number of both. cuDNN reads the values before it returns. */
static int add_scalars(const dnn_plan *plan, int n, const int64_t *uids, void *const *data, int64_t *all_uids,
                       void **all_data)
{
    memcpy(all_uids, uids, (size_t)n * sizeof *uids);
    memcpy(all_data, data, (size_t)n * sizeof *data);
    for (int i = 0; i < plan->scalars.n; i++) {
        all_uids[n + i] = plan->scalars.uids[i];
        all_data[n + i] = (void *)&plan->scalars.values[i];
    }
    return n + plan->scalars.n;
}

ampc_status dnn_run(const k_context *ctx, const dnn_plan *plan, int n, const int64_t *uids, void *const *data,
                    void *workspace)
{
    int64_t all_uids[DNN_MAX_TENSORS + DNN_MAX_SCALARS];
    void *all_data[DNN_MAX_TENSORS + DNN_MAX_SCALARS];
    const int all = add_scalars(plan, n, uids, data, all_uids, all_data);
    dnn_descriptor pack = NULL;
    CUDA_DNN_CALL(ctx, cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack));
    ampc_status status = fill_pack(ctx, pack, all, all_uids, all_data, workspace);
    if (status == AMPC_OK)
        status = cuda_dnn_status(ctx, cuda.cudnnBackendExecute(cuda_of(ctx)->dnn, plan->plan, pack),
                                 "cudnnBackendExecute");
    cuda.cudnnBackendDestroyDescriptor(pack);
    return status;
}
