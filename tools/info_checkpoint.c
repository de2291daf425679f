/* info_checkpoint.c - describes a checkpoint, a folder of checkpoints, or weights of another program. Every tensor is
 * read, so a damaged file is an error. */
#include "ir/ops/shape_text.h"
#include "runtime/data/codebook.h"
#include "runtime/files/io.h"
#include "runtime/train/checkpoint_file.h"
#include "tools/info.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { SHOWN = 64 }; /* tensors that are printed */

typedef struct checkpoint {
    tool *tool;
    const char *path;
    rt_names folder; /* all checkpoints of the folder; none: the operand is a file */
    rt_checkpoint_file *file;
    rt_run_state run; /* not of weights of another program */
    rt_codebook codes;
} checkpoint;

/* ---- what the file has ------------------------------------------------------------------------- */

/* The tensors whose names begin with a prefix, which describes what they are. */
typedef struct tensor_group {
    const char *prefix, *label, *key;
    bool listed; /* one by one */
} tensor_group;

#define KEY(role) ir_state_roles[IR_STATE_##role].key

static tensor_group group_at(const checkpoint *c, int i)
{
    const tensor_group groups[] = {
        {RT_CHECKPOINT_PARAM, "parameters", "parameters", true}, {KEY(buffer), "buffers", "buffers", true},
        {KEY(average), "averages", "averages", false},           {KEY(slot), "slots", "slots", false},
        {KEY(grad_sum), "gradients", "gradient_sums", false},    {NULL, NULL, NULL, false}};
    const tensor_group others[] = {{"", "tensors", "tensors", true}, {NULL, NULL, NULL, false}};
    return c->file->foreign ? others[i] : groups[i];
}

static size_t count_entries(const checkpoint *c) { return rt_safetensors_count(c->file->file); }

static const rt_tensor_entry *entry_at(const checkpoint *c, size_t i) { return rt_safetensors_entry(c->file->file, i); }

static bool is_in(const rt_tensor_entry *e, const char *prefix)
{
    return strncmp(e->name, prefix, strlen(prefix)) == 0;
}

typedef struct totals {
    int64_t tensors, elements, bytes;
    const char *types; /* "f32, f16" */
} totals;

static int64_t elements_of(const rt_tensor_entry *e)
{
    int64_t n = e->bytes != 0; /* the bytes have been checked */
    for (int i = 0; n && i < e->rank; i++) n *= e->dims[i];
    return n;
}

static const char *type_of(const rt_tensor_entry *e)
{
    return e->dtype == IR_NO_DTYPE ? e->type : ir_dtype_name(e->dtype);
}

static void add_type(totals *t, const char *type, arena *a)
{
    if (!t->types) t->types = type;
    else if (!strstr(t->types, type)) t->types = arena_printf(a, "%s, %s", t->types, type);
}

static totals sum_entries(const checkpoint *c, const char *prefix)
{
    totals t = {.types = NULL};
    for (size_t i = 0; i < count_entries(c); i++) {
        const rt_tensor_entry *e = entry_at(c, i);
        if (!is_in(e, prefix)) continue;
        t.tensors++;
        t.elements += elements_of(e);
        t.bytes += (int64_t)e->bytes;
        add_type(&t, type_of(e), c->tool->arena);
    }
    return t;
}

static const char *shape_text(const checkpoint *c, const rt_tensor_entry *e)
{
    return ir_shape_text(arena_alloc(c->tool->arena, IR_SHAPE_TEXT), type_of(e), e->rank, e->dims);
}

static const char *metadata(const checkpoint *c, const char *key)
{
    return rt_safetensors_metadata(c->file->file, key);
}

