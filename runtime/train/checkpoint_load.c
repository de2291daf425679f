/* checkpoint_load.c - loading a verified checkpoint: match its tensors with the session and, if all fit, copy them. */
#include "ir/ops/shape_text.h"
#include "runtime/backend/alloc.h"
#include "runtime/backend/memory.h"
#include "runtime/train/checkpoint_file.h"
#include "runtime/train/checkpoint_identity.h"
#include "runtime/files/convert.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const rt_checkpoint_how rt_checkpoint_all = {.part = RT_CHECKPOINT_ALL};
const rt_checkpoint_how rt_checkpoint_weights = {.part = RT_CHECKPOINT_WEIGHTS};

typedef struct loading {
    rt_checkpoint_file *file;
    rt_session *session;
    const ir_module *module;
    const rt_checkpoint_how *how;
    bool crosses;      /* the same network, compiled with other options */
    bool loads_scaler; /* the scaler keeps the state of the checkpoint */
    void *zeros;       /* as large as the largest storage to reset */
    diag *d;
} loading;

/* ---- what a state belongs to ---- */

static bool is_scaler(ir_state_role role)
{
    return role == IR_STATE_loss_scale || role == IR_STATE_good_steps || role == IR_STATE_bad_steps;
}

static bool is_average(ir_state_role role) { return role == IR_STATE_average; }

static bool is_optimizer(ir_state_role role)
{
    return role == IR_STATE_slot || is_average(role) || role == IR_STATE_step || role == IR_STATE_lr;
}

/* The sums and pending values of an unfinished window of micro-batches. */
static bool is_window(ir_state_role role) { return role >= IR_STATE_grad_sum && role <= IR_STATE_overflow; }

static bool has_key_of(const char *name, bool (*belongs)(ir_state_role))
{
    for (int role = 0; role < IR_STATE_ROLE_COUNT; role++) {
        const char *key = ir_state_roles[role].key;
        const size_t n = strlen(key);
        if (belongs((ir_state_role)role) && strncmp(name, key, n) == 0 && (key[n - 1] == '/' || !name[n])) return true;
    }
    return false;
}

static bool matches_any(const rt_checkpoint_how *how, const char *name)
{
    for (int i = 0; i < how->n_reinit; i++)
        if (fnmatch(how->reinit[i], name, 0) == 0) return true;
    return false;
}

static bool is_average_state(const ir_storage *s) { return s->kind == IR_STATE && is_average(s->role); }

/* Globs over names of parameters match their moving averages too. */
static bool is_reinitialized(const loading *l, const ir_storage *s)
{
    return matches_any(l->how, is_average_state(s) ? s->of->name : s->name);
}

/* Whether the file has the storage's own tensor; true if memory is exhausted, which is found again by loading it. */
static bool has_own(const rt_checkpoint_file *f, const ir_storage *s)
{
    char *key = rt_checkpoint_key(s);
    const bool has = !key || rt_safetensors_find(f->file, key);
    free(key);
    return has;
}

typedef enum fate {
    LOADED,
    KEPT,   /* as the session has it */
    RESET,  /* to the initial value of the module */
    STARTED /* a moving average, at the loaded value of its parameter */
} fate;

static fate fate_of(const loading *l, const ir_storage *s)
{
    const bool is_state = s->kind == IR_STATE;
    if (!rt_checkpoint_has(s)) return KEPT;
    const bool weights = l->how->part == RT_CHECKPOINT_WEIGHTS;
    if (weights && (!rt_checkpoint_is_weight(s) || is_reinitialized(l, s))) return KEPT;
    if (is_average_state(s) && (l->file->foreign || l->how->reset_optimizer || !has_own(l->file, s))) return STARTED;
    if (weights) return LOADED;
    if (is_state && is_optimizer(s->role) && l->how->reset_optimizer) return RESET;
    if (is_state && is_scaler(s->role) && l->crosses && !l->loads_scaler) return RESET;
    if (is_state && is_window(s->role) && l->crosses) return RESET;
    return LOADED;
}

/* ---- does it fit? ---- */

static ampc_status refuse(const rt_checkpoint_file *f, const char *tensor, const char *what)
{
    return diag_error(f->d, AMPC_REJECTED, diag_named(f->path, DIAG_TENSOR, tensor), "%s", what);
}

