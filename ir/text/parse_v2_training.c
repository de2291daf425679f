/* parse_v2_training.c - before version 3, what passes and runtime need to know was in `meta` lines:
 *
 *   "amp" "O1 f16"           "fuse" "off"             "window" "4"
 *   "loss_kind" "ce+mse"     "class_axis" "2"         (of the first loss with classes)
 *   "normalize" "AFTER SHIFT/SHIFT/.. SCALE/SCALE/.. INPUT"
 *   "parts.OUTPUT" "FACTOR [sum ]VALUE[ / WEIGHT] + .."
 *   "opset" "17"             "opset.DOMAIN" "3"       "codes" JSON
 *   "exporter" WORD          "untied" "on"            "export.batch" "1"
 *   "export.FACT" "COUNT NAME, NAME, .."
 *   "recipe" FILE            "model.NAME" FILE
 *   "loss.NAME" "LINE KIND,KEY=VALUE,..:OUTPUT,TARGET+.."
 *   "train.N" "LINE GLOB,.. by OPTIMIZER on LOSS+.."
 *
 * and the terms of a loss were known by the names of their outputs, "loss.NAME". */
#include "ir/graph/exported.h"
#include "ir/text/parser.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct converter {
    ir_parser *p;
    ir_training *t;
    arena *arena;
    const char *key, *value;
    const char *name; /* the rest of the key */
    const char *kinds, *axis;
} converter;

static ampc_status fail(const converter *c, const char *expected)
{
    return diag_error(c->p->diag, AMPC_REJECTED, DIAG_FILE(c->p->file), "meta \"%s\": expected %s", c->key, expected);
}

/* Cuts the text at the separator and returns what follows; NULL if it does not occur. */
static char *cut(char *text, const char *separator)
{
    char *at = strstr(text, separator);
    if (!at) return NULL;
    *at = '\0';
    return at + strlen(separator);
}

static ir_names split(const converter *c, char *text, const char *separator)
{
    VEC(const char *) items = {0};
    for (char *rest; text; text = rest) {
        rest = cut(text, separator);
        if (*text) vec_push(c->arena, &items, text);
    }
    return (ir_names){items.items, (int)items.count};
}

/* Splits "LINE TEXT". */
static char *read_line(const converter *c, int *line)
{
    char *text = arena_strdup(c->arena, c->value);
    const size_t digits = strspn(text, "0123456789");
    const long number = strtol(text, NULL, 10);
    *line = number > 0 && number < 1 << 30 ? (int)number : 0;
    return text + digits + (text[digits] == ' ');
}

/* ---- losses and optimizers ------------------------------------------------------------------------------- */

static ir_compared compared_by(const char *kind)
{
    static const struct {
        const char *kind;
        ir_compared compared;
    } kinds[] = {{"ce", IR_COMPARED_classes},    {"nll", IR_COMPARED_classes},       {"soft_ce", IR_COMPARED_classes},
                 {"graph", IR_COMPARED_classes}, {"bce", IR_COMPARED_probabilities}, {"focal", IR_COMPARED_binary},
                 {"mse", IR_COMPARED_values},    {"bce_logits", IR_COMPARED_binary}, {"l1", IR_COMPARED_values},
                 {"huber", IR_COMPARED_values},  {"smooth_l1", IR_COMPARED_values}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].kind, kind) == 0) return kinds[i].compared;
    return IR_COMPARED_nothing;
}

/* A term of "loss.NAME". */
static void convert_term(const converter *c, char *text, int line)
{
    ir_loss l = {.name = c->name, .options = "", .weight = 1, .axis = 1, .line = line};
    char *output = cut(text, ":"), *options = cut(text, ",");
    l.kind = text;
    if (options) l.options = options;
    if (output) {
        char *target = strrchr(output, ',');
        if (target) *target++ = '\0';
        l.output = output;
        l.target = target;
    }
    vec_push(c->arena, &c->t->losses, l);
}

static ampc_status convert_loss(converter *c)
{
    int line;
    char *text = read_line(c, &line);
    while (text) { /* a term begins with a letter */
        char *end = text;
        while (*end && !(*end == '+' && isalpha((unsigned char)end[1]))) end++;
        char *next = *end ? end + 1 : NULL;
        *end = '\0';
        convert_term(c, text, line ? line : 1);
        text = next;
    }
    return AMPC_OK;
}