/* A scalar state as text; NULL: the file has none. */
static const char *scalar_text(const checkpoint *c, ir_state_role role)
{
    const ir_state_role_info *info = &ir_state_roles[role];
    const void *bytes = rt_checkpoint_file_bytes(c->file, info->key, info->dtype, 1);
    if (!bytes) return NULL;
    if (ir_dtype_is_float(info->dtype)) return arena_printf(c->tool->arena, "%.9g", ir_load_f64(info->dtype, bytes));
    return arena_printf(c->tool->arena, "%" PRId64, ir_load_i64(info->dtype, bytes));
}

/* ---- sections ---------------------------------------------------------------------------------- */

static void print_file(const void *subject)
{
    const checkpoint *c = subject;
    const char *version = metadata(c, "version");
    if (c->file->foreign) info_line("weights", "%s, without the state of a training", c->path);
    else info_line("checkpoint", "%s, version %s, all tensors intact", c->path, version);
    for (size_t i = 0; c->folder.count > 1 && i < c->folder.count; i++)
        if (strcmp(c->folder.items[i], c->path) != 0) info_line("", "also %s", c->folder.items[i]);
}

static void write_file(const void *subject, json_writer *w)
{
    const checkpoint *c = subject;
    json_write_string(w, "file", c->path);
    json_write_bool(w, "checkpoint", !c->file->foreign);
    if (metadata(c, "version")) json_write_string(w, "version", metadata(c, "version"));
    if (c->folder.count) info_write_strings(w, "folder", (const char *const *)c->folder.items, c->folder.count);
}

/* Metadata that is text; a NULL label: not printed. */
static const struct text_row {
    const char *key, *label;
} texts[] = {{"source", "compiled"},  {"model", NULL},   {"network", "network"},
             {"amp", "precision"},    {"list", "lists"}, {"optimizer", "optimizer"},
             {"schedule", "schedule"}};
enum { TEXTS = sizeof texts / sizeof *texts };

static void print_texts(const void *subject)
{
    const checkpoint *c = subject;
    for (size_t i = 0; i < TEXTS; i++) {
        const char *text = metadata(c, texts[i].key);
        if (text && *text && texts[i].label) info_line(texts[i].label, "%s", text);
    }
}

static void write_texts(const void *subject, json_writer *w)
{
    const checkpoint *c = subject;
    for (size_t i = 0; i < TEXTS; i++)
        if (metadata(c, texts[i].key)) json_write_string(w, texts[i].key, metadata(c, texts[i].key));
}

static void print_progress(const void *subject)
{
    const checkpoint *c = subject;
    const rt_run_state *r = &c->run;
    if (c->file->foreign) return;
    info_line("progress",
              "step %" PRIu64 ", %" PRIu64 " of them skipped; epoch %" PRIu64 ", %" PRIu64 " batches of it used",
              r->step, r->skipped, r->position.epoch + 1, r->position.batch);
    if (r->rows)
        info_line("", "%" PRId64 " samples, batch %" PRId64 ", seed %" PRIu64, r->rows, r->batch, r->position.seed);
    if (r->before_reset) info_line("", "the optimizer was reset after %" PRId64 " steps", r->before_reset);
}

static void write_progress(const void *subject, json_writer *w)
{
    const checkpoint *c = subject;
    const rt_run_state *r = &c->run;
    if (c->file->foreign) return;
    json_write_integer(w, "step", (int64_t)r->step);
    json_write_integer(w, "skipped", (int64_t)r->skipped);
    json_write_integer(w, "stuck", (int64_t)r->stuck);
    json_write_integer(w, "epoch", (int64_t)r->position.epoch);
    json_write_integer(w, "epoch_batch", (int64_t)r->position.batch);
    json_write_integer(w, "seed", (int64_t)r->position.seed);
    json_write_integer(w, "rows", r->rows);
    json_write_integer(w, "batch", r->batch);
    json_write_integer(w, "before_reset", r->before_reset);
}

static const ir_state_role scalars[] = {IR_STATE_lr,         IR_STATE_step,      IR_STATE_loss_scale,
                                        IR_STATE_good_steps, IR_STATE_bad_steps, IR_STATE_micro_batches};
