/* checkpoint.c - one checkpoint file: keys, writing, verified reading.
 *
 * Reading has three stages: read every tensor of the file into separate memory, which verifies its hash; match the
 * tensors with the session; and if all fit, copy them. This distinguishes a damaged file (stage one) from a
 * checkpoint of another model (stage two), and neither leaves a partially loaded session. */
#include "runtime/train/checkpoint.h"

#include "runtime/backend/alloc.h"
#include "runtime/train/checkpoint_file.h"
#include "runtime/backend/memory.h"
#include "runtime/files/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define FORMAT_VERSION "2"
#define UNHASHED_VERSION "1" /* its model hash is of IR text as ampc 0.1 printed it */
#define POSITION_KEY "data/position"
#define PARAM_PREFIX "param/"
static const int64_t position_dims[] = {3};

/* ---- identity of a model ---- */

static void hash_text(XXH3_state_t *state, const char *text) { XXH3_128bits_update(state, text, strlen(text) + 1); }

static void hash_storage(XXH3_state_t *state, const ir_module *m, const ir_storage *s, arena *a)
{
    uint8_t kind = (uint8_t)s->kind;
    XXH3_128bits_update(state, &kind, 1);
    hash_text(state, s->name);
    hash_text(state, ir_type_print(m, &s->type, a));
    if (s->kind == IR_CONST && s->type.rank == 0 && s->data.kind == IR_DATA_INLINE)
        XXH3_128bits_update(state, s->data.bytes, ir_dtype_size(s->type.dtype));
}

static void hash_graph(XXH3_state_t *state, const ir_module *m, const ir_graph *g, arena *a)
{
    hash_text(state, g->name);
    for (size_t i = 0; i < g->inputs.count; i++) {
        hash_text(state, g->inputs.items[i]->name);
        hash_text(state, ir_type_print(m, &g->inputs.items[i]->type, a));
    }
    for (const ir_node *n = g->first; n; n = n->next) hash_text(state, ir_print_node(n, a));
}

static void digits_of(XXH128_hash_t h, char hash[33])
{
    snprintf(hash, 33, "%016" PRIx64 "%016" PRIx64, (uint64_t)h.high64, (uint64_t)h.low64);
}

/* Identity of a compiled module: XXH3-128 of its storage table and the text of all nodes, independent of the initial
 * weights and their location. */
static ampc_status model_hash(const ir_module *m, diag *d, char hash[33])
{
    jmp_buf guard;
    arena *a = arena_new(0);
    XXH3_state_t *state = XXH3_createState();
    if (!a || !state || setjmp(guard)) {
        arena_free(a);
        XXH3_freeState(state);
        return rt_no_memory(d);
    }
    arena_set_guard(a, &guard);
    XXH3_128bits_reset(state);
    for (size_t i = 0; i < m->storage.count; i++) hash_storage(state, m, m->storage.items[i], a);
    for (size_t i = 0; i < m->graphs.count; i++) hash_graph(state, m, m->graphs.items[i], a);
    digits_of(XXH3_128bits_digest(state), hash);
    XXH3_freeState(state);
    arena_free(a);
    return AMPC_OK;
}

/* ---- keys ---- */

char *rt_checkpoint_key(const ir_storage *s)
{
    const char *key = s->kind == IR_PARAM ? PARAM_PREFIX : ir_state_roles[s->role].key, *slash = strrchr(key, '/');
    const char *name = s->of ? s->of->name : slash[1] ? "" : s->name;
    const bool slot = s->kind == IR_STATE && s->slot;
    char *text;
    return asprintf(&text, "%s%s%s%s", key, slot ? s->slot : "", slot ? "/" : "", name) < 0 ? NULL : text;
}

bool rt_checkpoint_is_weight(const ir_storage *s)
{
    return s->kind == IR_PARAM || (s->kind == IR_STATE && s->role == IR_STATE_buffer);
}

/* ---- writing ---- */

static ampc_status put_number(rt_safetensors_writer *w, const char *key, uint64_t v)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, v);
    return rt_safetensors_put_metadata(w, key, text);
}