static ampc_status convert_train(converter *c)
{
    ir_trainer t = {0};
    char *globs = read_line(c, &t.line), *optimizer = cut(globs, " by "),
         *losses = optimizer ? cut(optimizer, " on ") : NULL;
    if (losses) {
        t.globs = split(c, globs, ",");
        t.losses = split(c, losses, "+");
        t.optimizer = optimizer;
    }
    if (!t.globs.count || !t.losses.count) return fail(c, "LINE GLOBS by OPTIMIZER on LOSSES");
    if (!t.line) t.line = 1;
    vec_push(c->arena, &c->t->trainers, t);
    return AMPC_OK;
}

static ampc_status convert_model(converter *c)
{
    vec_push(c->arena, &c->t->models, ((ir_model_file){c->name, c->value}));
    return AMPC_OK;
}

static ampc_status keep_recipe(converter *c)
{
    c->t->recipe = c->value;
    return AMPC_OK;
}

static ampc_status keep_kinds(converter *c)
{
    c->kinds = c->value;
    return AMPC_OK;
}

static ampc_status keep_axis(converter *c)
{
    c->axis = c->value;
    return AMPC_OK;
}

/* The losses of a compiled module are those of its recipe, or had no other text. */
static void convert_kinds(const converter *c)
{
    const ir_names kinds = split(c, arena_strdup(c->arena, c->kinds), "+");
    const bool named = c->t->losses.count == (size_t)kinds.count;
    if (!named) c->t->losses.count = 0;
    int64_t axis = 1;
    if (c->axis && (!ir_int_parse(c->axis, &axis) || axis < 0 || axis >= IR_MAX_RANK)) axis = 1;
    for (int i = 0; i < kinds.count; i++) {
        ir_loss l = {.name = kinds.items[i], .kind = kinds.items[i], .options = "", .weight = 1};
        if (!named) vec_push(c->arena, &c->t->losses, l);
        c->t->losses.items[i].compared = compared_by(kinds.items[i]);
        c->t->losses.items[i].axis = (int)axis;
    }
}

/* ---- the others ------------------------------------------------------------------------------------------ */

static ampc_status convert_amp(converter *c)
{
    char *level = arena_strdup(c->arena, c->value), *low = cut(level, " ");
    level[strcspn(level, " ")] = '\0';
    if (!*level || strlen(level) > IR_PRECISION_TEXT / 2) return fail(c, "a level");
    c->t->level = level;
    c->t->low = low ? ir_dtype_parse(low) : IR_NO_DTYPE;
    return AMPC_OK;
}

static ampc_status convert_fuse(converter *c)
{
    c->t->unfused = strcmp(c->value, "off") == 0;
    return AMPC_OK;
}

static ampc_status convert_window(converter *c)
{
    if (ir_int_parse(c->value, &c->t->window) && c->t->window > 0 && c->t->window <= INT32_MAX) return AMPC_OK;
    return fail(c, "a number");
}

static bool read_floats(const converter *c, char *text, float **out, int *count)
{
    const ir_names items = split(c, text, "/");
    *count = items.count;
    *out = arena_array(c->arena, (size_t)items.count + 1, sizeof **out);
    for (int i = 0; i < items.count; i++) {
        double number;
        if (!ir_float_parse(items.items[i], &number)) return false;
        (*out)[i] = (float)number;
        if (!isfinite((*out)[i])) return false;
    }
    return items.count > 0;
}

static ampc_status convert_normalize(converter *c)
{
    ir_normalization n = {0};
    int64_t after = -1;
    int count = 0;
    char *number = arena_strdup(c->arena, c->value), *shift = cut(number, " "), *scale = shift ? cut(shift, " ") : NULL;
    char *input = scale ? cut(scale, " ") : NULL;
    const bool ok = input && *input && ir_int_parse(number, &after) && after >= 0 && after < IR_MAX_RANK &&
                    read_floats(c, shift, &n.shift, &n.count) && read_floats(c, scale, &n.scale, &count);
    if (!ok || count != n.count) return fail(c, "AFTER SHIFTS SCALES INPUT");
    n.input = input;
    n.after = (int)after;
    c->t->normalization = n;
    return AMPC_OK;
}

static ampc_status convert_parts(converter *c)
{
    const ir_names parts = split(c, arena_strdup(c->arena, c->value), " + ");
    ir_addend *addends = arena_array(c->arena, (size_t)parts.count + 1, sizeof *addends);
    for (int i = 0; i < parts.count; i++) {
        char *factor = arena_strdup(c->arena, parts.items[i]), *value = cut(factor, " ");
        if (!value || !ir_float_parse(factor, &addends[i].factor)) return fail(c, "FACTOR VALUE + ..");
        addends[i].sum = strncmp(value, "sum ", 4) == 0;
        if (addends[i].sum) value += 4;
        addends[i].weight = cut(value, " / ");
        addends[i].value = value;
    }
    const ir_mean mean = {c->name, addends, parts.count};
    vec_push(c->arena, &c->t->means, mean);
    return AMPC_OK;
}