enum { SCALARS = sizeof scalars / sizeof *scalars };

static const int64_t *random_state(const checkpoint *c)
{
    return rt_checkpoint_file_bytes(c->file, KEY(rng), IR_i64, 2);
}

static void print_scalars(const void *subject)
{
    const checkpoint *c = subject;
    const char *text = NULL;
    const int64_t *random = random_state(c);
    for (size_t i = 0; i < SCALARS; i++) {
        const char *value = scalar_text(c, scalars[i]), *word = ir_state_words[scalars[i]];
        if (value) text = arena_printf(c->tool->arena, "%s%s%s %s", text ? text : "", text ? ", " : "", word, value);
    }
    if (text) info_line("state", "%s", text);
    if (!c->file->foreign && !scalar_text(c, IR_STATE_loss_scale)) info_line("", "no loss scaling");
    if (random) info_line("random", "key %" PRId64 ", counter %" PRId64, random[0], random[1]);
}

static void write_scalars(const void *subject, json_writer *w)
{
    const checkpoint *c = subject;
    const int64_t *random = random_state(c);
    json_begin(w, "state", '{');
    for (size_t i = 0; i < SCALARS; i++) {
        const ir_state_role_info *info = &ir_state_roles[scalars[i]];
        const void *bytes = rt_checkpoint_file_bytes(c->file, info->key, info->dtype, 1);
        if (!bytes) continue;
        if (ir_dtype_is_float(info->dtype))
            json_write_real(w, ir_state_words[scalars[i]], "%.9g", ir_load_f64(info->dtype, bytes));
        else json_write_integer(w, ir_state_words[scalars[i]], ir_load_i64(info->dtype, bytes));
    }
    json_end(w, '}');
    if (!random) return;
    json_begin(w, "random", '[');
    json_write_integer(w, NULL, random[0]);
    json_write_integer(w, NULL, random[1]);
    json_end(w, ']');
}

static void print_monitor(const char *label, const rt_monitor_state *m)
{
    if (!m->metric[0]) return;
    info_line(label, "%s %.9g at step %" PRIu64 ", %" PRId64 " worse evaluation%s since then", m->metric, m->best,
              m->step, m->bad, m->bad == 1 ? "" : "s");
}

static void print_monitors(const void *subject)
{
    const checkpoint *c = subject;
    print_monitor("best", &c->run.best);
    print_monitor("early stop", &c->run.early_stop);
    if (c->run.plateau.means)
        info_line("plateau", "rate %.9g, best mean loss %.9g, %" PRId64 " means without improvement",
                  c->run.plateau.rate, c->run.plateau.best, c->run.plateau.bad);
}

static void write_monitor(json_writer *w, const char *key, const rt_monitor_state *m)
{
    if (!m->metric[0]) return;
    json_begin(w, key, '{');
    json_write_string(w, "metric", m->metric);
    json_write_real(w, "value", "%.17g", m->best);
    json_write_integer(w, "step", (int64_t)m->step);
    json_write_integer(w, "evaluations_since", m->bad);
    json_end(w, '}');
}

static void write_monitors(const void *subject, json_writer *w)
{
    const checkpoint *c = subject;
    write_monitor(w, "best", &c->run.best);
    write_monitor(w, "early_stop", &c->run.early_stop);
    if (c->run.plateau.means) json_write_real(w, "plateau_rate", "%.9g", c->run.plateau.rate);
}

static const char *code_text(const checkpoint *c, const rt_code *code)
{
    const char *text = "";
    if (!code->names.count) return arena_printf(c->tool->arena, "mean %.9g", code->mean);
    for (size_t i = 0; i < code->names.count && i < SHOWN; i++)
        text = arena_printf(c->tool->arena, "%s%s%zu = %s", text, i ? ", " : "", i, code->names.items[i]);
    return code->names.count > SHOWN ? arena_printf(c->tool->arena, "%s, ..", text) : text;
}