/* Writes a scalar state to the metadata, if the module has it. */
static ampc_status put_scalar(rt_safetensors_writer *w, rt_session *s, const ir_module *m, ir_state_role role, diag *d)
{
    char text[40];
    rt_tensor t;
    const ir_storage *state = ir_state_by_role(m, role);
    if (!state) return AMPC_OK;
    TRY(rt_session_read(s, (int)state->id, d, &t));
    if (ir_dtype_is_float(t.dtype)) snprintf(text, sizeof text, "%a", ir_load_f64(t.dtype, t.data));
    else snprintf(text, sizeof text, "%" PRId64, ir_load_i64(t.dtype, t.data));
    return rt_safetensors_put_metadata(w, ir_state_words[role], text);
}

static ampc_status put_metadata(rt_safetensors_writer *w, rt_session *s, const ir_module *m, const rt_run_state *run,
                                diag *d)
{
    static const ir_state_role counters[] = {IR_STATE_loss_scale, IR_STATE_good_steps, IR_STATE_bad_steps};
    char hash[33];
    TRY(model_hash(m, d, hash));
    TRY(rt_safetensors_put_metadata(w, "version", FORMAT_VERSION));
    TRY(rt_safetensors_put_metadata(w, "model", hash));
    TRY(rt_safetensors_put_metadata(w, "schedule", run->schedule));
    TRY(put_number(w, "step", run->step));
    TRY(put_number(w, "epoch", run->position.epoch));
    TRY(put_number(w, "skipped", run->skipped));
    TRY(put_number(w, "stuck", run->stuck));
    TRY(put_number(w, "batch", (uint64_t)run->batch));
    TRY(put_number(w, "rows", (uint64_t)run->rows));
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) TRY(put_scalar(w, s, m, counters[i], d));
    const char *amp = ir_meta_get(m, "amp"), *list = ir_meta_get(m, "list");
    if (amp) TRY(rt_safetensors_put_metadata(w, "amp", amp));
    return list ? rt_safetensors_put_metadata(w, "list", list) : AMPC_OK;
}

static ampc_status put_tensors(rt_safetensors_writer *w, rt_session *s, const ir_module *m, const int64_t *position,
                               diag *d)
{
    rt_tensor t;
    for (size_t i = 0; i < m->storage.count; i++) {
        if (m->storage.items[i]->kind == IR_CONST) continue;
        TRY(rt_session_read(s, (int)i, d, &t));
        char *key = rt_checkpoint_key(m->storage.items[i]);
        if (!key) return rt_no_memory(d);
        ampc_status status = rt_safetensors_add(w, key, t.dtype, t.rank, t.dims, t.data);
        free(key);
        if (status != AMPC_OK) return status;
    }
    return rt_safetensors_add(w, POSITION_KEY, IR_i64, 1, position_dims, position);
}

ampc_status rt_checkpoint_write(rt_session *s, const ir_module *m, const rt_run_state *run, const char *path, diag *d)
{
    const int64_t position[] = {(int64_t)run->position.seed, (int64_t)run->position.epoch,
                                (int64_t)run->position.batch};
    rt_safetensors_writer *w;
    ampc_status status = rt_safetensors_create(d, &w);
    if (status != AMPC_OK) return rt_no_memory(d);
    status = put_metadata(w, s, m, run, d);
    if (status == AMPC_OK) status = put_tensors(w, s, m, position, d);
    if (status == AMPC_OK) return rt_safetensors_commit(w, path, NULL);
    rt_safetensors_discard(w);
    return status;
}

/* ---- reading, stage one: the bytes ---- */

enum { NOWHERE = -1 };

struct rt_checkpoint_file {
    char *path;
    rt_safetensors *file;
    size_t count;
    void **bytes; /* [count], verified */
    int *target;  /* [count]: index of the destination storage, or NOWHERE */
    diag *d;
};

void rt_checkpoint_file_free(rt_checkpoint_file *f)
{
    if (!f) return;
    for (size_t i = 0; f->bytes && i < f->count; i++) rt_free(f->bytes[i]);
    rt_free(f->bytes);
    rt_free(f->target);
    rt_safetensors_close(f->file);
    free(f->path);
    rt_free(f);
}

void rt_checkpoint_file_report_to(rt_checkpoint_file *f, diag *d) { f->d = d; }

static ampc_status read_entries(rt_checkpoint_file *f)
{
    f->count = rt_safetensors_count(f->file);
    f->bytes = rt_alloc(f->count + 1, sizeof *f->bytes);
    f->target = rt_alloc(f->count + 1, sizeof *f->target);
    if (!f->bytes || !f->target) return rt_no_memory(f->d);
    for (size_t i = 0; i < f->count; i++) {
        const rt_tensor_entry *e = rt_safetensors_entry(f->file, i);
        f->target[i] = NOWHERE;
        f->bytes[i] = rt_alloc_block((size_t)e->bytes);
        if (!f->bytes[i]) return rt_no_memory(f->d);
        TRY(rt_safetensors_read(f->file, e, f->bytes[i]));
    }
    return AMPC_OK;
}