static ampc_status convert_opset(converter *c)
{
    int64_t version;
    if (!ir_int_parse(c->value, &version) || version > INT32_MAX || version < (*c->name ? INT32_MIN : 1))
        return fail(c, "a number");
    ir_training_set_opset(c->t, c->arena, c->name, version);
    return AMPC_OK;
}

static ampc_status keep_codes(converter *c)
{
    c->t->codes = c->value;
    return AMPC_OK;
}

static ampc_status convert_exporter(converter *c)
{
    for (int i = 0; i < IR_EXPORTER_COUNT; i++)
        if (strcmp(ir_exporters[i].word, c->value) == 0) c->t->exported.exporter = (ir_exporter)i;
    return AMPC_OK;
}

static ampc_status convert_untied(converter *c)
{
    c->t->exported.untied = true;
    return AMPC_OK;
}

static ampc_status convert_batch(converter *c)
{
    if (ir_int_parse(c->value, &c->t->exported.batch) && c->t->exported.batch > 0) return AMPC_OK;
    return fail(c, "a number");
}

static ampc_status convert_fact(converter *c)
{
    char *names = cut(arena_strdup(c->arena, c->value), " ");
    for (int i = 0; i < IR_FACT_COUNT && names; i++)
        if (strcmp(ir_facts[i].word, c->name) == 0) c->t->exported.facts[i] = split(c, names, ", ");
    return AMPC_OK;
}

/* ---- the table ------------------------------------------------------------------------------------------- */

static const struct entry {
    const char *key;
    ampc_status (*convert)(converter *c);
} entries[] = {{"amp", convert_amp},       {"fuse", convert_fuse},          {"window", convert_window},
               {"loss_kind", keep_kinds},  {"class_axis", keep_axis},       {"normalize", convert_normalize},
               {"recipe", keep_recipe},    {"parts.", convert_parts},       {"model.", convert_model},
               {"loss.", convert_loss},    {"train.", convert_train},       {"exporter", convert_exporter},
               {"untied", convert_untied}, {"export.batch", convert_batch}, {"export.", convert_fact},
               {"opset", convert_opset},   {"opset.", convert_opset},       {"codes", keep_codes}};

/* The row of the key, which is the whole key, or its beginning up to the dot. */
static const struct entry *find_entry(const char *key, const char **name)
{
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        const size_t n = strlen(entries[i].key);
        const bool prefix = entries[i].key[n - 1] == '.';
        *name = key + n;
        if (strncmp(key, entries[i].key, n) == 0 && (prefix ? **name != 0 : !**name)) return &entries[i];
    }
    return NULL;
}

/* Marks the terms of the loss among the outputs. */
static void convert_outputs(ir_graph *g)
{
    const char *prefix = ir_output_roles[IR_OUTPUT_loss_term].name;
    for (ir_node *n = ir_first_output(g); n; n = ir_next_output(n)) {
        const ir_type *type = &ir_in(n, 0)->type;
        if (n->role == IR_OUTPUT_result && strncmp(ir_output_name(n), prefix, strlen(prefix)) == 0 && type->rank == 0 &&
            ir_dtype_is_float(type->dtype))
            n->role = IR_OUTPUT_loss_term;
    }
}

ampc_status ir_convert_meta(ir_parser *p)
{
    ir_module *m = p->module;
    converter c = {.p = p, .t = &m->training, .arena = m->arena};
    size_t kept = 0;
    for (size_t i = 0; i < m->meta.count; i++) {
        const ir_meta meta = m->meta.items[i];
        const bool shown = strcmp(meta.key, IR_EXPORTED_MODE) == 0;
        const struct entry *e = shown ? NULL : find_entry(meta.key, &c.name);
        if (!e) m->meta.items[kept++] = meta;
        c.key = meta.key;
        c.value = meta.value;
        if (e) TRY(e->convert(&c));
    }
    m->meta.count = kept;
    if (c.kinds) convert_kinds(&c);
    for (size_t i = 0; i < m->graphs.count; i++)
        if (ir_output_by_role(m->graphs.items[i], IR_OUTPUT_loss)) convert_outputs(m->graphs.items[i]);
    return AMPC_OK;
}
