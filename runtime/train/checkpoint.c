/* checkpoint.c - one checkpoint file: keys, writing, verified reading.
 *
 * Reading has three stages: read every tensor of the file into separate memory, which verifies its hash; match the
 * tensors with the session; and if all fit, copy them (both in checkpoint_load.c). This distinguishes a damaged file
 * (stage one) from a checkpoint of another model (stage two), and neither leaves a partially loaded session. */
#include "runtime/train/checkpoint.h"

#include "runtime/backend/alloc.h"
#include "runtime/backend/memory.h"
#include "runtime/train/checkpoint_file.h"
#include "runtime/train/checkpoint_identity.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t position_dims[] = {3};

/* ---- keys ---- */

char *rt_checkpoint_key(const ir_storage *s)
{
    const char *key = s->kind == IR_PARAM ? RT_CHECKPOINT_PARAM : ir_state_roles[s->role].key,
               *slash = strrchr(key, '/');
    const char *name = s->of ? s->of->name : slash[1] ? "" : s->name;
    const bool slot = s->kind == IR_STATE && s->slot;
    char *text;
    return asprintf(&text, "%s%s%s%s", key, slot ? s->slot : "", slot ? "/" : "", name) < 0 ? NULL : text;
}

bool rt_checkpoint_has(const ir_storage *s) { return s->kind != IR_CONST && !ir_storage_is_derived(s); }

bool rt_checkpoint_is_weight(const ir_storage *s)
{
    return s->kind == IR_PARAM || (s->kind == IR_STATE && (s->role == IR_STATE_buffer || s->role == IR_STATE_average));
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

/* As text, because doubles must be exact: sum, best and rate, then the counts. */
static ampc_status put_plateau(rt_safetensors_writer *w, const rt_plateau *p)
{
    char text[200];
    if (!p->means && !p->steps) return AMPC_OK;
    snprintf(text, sizeof text, "%a %a %a %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64, p->sum, p->best, p->rate,
             p->steps, p->means, p->bad, p->cooldown);
    return rt_safetensors_put_metadata(w, "plateau", text);
}

static ampc_status put_monitor(rt_safetensors_writer *w, const char *key, const rt_monitor_state *state)
{
    char text[RT_MONITOR_TEXT];
    if (!state->metric[0]) return AMPC_OK;
    rt_monitor_print(state, text);
    return rt_safetensors_put_metadata(w, key, text);
}

/* The name of the file that the module was imported from. */
static ampc_status put_source(rt_safetensors_writer *w, const ir_module *m)
{
    const char *recipe = m->training.recipe, *path = recipe ? recipe : ir_module_source(m);
    const char *slash = path ? strrchr(path, '/') : NULL;
    return path ? rt_safetensors_put_metadata(w, "source", slash ? slash + 1 : path) : AMPC_OK;
}

static ampc_status put_identity(rt_safetensors_writer *w, const ir_module *m, diag *d)
{
    char hash[RT_HASH_TEXT], optimizer[RT_OPTIMIZER_TEXT];
    TRY(put_source(w, m));
    TRY(rt_module_hash(m, d, hash));
    TRY(rt_safetensors_put_metadata(w, "model", hash));
    TRY(rt_network_hash(m, d, hash));
    TRY(rt_safetensors_put_metadata(w, "network", hash));
    rt_optimizer_text(m, optimizer);
    return rt_safetensors_put_metadata(w, "optimizer", optimizer);
}

static ampc_status put_metadata(rt_safetensors_writer *w, rt_session *s, const ir_module *m, const rt_run_state *run,
                                diag *d)
{
    static const ir_state_role counters[] = {IR_STATE_loss_scale, IR_STATE_good_steps, IR_STATE_bad_steps};
    TRY(rt_safetensors_put_metadata(w, "version", RT_CHECKPOINT_VERSION));
    TRY(put_identity(w, m, d));
    TRY(rt_safetensors_put_metadata(w, "schedule", run->schedule));
    TRY(put_number(w, "step", run->step));
    TRY(put_number(w, "epoch", run->position.epoch));
    TRY(put_number(w, "skipped", run->skipped));
    TRY(put_number(w, "stuck", run->stuck));
    TRY(put_number(w, "batch", (uint64_t)run->batch));
    TRY(put_number(w, "rows", (uint64_t)run->rows));
    TRY(put_plateau(w, &run->plateau));
    TRY(put_monitor(w, "best", &run->best));
    TRY(put_monitor(w, "early_stop", &run->early_stop));
    if (run->before_reset) TRY(put_number(w, "before_reset", (uint64_t)run->before_reset));
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) TRY(put_scalar(w, s, m, counters[i], d));
    char text[IR_PRECISION_TEXT];
    const char *amp = ir_training_precision(&m->training, text);
    if (amp) TRY(rt_safetensors_put_metadata(w, "amp", amp));
    return rt_session_codes(s) ? rt_safetensors_put_metadata(w, RT_CHECKPOINT_CODES, rt_session_codes(s)) : AMPC_OK;
}