ampc_status rt_checkpoint_file_open(const char *path, diag *d, rt_checkpoint_file **out)
{
    rt_checkpoint_file *f = rt_alloc(1, sizeof *f);
    if (!f) return rt_no_memory(d);
    f->d = d;
    f->path = strdup(path);
    ampc_status status = f->path ? rt_safetensors_open(path, RT_VERIFY_ALL, d, &f->file) : rt_no_memory(d);
    if (status == AMPC_OK) status = read_entries(f);
    if (status == AMPC_OK) *out = f;
    else rt_checkpoint_file_free(f);
    return status;
}

/* ---- stage two: does it fit? ---- */

static ampc_status refuse(const rt_checkpoint_file *f, const char *tensor, const char *what)
{
    return diag_error(f->d, AMPC_REJECTED, (diag_loc){.file = f->path, .node = tensor}, "%s", what);
}

static size_t index_of(const rt_checkpoint_file *f, const rt_tensor_entry *e)
{
    return (size_t)(e - rt_safetensors_entry(f->file, 0));
}

static void print_shape(char *text, size_t n, ir_dtype dtype, int rank, const int64_t *dims)
{
    size_t at = (size_t)snprintf(text, n, "%s[", ir_dtype_name(dtype));
    for (int i = 0; i < rank && at < n; i++)
        at += (size_t)snprintf(text + at, n - at, "%s%" PRId64, i ? "," : "", dims[i]);
    if (at < n) snprintf(text + at, n - at, "]");
}

static ampc_status check_shape(const rt_checkpoint_file *f, const rt_tensor_entry *e, const rt_tensor *t)
{
    char have[256], expected[256];
    bool same = e->dtype == t->dtype && e->rank == t->rank;
    for (int i = 0; same && i < t->rank; i++) same = e->dims[i] == t->dims[i];
    if (same) return AMPC_OK;
    print_shape(have, sizeof have, e->dtype, e->rank, e->dims);
    print_shape(expected, sizeof expected, t->dtype, t->rank, t->dims);
    return diag_error(f->d, AMPC_REJECTED, (diag_loc){.file = f->path, .node = e->name},
                      "the checkpoint has %s, the model %s", have, expected);
}

static ampc_status match_storage(rt_checkpoint_file *f, int storage, const rt_tensor *t, const char *key)
{
    const rt_tensor_entry *e = rt_safetensors_find(f->file, key);
    if (!e) return refuse(f, key, "the checkpoint does not have this tensor of the model");
    f->target[index_of(f, e)] = storage;
    return check_shape(f, e, t);
}

/* Finds the bytes of each storage that `part` covers; reports all mismatches and returns the first status. */
static ampc_status match_session(rt_checkpoint_file *f, rt_session *s, const ir_module *m, rt_checkpoint_part part)
{
    ampc_status first = AMPC_OK;
    for (size_t i = 0; i < m->storage.count; i++) {
        rt_tensor t;
        const ir_storage *storage = m->storage.items[i];
        if (storage->kind == IR_CONST || (part == RT_CHECKPOINT_WEIGHTS && !rt_checkpoint_is_weight(storage))) continue;
        rt_session_storage_at(s, (int)i, &t, NULL);
        char *key = rt_checkpoint_key(storage);
        if (!key) return rt_no_memory(f->d);
        ampc_status status = match_storage(f, (int)i, &t, key);
        free(key);
        if (first == AMPC_OK) first = status;
    }
    return first;
}

static bool is_version(const rt_checkpoint_file *f, const char *version)
{
    const char *recorded = rt_safetensors_metadata(f->file, "version");
    return recorded && strcmp(recorded, version) == 0;
}

static ampc_status check_model(const rt_checkpoint_file *f, const ir_module *m)
{
    char hash[33];
    const char *recorded = rt_safetensors_metadata(f->file, "model");
    if (is_version(f, UNHASHED_VERSION)) return AMPC_OK;
    TRY(model_hash(m, f->d, hash));
    if (recorded && strcmp(recorded, hash) == 0) return AMPC_OK;
    return diag_error(f->d, AMPC_REJECTED, DIAG_FILE(f->path),
                      "a checkpoint of another model, or of one compiled with other options (its hash is %s, "
                      "this model's %s)",
                      recorded ? recorded : "missing", hash);
}

