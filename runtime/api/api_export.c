/* api_export.c - export to ONNX: a session's weights merged into the imported model file, or a graph of a module as a
 * new model. */
#include "runtime/api/export.h"

#include "frontend/onnx.h"
#include "ir/base/text_buffer.h"
#include "ir/base/utf8.h"
#include "passes/amp/consumer.h"
#include "runtime/files/atomic_file.h"
#include "runtime/files/safetensors.h"
#include "runtime/train/checkpoint.h"
#include "runtime/backend/memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DATA_ENDING ".data"

/* ---- the two files ---- */

typedef struct export_files {
    const char *path[2]; /* indexed by onnx_part */
    rt_atomic_file *file[2];
    diag *d;
} export_files;

/* The user chose only the model's path. An existing file at the data path is replaced, and a symbolic link there is
 * not followed. */
static ampc_status write_part(void *user, onnx_part part, const void *bytes, size_t n)
{
    export_files *f = user;
    if (!f->file[part])
        TRY((part == ONNX_PART_MODEL ? rt_atomic_open : rt_atomic_open_new)(f->path[part], f->d, &f->file[part]));
    return rt_atomic_write(f->file[part], bytes, n);
}

static ampc_status commit(export_files *f)
{
    rt_atomic_file *data = f->file[ONNX_PART_DATA], *model = f->file[ONNX_PART_MODEL];
    f->file[ONNX_PART_DATA] = f->file[ONNX_PART_MODEL] = NULL;
    return rt_atomic_commit_both(data, model);
}

/* ---- the weights ---- */

/* What is exported under the name of a parameter or buffer: its moving average, if there is one. */
static int find_exported(const ir_module *m, int storage)
{
    for (size_t i = 0; i < m->storage.count; i++) {
        const ir_storage *s = m->storage.items[i];
        if (s->kind == IR_STATE && s->role == IR_STATE_average && s->of->id == m->storage.items[storage]->id)
            return (int)i;
    }
    return storage;
}

/* The name in the file of the model; NULL: the storage belongs to another model of the recipe. */
static const char *name_in_file(const ir_storage *storage, const char *model)
{
    const size_t length = model ? strlen(model) : 0;
    if (!model) return storage->name;
    return strncmp(storage->name, model, length) == 0 && storage->name[length] == '.' ? storage->name + length + 1
                                                                                      : NULL;
}

/* Fills out[rt_session_storage_count(s)] with the parameters and buffers of the model. */
static ampc_status list_weights(rt_session *s, const ir_module *m, const char *model, diag *d, onnx_trained *out,
                                int *n)
{
    *n = 0;
    for (size_t i = 0; i < m->storage.count; i++) {
        rt_tensor t;
        const ir_storage *storage = m->storage.items[i];
        const char *name = name_in_file(storage, model);
        if (!rt_checkpoint_is_weight(storage) || storage->of || !name) continue;
        TRY(rt_session_read(s, find_exported(m, (int)i), d, &t));
        out[(*n)++] = (onnx_trained){name, ir_type_make(t.dtype, t.rank, t.dims), t.data};
    }
    return AMPC_OK;
}

/* ---- paths ---- */