static size_t index_of(const rt_checkpoint_file *f, const rt_tensor_entry *e)
{
    return (size_t)(e - rt_safetensors_entry(f->file, 0));
}

static bool fits_type(const rt_checkpoint_file *f, ir_dtype have, ir_dtype expected)
{
    return have == expected || (f->foreign && ir_dtype_is_float(have) && ir_dtype_is_float(expected));
}

static ampc_status check_shape(const rt_checkpoint_file *f, const rt_tensor_entry *e, const rt_tensor *t)
{
    char have[IR_SHAPE_TEXT], expected[IR_SHAPE_TEXT];
    bool same = fits_type(f, e->dtype, t->dtype) && e->rank == t->rank;
    for (int i = 0; same && i < t->rank; i++) same = e->dims[i] == t->dims[i];
    if (same) return AMPC_OK;
    ir_shape_text(have, ir_dtype_name(e->dtype), e->rank, e->dims);
    ir_shape_text(expected, ir_dtype_name(t->dtype), t->rank, t->dims);
    return diag_error(f->d, AMPC_REJECTED, diag_named(f->path, DIAG_TENSOR, e->name), "the %s has %s, the model %s",
                      f->foreign ? "file" : "checkpoint", e->dtype == IR_NO_DTYPE ? e->type : have, expected);
}

static ampc_status match_entry(rt_checkpoint_file *f, int storage, const rt_tensor *t, const char *name)
{
    const rt_tensor_entry *e = rt_safetensors_find(f->file, name);
    if (!e)
        return refuse(f, name,
                      f->foreign ? "the file does not have this tensor of the model"
                                 : "the checkpoint does not have this tensor of the model");
    f->target[index_of(f, e)] = storage;
    return check_shape(f, e, t);
}

static ampc_status match_storage(loading *l, const ir_storage *s)
{
    rt_tensor t;
    rt_session_whole_at(l->session, (int)s->id, &t);
    if (l->file->foreign) return match_entry(l->file, (int)s->id, &t, s->name);
    char *key = rt_checkpoint_key(s);
    if (!key) return rt_no_memory(l->d);
    ampc_status status = match_entry(l->file, (int)s->id, &t, key);
    free(key);
    return status;
}

/* Finds the bytes of each storage to load; reports all mismatches and returns the first status. */
static ampc_status match_session(loading *l)
{
    ampc_status first = AMPC_OK;
    for (size_t i = 0; i < l->module->storage.count; i++) {
        const ir_storage *s = l->module->storage.items[i];
        ampc_status status = fate_of(l, s) == LOADED ? match_storage(l, s) : AMPC_OK;
        if (first == AMPC_OK) first = status;
    }
    return first;
}

/* A checkpoint to resume from may contain no tensors that the session lacks, except of what is reset, and moving
 * averages, which the warning about another optimizer names. */
static ampc_status check_all_used(const loading *l)
{
    const rt_checkpoint_file *f = l->file;
    ampc_status first = AMPC_OK;
    for (size_t i = 0; i < f->count; i++) {
        const char *name = rt_safetensors_entry(f->file, i)->name;
        if (f->target[i] != RT_CHECKPOINT_NOWHERE || strcmp(name, RT_CHECKPOINT_POSITION) == 0) continue;
        const bool may_go = has_key_of(name, is_scaler) || has_key_of(name, is_average) || has_key_of(name, is_window);
        if (l->crosses && may_go) continue;
        if (l->how->reset_optimizer && has_key_of(name, is_optimizer)) continue;
        ampc_status s = refuse(f, name, "the model has no tensor of this name");
        if (first == AMPC_OK) first = s;
    }
    return first;
}

static ampc_status check_globs(const loading *l)
{
    for (int i = 0; i < l->how->n_reinit; i++) {
        bool found = false;
        for (size_t k = 0; k < l->module->storage.count && !found; k++) {
            const ir_storage *s = l->module->storage.items[k];
            found = rt_checkpoint_is_weight(s) && !is_average_state(s) && fnmatch(l->how->reinit[i], s->name, 0) == 0;
        }
        if (!found)
            return diag_error(l->d, AMPC_USAGE, DIAG_OPTION(reinit), "no parameter or buffer matches '%s'",
                              l->how->reinit[i]);
    }
    return AMPC_OK;
}

/* ---- is it the same network, with the same optimizer? ---- */

static const char *metadata(const rt_checkpoint_file *f, const char *key)
{
    const char *text = rt_safetensors_metadata(f->file, key);
    return text ? text : "";
}