/* `wholes` and `position` must live until the file is written. */
static ampc_status put_tensors(rt_safetensors_writer *w, rt_session *s, const ir_module *m, rt_whole *wholes,
                               const int64_t *position, diag *d)
{
    rt_tensor t;
    for (size_t i = 0; i < m->storage.count; i++) {
        if (!rt_checkpoint_has(m->storage.items[i])) continue;
        const bool shard = m->storage.items[i]->shard != 0;
        wholes[i] = (rt_whole){s, (int)i, d};
        rt_session_whole_at(s, (int)i, &t);
        if (!shard) TRY(rt_session_read(s, (int)i, d, &t));
        char *key = rt_checkpoint_key(m->storage.items[i]);
        if (!key) return rt_no_memory(d);
        ampc_status status = shard ? rt_safetensors_add_source(w, key, t.dtype, t.rank, t.dims, rt_session_read_whole,
                                                               &wholes[i])
                                   : rt_safetensors_add(w, key, t.dtype, t.rank, t.dims, t.data);
        free(key);
        if (status != AMPC_OK) return status;
    }
    return rt_safetensors_add(w, RT_CHECKPOINT_POSITION, IR_i64, 1, position_dims, position);
}

ampc_status rt_checkpoint_write(rt_session *s, const ir_module *m, const rt_run_state *run, const char *path, diag *d)
{
    const int64_t position[] = {(int64_t)run->position.seed, (int64_t)run->position.epoch,
                                (int64_t)run->position.batch};
    rt_safetensors_writer *w = NULL;
    rt_whole *wholes = rt_alloc(m->storage.count + 1, sizeof *wholes);
    ampc_status status = wholes ? rt_safetensors_create(d, &w) : AMPC_NO_MEMORY;
    if (status != AMPC_OK) rt_no_memory(d);
    if (status == AMPC_OK) status = put_metadata(w, s, m, run, d);
    if (status == AMPC_OK) status = put_tensors(w, s, m, wholes, position, d);
    if (status == AMPC_OK) status = rt_safetensors_commit(w, path, NULL);
    else rt_safetensors_discard(w);
    rt_free(wholes);
    return status;
}

/* ---- reading, stage one: the bytes ---- */

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
        f->target[i] = RT_CHECKPOINT_NOWHERE;
        f->bytes[i] = rt_alloc_block((size_t)e->bytes);
        if (!f->bytes[i]) return rt_no_memory(f->d);
        TRY(rt_safetensors_read(f->file, e, f->bytes[i]));
    }
    return AMPC_OK;
}

static bool starts_with(const char *text, const char *prefix) { return strncmp(text, prefix, strlen(prefix)) == 0; }

static bool has_parameters(const rt_safetensors *file)
{
    for (size_t i = 0; i < rt_safetensors_count(file); i++)
        if (starts_with(rt_safetensors_entry(file, i)->name, RT_CHECKPOINT_PARAM)) return true;
    return false;
}

/* Whether the file is not a checkpoint: weights of another program, or exported ones, which only have hashes. Ours
 * has three marks, so that no single damaged byte changes the answer. */
static bool is_foreign(const rt_safetensors *file)
{
    const int marks = (rt_safetensors_metadata(file, "version") != NULL) +
                      (rt_safetensors_metadata(file, "xxh3") != NULL) + has_parameters(file);
    return marks < 2;
}

static ampc_status open_file(rt_checkpoint_file *f, rt_checkpoint_part part)
{
    if (part == RT_CHECKPOINT_WEIGHTS) {
        TRY(rt_safetensors_open(f->path, RT_VERIFY_RECORDED, f->d, &f->file));
        f->foreign = is_foreign(f->file);
        if (f->foreign) return AMPC_OK;
        rt_safetensors_close(f->file);
        f->file = NULL;
    }
    return rt_safetensors_open(f->path, RT_VERIFY_ALL, f->d, &f->file);
}

const void *rt_checkpoint_file_bytes(const rt_checkpoint_file *f, const char *name, ir_dtype dtype, size_t n)
{
    const rt_tensor_entry *e = rt_safetensors_find(f->file, name);
    const bool fits = e && e->dtype == dtype && e->bytes == n * ir_dtype_size(dtype);
    return fits ? f->bytes[e - rt_safetensors_entry(f->file, 0)] : NULL;
}

ampc_status rt_checkpoint_file_open(const char *path, rt_checkpoint_part part, diag *d, rt_checkpoint_file **out)
{
    rt_checkpoint_file *f = rt_alloc(1, sizeof *f);
    if (!f) return rt_no_memory(d);
    f->d = d;
    f->path = strdup(path);
    ampc_status status = f->path ? open_file(f, part) : rt_no_memory(d);
    if (status == AMPC_OK) status = read_entries(f);
    if (status == AMPC_OK) *out = f;
    else rt_checkpoint_file_free(f);
    return status;
}