static void print_codes(const void *subject)
{
    const checkpoint *c = subject;
    for (size_t i = 0; i < c->codes.count; i++)
        info_line(i ? "" : "data", "%s: %s", c->codes.items[i].field, code_text(c, &c->codes.items[i]));
}

static void write_codes(const void *subject, json_writer *w)
{
    const checkpoint *c = subject;
    json_begin(w, "codes", '{');
    for (size_t i = 0; i < c->codes.count; i++) {
        const rt_code *code = &c->codes.items[i];
        if (!code->names.count) json_write_real(w, code->field, "%.17g", code->mean);
        else info_write_strings(w, code->field, (const char *const *)code->names.items, code->names.count);
    }
    json_end(w, '}');
}

/* ---- tensors ----------------------------------------------------------------------------------- */

/* ": m, v", the slots of the optimizer. */
static const char *slots_text(const checkpoint *c, const char *prefix)
{
    const char *text = ":", *last = "";
    if (strcmp(prefix, KEY(slot)) != 0) return "";
    for (size_t i = 0; i < count_entries(c); i++) {
        const char *name = entry_at(c, i)->name + strlen(prefix);
        if (!is_in(entry_at(c, i), prefix)) continue;
        const char *slot = arena_printf(c->tool->arena, " %.*s", (int)strcspn(name, "/"), name);
        if (!strstr(text, slot)) text = arena_printf(c->tool->arena, "%s%s%s", text, last, slot);
        last = ",";
    }
    return text;
}

static void print_tensors(const void *subject)
{
    const checkpoint *c = subject;
    for (int k = 0; group_at(c, k).prefix; k++) {
        const tensor_group g = group_at(c, k);
        const totals t = sum_entries(c, g.prefix);
        size_t shown = 0;
        if (!t.tensors) continue;
        info_line(g.label, "%" PRId64 " (%" PRId64 " elements, %" PRId64 " bytes) in %s%s", t.tensors, t.elements,
                  t.bytes, t.types, slots_text(c, g.prefix));
        for (size_t i = 0; g.listed && i < count_entries(c) && shown < SHOWN; i++)
            if (is_in(entry_at(c, i), g.prefix) && ++shown)
                info_line("", "%s: %s", entry_at(c, i)->name + strlen(g.prefix), shape_text(c, entry_at(c, i)));
        if (g.listed && (int64_t)shown < t.tensors)
            info_line("", "and %" PRId64 " more, which --json lists", t.tensors - (int64_t)shown);
    }
}

static void write_tensors(const void *subject, json_writer *w)
{
    const checkpoint *c = subject;
    for (int k = 0; group_at(c, k).prefix; k++) {
        const tensor_group g = group_at(c, k);
        const totals t = sum_entries(c, g.prefix);
        json_begin(w, g.key, '{');
        json_write_integer(w, "tensors", t.tensors);
        json_write_integer(w, "elements", t.elements);
        json_write_integer(w, "bytes", t.bytes);
        json_begin(w, "types", '{');
        for (size_t i = 0; i < count_entries(c); i++)
            if (is_in(entry_at(c, i), g.prefix))
                json_write_string(w, entry_at(c, i)->name + strlen(g.prefix), shape_text(c, entry_at(c, i)));
        json_end(w, '}');
        json_end(w, '}');
    }
}

/* ---- what to type next ------------------------------------------------------------------------- */

static const char *next_text(const checkpoint *c, int i)
{
    const char *operand = c->tool->o.operands.items[0];
    const char *const texts_of_file[] = {
        "ampc-run info MODEL --checkpoint=%s (says whether a model fits)",
        c->folder.count ? "ampc-run train MODEL --data=SPEC --epochs=N --checkpoint-dir=%s --resume"
                        : "ampc-run train MODEL --data=SPEC --epochs=N --checkpoint=%s",
        "ampc-run eval MODEL --data=SPEC --checkpoint=%s",
        "ampc-run export MODEL -o trained.onnx --checkpoint=%s",
    };
    if (i == sizeof texts_of_file / sizeof *texts_of_file) return NULL;
    const char *text = texts_of_file[i], *gap = strstr(text, "%s");
    return arena_printf(c->tool->arena, "%.*s%s%s", (int)(gap - text), text, operand, gap + 2);
}