static ampc_status check_version(const rt_checkpoint_file *f)
{
    const char *version = rt_safetensors_metadata(f->file, "version");
    if (f->foreign || (version && strcmp(version, RT_CHECKPOINT_VERSION) == 0) ||
        (version && strcmp(version, RT_CHECKPOINT_UNHASHED) == 0))
        return AMPC_OK;
    return diag_error(f->d, AMPC_REJECTED, DIAG_FILE(f->path), "%s%s",
                      version ? "a checkpoint of unknown version " : "not a checkpoint: it records no version",
                      version ? version : "");
}

/* Whether the file has a tensor of the shape of every parameter and buffer. */
static bool has_weights(const rt_checkpoint_file *f, const ir_module *m)
{
    bool all = true;
    for (size_t i = 0; all && i < m->storage.count; i++) {
        const ir_storage *s = m->storage.items[i];
        const rt_tensor_entry *e = rt_safetensors_find(f->file, s->name);
        if (!rt_checkpoint_is_weight(s) || is_average_state(s)) continue;
        all = e && fits_type(f, e->dtype, s->type.dtype) && e->rank == s->type.rank;
        for (int k = 0; all && k < e->rank; k++) all = e->dims[k] == s->type.dims[k];
    }
    return all;
}

ampc_status rt_checkpoint_file_fit(const rt_checkpoint_file *f, const ir_module *m, rt_checkpoint_fit *out)
{
    char hash[RT_HASH_TEXT];
    *out = f->foreign && has_weights(f, m) ? RT_FITS_WEIGHTS : RT_FITS_NOTHING;
    if (f->foreign) return AMPC_OK;
    TRY(rt_module_hash(m, f->d, hash));
    if (strcmp(metadata(f, "model"), hash) == 0) *out = RT_FITS_MODULE;
    if (*out == RT_FITS_MODULE) return AMPC_OK;
    TRY(rt_network_hash(m, f->d, hash));
    if (strcmp(metadata(f, "network"), hash) == 0) *out = RT_FITS_NETWORK;
    return AMPC_OK;
}

static ampc_status check_model(loading *l)
{
    const rt_checkpoint_file *f = l->file;
    char hash[RT_HASH_TEXT];
    rt_checkpoint_fit fit;
    const char *network = metadata(f, "network");
    if (strcmp(metadata(f, "version"), RT_CHECKPOINT_UNHASHED) == 0) return AMPC_OK;
    TRY(rt_checkpoint_file_fit(f, l->module, &fit));
    l->crosses = fit != RT_FITS_MODULE;
    if (fit == RT_FITS_MODULE || fit == RT_FITS_NETWORK) return AMPC_OK;
    TRY(rt_network_hash(l->module, l->d, hash));
    return diag_error(l->d, AMPC_REJECTED, DIAG_FILE(f->path),
                      "a checkpoint of another model (the hash of its network is %s, this model's is %s)",
                      *network ? network : "missing", hash);
}

static bool is_slot(ir_state_role role) { return role == IR_STATE_slot; }

static bool has_slot(const ir_module *m, const char *key)
{
    bool found = false;
    for (size_t i = 0; i < m->storage.count && !found; i++) {
        char *own = rt_checkpoint_key(m->storage.items[i]);
        found = own && strcmp(own, key) == 0;
        free(own);
    }
    return found;
}

/* The first slot of the module that the file lacks; malloced. *count: the number of slots that both have. */
static char *slot_missing_in_file(const loading *l, size_t *count)
{
    for (size_t i = 0; i < l->module->storage.count; i++) {
        const ir_storage *s = l->module->storage.items[i];
        if (s->kind != IR_STATE || s->role != IR_STATE_slot) continue;
        char *key = rt_checkpoint_key(s);
        if (!key || !rt_safetensors_find(l->file->file, key)) return key;
        free(key);
        *count += 1;
    }
    return NULL;
}

/* The first key of an optimizer's state that only one of both sides has; malloced. NULL: there is none, or memory is
 * exhausted. */