/* Path of the imported model, malloced: "" if the module names none, NULL if memory is exhausted. */
static char *find_source(const ir_module *m, const char *model, const char *folder)
{
    char *path = NULL;
    const char *source = model ? ir_training_model(&m->training, model) : ir_module_source(m);
    if (!source || access(source, R_OK) == 0 || source[0] == '/' || !folder) return strdup(source ? source : "");
    if (asprintf(&path, "%s/%s", folder, source) < 0) return NULL;
    if (access(path, R_OK) == 0) return path;
    free(path);
    return strdup(source);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool is_plain_text(const char *s)
{
    uint32_t code;
    for (size_t n; *s; s += n)
        if (!(n = utf8_decode(s, strlen(s), &code)) || code < ' ' || code == 0x7f) return false;
    return true;
}

static ampc_status check_name(const char *path, diag *d)
{
    if (is_plain_text(base_name(path))) return AMPC_OK;
    return diag_error(d, AMPC_USAGE, DIAG_FILE(path), "a model refers to its data by name: the name must be UTF-8");
}

static ampc_status check_names(const ir_module *m, const char *source, const char *path, diag *d)
{
    if (!*source)
        return diag_error(d, AMPC_REJECTED, DIAG_FILE(path),
                          "the module does not name the model that it was compiled from");
    if (!m->image.path && access(source, R_OK) != 0)
        return diag_error(d, AMPC_IO, DIAG_FILE(source),
                          "%s: an export rewrites the model that was compiled, so it must still be there",
                          strerrordesc_np(errno));
    return check_name(path, d);
}

/* ---- export ---- */

/* The names that the model is to keep; NULL: the data have none. */
static const char *codes_of(const rt_session *s)
{
    const char *codes = rt_session_codes(s);
    return codes && strcmp(codes, "{}") != 0 ? codes : NULL;
}

/* A module that is made from a recipe has several models, of which one is exported. */
static ampc_status check_model(const ir_module *m, const char *model, const char *source, diag *d)
{
    const char *recipe = m->training.recipe;
    if (!model == !recipe && *source) return AMPC_OK;
    if (!recipe && model) return diag_error(d, AMPC_USAGE, DIAG_OPTION(model), "the module is not made from a recipe");
    if (!recipe) return AMPC_OK;
    if (m->training.models.count)
        return diag_error(d, AMPC_USAGE, DIAG_USE(DIAG_FILE(recipe), OPTION_model, .value = "NAME"),
                          model ? "the recipe has no model '%s'; one is '%s'"
                                : "choose the model of the recipe%s, such as '%s'",
                          model ? model : "", m->training.models.items->name);
    return diag_error(d, AMPC_REJECTED, DIAG_FILE(recipe), "the module names no model");
}

static ampc_status export_to(rt_session *s, const ir_module *m, const char *model, const char *source,
                             export_files *files, onnx_trained *trained)
{
    int n;
    TRY(check_model(m, model, source, files->d));
    TRY(list_weights(s, m, model, files->d, trained, &n));
    const onnx_export_options o = {.trained = trained,
                                   .n_trained = n,
                                   .image = m->image.path ? &m->image : NULL,
                                   .untied = m->training.exported.untied,
                                   .codes = codes_of(s),
                                   .normalization = m->training.normalization.input ? &m->training.normalization : NULL,
                                   .data_name = base_name(files->path[ONNX_PART_DATA]),
                                   .write = write_part,
                                   .user = files};
    TRY(check_names(m, source, files->path[ONNX_PART_MODEL], files->d));
    TRY(onnx_export_trained(source, &o, files->d));
    return commit(files);
}

ampc_status rt_export_onnx(rt_session *s, const ir_module *m, const char *model, const char *folder, const char *path,
                           diag *d)
{
    char *data = NULL, *source = find_source(m, model, folder);
    onnx_trained *trained = calloc((size_t)rt_session_storage_count(s) + 1, sizeof *trained);
    if (asprintf(&data, "%s" DATA_ENDING, path) < 0) data = NULL;
    export_files files = {.path = {[ONNX_PART_DATA] = data, [ONNX_PART_MODEL] = path}, .d = d};
    ampc_status status = source && trained && data ? export_to(s, m, model, source, &files, trained) : rt_no_memory(d);
    for (int part = ONNX_PART_DATA; part <= ONNX_PART_MODEL; part++) rt_atomic_abort(files.file[part]);
    free(trained);
    free(source);
    free(data);
    return status;
}

/* ---- weights alone ---- */

static ampc_status write_weights(rt_session *s, const ir_module *m, const char *model, const char *path,
                                 onnx_trained *trained, diag *d)
{
    int n;
    rt_safetensors_writer *w;
    ampc_status status = AMPC_OK;
    TRY(list_weights(s, m, model, d, trained, &n));
    TRY(rt_safetensors_create(d, &w));
    for (int i = 0; i < n && status == AMPC_OK; i++) {
        const ir_type *t = &trained[i].type;
        status = rt_safetensors_add(w, trained[i].name, t->dtype, t->rank, t->dims, trained[i].data);
    }
    if (status == AMPC_OK) return rt_safetensors_commit(w, path, NULL);
    rt_safetensors_discard(w);
    return status;
}

ampc_status rt_export_weights(rt_session *s, const ir_module *m, const char *model, const char *path, diag *d)
{
    char *source = find_source(m, model, NULL);
    onnx_trained *trained = calloc((size_t)rt_session_storage_count(s) + 1, sizeof *trained);
    ampc_status status = source && trained ? check_model(m, model, source, d) : rt_no_memory(d);
    if (status == AMPC_OK) status = write_weights(s, m, model, path, trained, d);
    free(trained);
    free(source);
    return status;
}

onnx_emit_options rt_emit_options(compile *c)
{
    onnx_emit_options o = {.casts = &c->report.casts_inserted, .opset = (int)c->options->opset};
    if (c->consumer) o.max_opset = (int)c->consumer->opset, o.reader = c->consumer->name;
    return o;
}

ampc_status rt_emit_onnx(const ir_module *m, const char *graph, const char *path, const onnx_emit_options *options,
                         diag *d)
{
    char *data = NULL;
    if (asprintf(&data, "%s" DATA_ENDING, path) < 0) return rt_no_memory(d);
    export_files files = {.path = {[ONNX_PART_DATA] = data, [ONNX_PART_MODEL] = path}, .d = d};
    onnx_emit_options o = options ? *options : (onnx_emit_options){0};
    o.data_name = base_name(data), o.write = write_part, o.user = &files;
    ampc_status status = check_name(path, d);
    if (status == AMPC_OK) status = onnx_emit(m, graph, &o, d);
    if (status == AMPC_OK) status = commit(&files);
    for (int part = ONNX_PART_DATA; part <= ONNX_PART_MODEL; part++) rt_atomic_abort(files.file[part]);
    free(data);
    return status;
}

/* ---- memory ---- */

typedef struct buffer {
    text_buffer bytes;
    diag *d;
} buffer;

static ampc_status append(void *user, onnx_part part, const void *bytes, size_t n)
{
    buffer *b = user;
    if (part == ONNX_PART_DATA)
        return diag_error(b->d, AMPC_UNSUPPORTED, DIAG_NOWHERE,
                          "the model is too large to be in memory without a file");
    text_add_bytes(&b->bytes, bytes, n);
    return b->bytes.failed ? rt_no_memory(b->d) : AMPC_OK;
}

ampc_status rt_emit_onnx_memory(const ir_module *m, const char *graph, const onnx_emit_options *options, diag *d,
                                void **bytes, size_t *n)
{
    buffer b = {.d = d};
    onnx_emit_options o = *options;
    o.data_name = "", o.write = append, o.user = &b;
    ampc_status status = onnx_emit(m, graph, &o, d);
    if (status != AMPC_OK) {
        free(b.bytes.data);
        return status;
    }
    *bytes = b.bytes.data;
    *n = b.bytes.length;
    return AMPC_OK;
}