static void print_next(const void *subject)
{
    for (int i = 0; next_text(subject, i); i++) info_print_next(next_text(subject, i), i == 0);
}

static void write_next(const void *subject, json_writer *w)
{
    json_begin(w, "next_commands", '[');
    for (int i = 0; next_text(subject, i); i++) json_write_string(w, NULL, next_text(subject, i));
    json_end(w, ']');
}

static const info_section sections[] = {
    {print_file, write_file},       {print_texts, write_texts},       {print_progress, write_progress},
    {print_scalars, write_scalars}, {print_monitors, write_monitors}, {print_codes, write_codes},
    {print_tensors, write_tensors}, {print_next, write_next},         {NULL, NULL},
};

/* ---- the operand ------------------------------------------------------------------------------- */

static bool is_folder(const char *path)
{
    struct stat facts;
    return stat(path, &facts) == 0 && S_ISDIR(facts.st_mode);
}

/* Whether the file begins with the length of a table as 8 bytes, of which the last are 0, and the table. */
static ampc_status has_table(const char *path, diag *d, bool *out)
{
    char bytes[9];
    struct stat facts;
    uint64_t size;
    int fd;
    *out = false;
    if (stat(path, &facts) != 0 && errno == ENOENT) return AMPC_OK; /* a SPEC of data, or a name with a mistake */
    TRY(rt_io_open_input(path, d, &fd, &size));
    const bool read = size < sizeof bytes || rt_io_pread(fd, bytes, sizeof bytes, 0);
    const ampc_status status = read ? AMPC_OK : diag_errno(d, DIAG_FILE(path), "cannot read");
    *out = read && size >= sizeof bytes && memcmp(bytes + 4, "\0\0\0\0{", 5) == 0;
    rt_io_close(fd);
    return status;
}

ampc_status info_is_checkpoint(const char *operand, diag *d, bool *out)
{
    rt_names all = {0};
    *out = tool_ends_with(operand, ".safetensors");
    if (!is_folder(operand)) return *out ? AMPC_OK : has_table(operand, d, out);
    const ampc_status status = rt_checkpoint_list(operand, d, &all);
    *out = all.count != 0;
    rt_names_clear(&all);
    return status;
}

/* The newest one of a folder; best.safetensors if there is no other. */
static ampc_status choose_file(checkpoint *c)
{
    const char *operand = c->tool->o.operands.items[0];
    c->path = operand;
    if (!is_folder(operand)) return AMPC_OK;
    TRY(rt_checkpoint_list(operand, c->tool->diag, &c->folder));
    const bool best = rt_checkpoint_has_best(operand) && c->folder.count > 1;
    c->path = c->folder.items[c->folder.count - 1 - best];
    return AMPC_OK;
}

static ampc_status describe(checkpoint *c)
{
    diag *d = c->tool->diag;
    TRY(choose_file(c));
    TRY(rt_checkpoint_file_open(c->path, RT_CHECKPOINT_WEIGHTS, d, &c->file));
    if (!c->file->foreign) TRY(rt_checkpoint_file_run(c->file, &c->run));
    if (metadata(c, RT_CHECKPOINT_CODES)) TRY(rt_codebook_parse(metadata(c, RT_CHECKPOINT_CODES), d, &c->codes));
    info_report(c->tool, sections, c);
    return AMPC_OK;
}

ampc_status info_checkpoint(tool *t)
{
    checkpoint c = {.tool = t};
    const ampc_status status = describe(&c);
    rt_codebook_clear(&c.codes);
    rt_checkpoint_file_free(c.file);
    rt_names_clear(&c.folder);
    return status;
}