static char *unmatched_slot(const loading *l)
{
    size_t common = 0, in_file = 0;
    char *missing = slot_missing_in_file(l, &common);
    if (missing) return missing;
    for (size_t i = 0; i < l->file->count; i++)
        in_file += has_key_of(rt_safetensors_entry(l->file->file, i)->name, is_slot);
    for (size_t i = 0; i < l->file->count && in_file > common; i++) {
        const char *name = rt_safetensors_entry(l->file->file, i)->name;
        if (has_key_of(name, is_slot) && !has_slot(l->module, name)) return strdup(name);
    }
    return NULL;
}

static ampc_status check_optimizer(const loading *l)
{
    char now[RT_OPTIMIZER_TEXT];
    const char *then = metadata(l->file, "optimizer");
    rt_optimizer_text(l->module, now);
    if (!l->crosses || l->how->reset_optimizer) return AMPC_OK;
    char *slot = unmatched_slot(l);
    if (slot) {
        diag_error(l->d, AMPC_REJECTED,
                   DIAG_USE(diag_named(l->file->path, DIAG_TENSOR, slot), OPTION_reset_optimizer,
                            .purpose = "to continue without that state"),
                   "the checkpoint has the state of another optimizer: it was %s, the model has %s",
                   *then ? then : "not recorded", now);
        free(slot);
        return diag_status(l->d);
    }
    if (strcmp(then, now) == 0) return AMPC_OK;
    return diag_warning(l->d, DIAG_FILE(l->file->path), "the optimizer was %s; continuing with %s", then, now);
}

static bool has_states(const loading *l, bool in_file)
{
    bool found = true;
    for (int role = 0; role < IR_STATE_ROLE_COUNT; role++)
        if (is_scaler((ir_state_role)role))
            found &= in_file ? rt_safetensors_find(l->file->file, ir_state_roles[role].key) != NULL
                             : ir_state_by_role(l->module, (ir_state_role)role) != NULL;
    return found;
}

static void note_crossing(const loading *l)
{
    char text[IR_PRECISION_TEXT];
    const char *amp = ir_training_precision(&l->module->training, text), *scaler = "";
    if (!l->crosses) return;
    if (l->loads_scaler) scaler = "; the loss scaler continues";
    else if (ir_state_by_role(l->module, IR_STATE_loss_scale))
        scaler = "; the loss scaler starts from its initial state";
    diag_note(l->d, DIAG_FILE(l->file->path), "saved with other options (precision %s), continuing at %s%s",
              metadata(l->file, "amp"), amp ? amp : "", scaler);
}

/* ---- the state of the run ---- */

/* Steps are added up, so counts of a file are limited. */
static bool is_step_count(int64_t n)
{
    static const int64_t MAX_STEPS = 1000000000000000;
    return n >= 0 && n <= MAX_STEPS;
}

static ampc_status read_number(const rt_checkpoint_file *f, const char *key, uint64_t *v)
{
    char *end;
    const char *text = rt_safetensors_metadata(f->file, key);
    *v = text ? strtoull(text, &end, 10) : 0;
    if (text && end != text && !*end && *v <= INT64_MAX) return AMPC_OK;
    return diag_error(f->d, AMPC_REJECTED, DIAG_FILE(f->path), "metadata '%s' is missing or not a count", key);
}

static ampc_status read_counts(const rt_checkpoint_file *f, rt_run_state *run)
{
    uint64_t batch, rows, before_reset = 0;
    TRY(read_number(f, "step", &run->step));
    TRY(read_number(f, "skipped", &run->skipped));
    TRY(read_number(f, "stuck", &run->stuck));
    TRY(read_number(f, "batch", &batch));
    TRY(read_number(f, "rows", &rows));
    if (rt_safetensors_metadata(f->file, "before_reset")) TRY(read_number(f, "before_reset", &before_reset));
    if (!is_step_count((int64_t)before_reset))
        return diag_error(f->d, AMPC_REJECTED, DIAG_FILE(f->path), "metadata 'before_reset' is too large");
    run->batch = (int64_t)batch;
    run->rows = (int64_t)rows;
    run->before_reset = (int64_t)before_reset;
    return AMPC_OK;
}

static ampc_status read_plateau(const rt_checkpoint_file *f, rt_plateau *p)
{
    const char *text = rt_safetensors_metadata(f->file, "plateau");
    if (!text) return AMPC_OK;
    int n = sscanf(text, "%la %la %la %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64, &p->sum, &p->best, &p->rate,
                   &p->steps, &p->means, &p->bad, &p->cooldown);
    const bool valid = n == 7 && p->rate >= 0 && is_step_count(p->steps) && is_step_count(p->means) &&
                       is_step_count(p->bad) && is_step_count(p->cooldown);
    if (valid) return AMPC_OK;
    return diag_error(f->d, AMPC_REJECTED, DIAG_FILE(f->path), "metadata 'plateau' is not the state of a schedule");
}