static ampc_status check_version(const rt_checkpoint_file *f)
{
    const char *version = rt_safetensors_metadata(f->file, "version");
    if (is_version(f, FORMAT_VERSION) || is_version(f, UNHASHED_VERSION)) return AMPC_OK;
    return diag_error(f->d, AMPC_REJECTED, DIAG_FILE(f->path), "%s%s",
                      version ? "a checkpoint of unknown version " : "not a checkpoint: it records no version",
                      version ? version : "");
}

/* A checkpoint to resume from may not contain tensors that the session lacks. */
static ampc_status check_all_used(const rt_checkpoint_file *f)
{
    ampc_status first = AMPC_OK;
    for (size_t i = 0; i < f->count; i++) {
        const char *name = rt_safetensors_entry(f->file, i)->name;
        if (f->target[i] != NOWHERE || strcmp(name, POSITION_KEY) == 0) continue;
        ampc_status s = refuse(f, name, "the model has no tensor of this name");
        if (first == AMPC_OK) first = s;
    }
    return first;
}

static ampc_status read_number(const rt_checkpoint_file *f, const char *key, uint64_t *v)
{
    char *end;
    const char *text = rt_safetensors_metadata(f->file, key);
    *v = text ? strtoull(text, &end, 10) : 0;
    if (text && end != text && !*end && *v <= INT64_MAX) return AMPC_OK;
    return diag_error(f->d, AMPC_REJECTED, DIAG_FILE(f->path), "metadata '%s' is missing or not a count", key);
}

static ampc_status read_run(const rt_checkpoint_file *f, rt_run_state *run)
{
    uint64_t batch, rows;
    int64_t position[3];
    const char *schedule = rt_safetensors_metadata(f->file, "schedule");
    const rt_tensor expected = {.name = POSITION_KEY, .dtype = IR_i64, .rank = 1, .dims = {3}};
    const rt_tensor_entry *e = rt_safetensors_find(f->file, POSITION_KEY);
    if (!e) return refuse(f, POSITION_KEY, "the checkpoint does not have this tensor");
    TRY(check_shape(f, e, &expected));
    memcpy(position, f->bytes[index_of(f, e)], sizeof position);
    *run = (rt_run_state){.position = {(uint64_t)position[0], (uint64_t)position[1], (uint64_t)position[2]}};
    TRY(read_number(f, "step", &run->step));
    TRY(read_number(f, "skipped", &run->skipped));
    TRY(read_number(f, "stuck", &run->stuck));
    TRY(read_number(f, "batch", &batch));
    TRY(read_number(f, "rows", &rows));
    run->batch = (int64_t)batch;
    run->rows = (int64_t)rows;
    snprintf(run->schedule, sizeof run->schedule, "%s", schedule ? schedule : "");
    return AMPC_OK;
}

/* ---- stage three: copy ---- */

static ampc_status copy_all(const rt_checkpoint_file *f, rt_session *s)
{
    for (size_t i = 0; i < f->count; i++)
        if (f->target[i] != NOWHERE) TRY(rt_session_write(s, f->target[i], f->bytes[i], f->d));
    return AMPC_OK;
}

ampc_status rt_checkpoint_file_load(rt_checkpoint_file *f, rt_session *s, const ir_module *m, rt_checkpoint_part part,
                                    rt_run_state *run)
{
    rt_run_state state;
    TRY(check_version(f));
    if (part == RT_CHECKPOINT_ALL) TRY(check_model(f, m));
    TRY(match_session(f, s, m, part));
    if (part == RT_CHECKPOINT_ALL) TRY(check_all_used(f));
    TRY(read_run(f, &state));
    TRY(copy_all(f, s));
    if (run) *run = state;
    return AMPC_OK;
}

ampc_status rt_checkpoint_read(rt_session *s, const ir_module *m, const char *path, rt_checkpoint_part part, diag *d,
                               rt_run_state *run)
{
    rt_checkpoint_file *f;
    TRY(rt_checkpoint_file_open(path, d, &f));
    ampc_status status = rt_checkpoint_file_load(f, s, m, part, run);
    rt_checkpoint_file_free(f);
    return status;
}