static ampc_status read_monitor(const rt_checkpoint_file *f, const char *key, rt_monitor_state *state)
{
    const char *text = rt_safetensors_metadata(f->file, key);
    if (!text || rt_monitor_read(text, state)) return AMPC_OK;
    return diag_error(f->d, AMPC_REJECTED, DIAG_FILE(f->path), "metadata '%s' is not the state of a metric", key);
}

static ampc_status read_run(const rt_checkpoint_file *f, rt_run_state *run)
{
    int64_t position[3];
    const rt_tensor expected = {.name = RT_CHECKPOINT_POSITION, .dtype = IR_i64, .rank = 1, .dims = {3}};
    const rt_tensor_entry *e = rt_safetensors_find(f->file, RT_CHECKPOINT_POSITION);
    if (!e) return refuse(f, RT_CHECKPOINT_POSITION, "the checkpoint does not have this tensor");
    TRY(check_shape(f, e, &expected));
    memcpy(position, f->bytes[index_of(f, e)], sizeof position);
    *run = (rt_run_state){.position = {(uint64_t)position[0], (uint64_t)position[1], (uint64_t)position[2]}};
    TRY(read_counts(f, run));
    snprintf(run->schedule, sizeof run->schedule, "%s", metadata(f, "schedule"));
    TRY(read_monitor(f, "best", &run->best));
    TRY(read_monitor(f, "early_stop", &run->early_stop));
    return read_plateau(f, &run->plateau);
}

ampc_status rt_checkpoint_file_run(const rt_checkpoint_file *f, rt_run_state *run)
{
    TRY(check_version(f));
    return read_run(f, run);
}

/* An optimizer that is reset counts its steps from 0; the schedule goes on. */
static ampc_status count_reset(const loading *l, rt_run_state *run)
{
    const rt_checkpoint_file *f = l->file;
    const char *key = ir_state_roles[IR_STATE_step].key;
    const rt_tensor_entry *e = rt_safetensors_find(f->file, key);
    const rt_tensor expected = {.name = key, .dtype = IR_i64};
    if (!l->how->reset_optimizer || !e) return AMPC_OK;
    TRY(check_shape(f, e, &expected));
    const int64_t accepted = ir_load_i64(IR_i64, f->bytes[index_of(f, e)]);
    if (!is_step_count(accepted) || !is_step_count(run->before_reset + accepted))
        return refuse(f, key, "not a count of steps");
    run->before_reset += accepted;
    return AMPC_OK;
}

/* ---- copying ---- */

static size_t count_elements(const rt_tensor *t)
{
    size_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= (size_t)t->dims[i];
    return n;
}

/* Converts the bytes of another program's tensor to the type of its storage. */
static ampc_status convert_entry(const loading *l, size_t entry)
{
    rt_checkpoint_file *f = l->file;
    rt_tensor t;
    const ir_dtype from = rt_safetensors_entry(f->file, entry)->dtype;
    rt_session_storage_at(l->session, f->target[entry], &t, NULL);
    if (from == t.dtype) return AMPC_OK;
    void *bytes = rt_alloc_block(count_elements(&t) * ir_dtype_size(t.dtype));
    if (!bytes) return rt_no_memory(l->d);
    ampc_status s = rt_convert(t.dtype, bytes, from, f->bytes[entry], count_elements(&t), DIAG_FILE(f->path),
                               rt_safetensors_entry(f->file, entry)->name, l->d);
    rt_free(s == AMPC_OK ? f->bytes[entry] : bytes);
    if (s == AMPC_OK) f->bytes[entry] = bytes;
    return s;
}

static ampc_status convert_all(const loading *l)
{
    for (size_t i = 0; l->file->foreign && i < l->file->count; i++)
        if (l->file->target[i] != RT_CHECKPOINT_NOWHERE) TRY(convert_entry(l, i));
    return AMPC_OK;
}

/* Allocates before anything is changed. */
static ampc_status make_zeros(loading *l)
{
    size_t size = 1;
    for (size_t i = 0; i < l->module->storage.count; i++) {
        rt_tensor t;
        if (fate_of(l, l->module->storage.items[i]) != RESET) continue;
        rt_session_storage_at(l->session, (int)i, &t, NULL);
        const size_t bytes = count_elements(&t) * ir_dtype_size(t.dtype);
        size = bytes > size ? bytes : size;
    }
    l->zeros = rt_alloc(size, 1);
    return l->zeros ? AMPC_OK : rt_no_memory(l->d);
}

static ampc_status reset_storage(const loading *l, const ir_storage *s)
{
    const void *bytes = s->data.kind == IR_DATA_INLINE ? s->data.bytes : l->zeros;
    return rt_session_write(l->session, (int)s->id, bytes, l->d);
}

static ampc_status start_average(const loading *l, const ir_storage *s)
{
    const rt_checkpoint_file *f = l->file;
    for (size_t i = 0; i < f->count; i++)
        if (f->target[i] == (int)s->of->id) return rt_session_write(l->session, (int)s->id, f->bytes[i], l->d);
    return AMPC_OK;
}

/* States that are reset are of the optimizer or scaler: they start at zero or have their value in the module. */
static ampc_status copy_all(const loading *l)
{
    const rt_checkpoint_file *f = l->file;
    for (size_t i = 0; i < l->module->storage.count; i++) {
        const ir_storage *s = l->module->storage.items[i];
        const fate to = fate_of(l, s);
        if (to == RESET) TRY(reset_storage(l, s));
        if (to == STARTED) TRY(start_average(l, s));
    }
    for (size_t i = 0; i < f->count; i++)
        if (f->target[i] != RT_CHECKPOINT_NOWHERE)
            TRY(rt_session_write_whole(l->session, f->target[i], f->bytes[i], l->d));
    return AMPC_OK;
}

/* The sums of a window are scaled, so only the module that wrote them can go on in the middle of one. */
static ampc_status check_window(const loading *l)
{
    const char *key = ir_state_roles[IR_STATE_micro_batches].key;
    const rt_tensor_entry *e = rt_safetensors_find(l->file->file, key);
    const rt_tensor expected = {.name = key, .dtype = IR_i64};
    if (!l->crosses || !e) return AMPC_OK;
    TRY(check_shape(l->file, e, &expected));
    if (ir_load_i64(IR_i64, l->file->bytes[index_of(l->file, e)]) == 0) return AMPC_OK;
    return refuse(l->file, key,
                  "saved within a window of micro-batches, which only a module compiled with the same options can end");
}

static ampc_status match_to_resume(loading *l)
{
    TRY(check_model(l));
    TRY(check_window(l));
    l->loads_scaler = has_states(l, true) && has_states(l, false);
    TRY(check_optimizer(l));
    TRY(match_session(l));
    return check_all_used(l);
}

static ampc_status match_weights(loading *l)
{
    TRY(check_globs(l));
    return match_session(l);
}

static ampc_status load(loading *l, rt_run_state *run)
{
    rt_run_state state = {0};
    TRY(check_version(l->file));
    TRY(l->how->part == RT_CHECKPOINT_ALL ? match_to_resume(l) : match_weights(l));
    if (!l->file->foreign) TRY(read_run(l->file, &state));
    TRY(count_reset(l, &state));
    TRY(convert_all(l));
    TRY(make_zeros(l));
    TRY(rt_session_set_codes(l->session, rt_safetensors_metadata(l->file->file, RT_CHECKPOINT_CODES), l->d));
    note_crossing(l);
    TRY(copy_all(l));
    if (run && !l->file->foreign) *run = state;
    return AMPC_OK;
}

ampc_status rt_checkpoint_file_load(rt_checkpoint_file *f, rt_session *s, const ir_module *m,
                                    const rt_checkpoint_how *how, rt_run_state *run)
{
    loading l = {.file = f, .session = s, .module = m, .how = how, .d = f->d};
    ampc_status status = load(&l, run);
    rt_free(l.zeros);
    return status;
}

ampc_status rt_checkpoint_read(rt_session *s, const ir_module *m, const char *path, const rt_checkpoint_how *how,
                               diag *d, rt_run_state *run)
{
    rt_checkpoint_file *f;
    TRY(rt_checkpoint_file_open(path, how->part, d, &f));
    ampc_status status = rt_checkpoint_file_load(f, s, m, how, run);
    rt_checkpoint_file_free(f);
    return status;
}
