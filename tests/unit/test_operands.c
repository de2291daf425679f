/* test_operands.c - nodes that no exporter writes: for every operator, each operand absent in turn, too few and too
 * many operands and results, operands of any rank and type, attributes missing or out of range. Each node is either
 * rejected with a message that names it, or lowered (or imported as opaque) to a graph that verifies; nothing may
 * crash.
 *
 * All nodes of an operator are in one model, since lowering continues after an error. The nodes that no message names
 * form a second model, which must import. */
#include "frontend/onnx.h"
#include "frontend/read/tensor.h"
#include "tests/unit/model_writer.h"
#include "tests/unit/scratch.h"

#include <regex.h>

enum { MAX_OPERANDS = 11, MAX_RESULTS = 6, MAX_NODES = 1024 };

static int drawn = 60; /* nodes per operator with random operands and attributes */
static uint32_t base_seed = 1, seed;
static const char *only; /* operator; NULL: all */

/* ---- operands ---------------------------------------------------------------------------------- */

static const char *const operands[] = {
    "f0", "f1", "f2",   "f3",   "f4",   "f5",   "f8",    "s3",   "i0",
    "i1", "i3", "none", "huge", "axes", "half", "scale", "bool", "bytes",
};
enum { OPERANDS = sizeof operands / sizeof *operands };

static void add_operands(model *m)
{
    static const char *const dims[] = {"", "2", "2,2", "2,2,2", "2,4,2,2", "2,2,2,2,2", "1,2,1,2,1,2,1,2"};
    for (int i = 0; i < 7; i++) model_input(m, operands[i], ONNX_float32, dims[i]);
    model_input(m, "s3", ONNX_float32, "N,M,2");
    model_input(m, "bool", ONNX_bool, "2");
    model_input(m, "bytes", ONNX_uint8, "2,2");
    model_tensor(m, TENSOR_INTS("i0", "", 2));
    model_tensor(m, TENSOR_INTS("i1", "1", -1));
    model_tensor(m, TENSOR_INTS("i3", "3", 0, 1, 2));
    model_tensor(m, tensor_new("none", ONNX_int64, "0", NULL, 0));
    model_tensor(m, TENSOR_INTS("huge", "2", INT64_MAX, INT64_MIN));
    model_tensor(m, TENSOR_INTS("axes", "12", 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
    model_tensor(m, TENSOR_FLOATS("half", "", 0.5f));
    model_tensor(m, TENSOR_FLOATS("scale", "4", 1, 1, 2, -1e30f));
}

/* ---- attributes that the importer reads -------------------------------------------------------- */

typedef struct attribute {
    char name[32];
    char kind; /* int, float, text or list: the first letter */
} attribute;

static struct {
    attribute items[128];
    int count;
} known;

static void know(const char *name, size_t n, char kind)
{
    attribute a = {.kind = kind};
    assert_true(n < sizeof a.name && known.count < 128);
    memcpy(a.name, name, n);
    for (int i = 0; i < known.count; i++)
        if (!strcmp(known.items[i].name, a.name) && known.items[i].kind == kind) return;
    known.items[known.count++] = a;
}

/* Collects every attribute that a source file of the frontend reads by name. */
static void know_attributes(const char *path)
{
    static const struct {
        const char *function;
        char kind;
    } kinds[] = {{"int", 'i'}, {"bool", 'i'}, {"float", 'f'}, {"text", 't'}, {"ints", 'l'}, {"list_since", 'l'}};
    static char text[1 << 17];
    regex_t call;
    regmatch_t m[3];
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    assert_int_equal(regcomp(&call, "onnx_([a-z_]+)\\([a-z]+, \"([A-Za-z_]+)\"", REG_EXTENDED), 0);
    for (const char *at = text; !regexec(&call, at, 3, m, 0); at += m[0].rm_eo)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            size_t n = (size_t)(m[1].rm_eo - m[1].rm_so);
            if (strlen(kinds[k].function) == n && !strncmp(kinds[k].function, at + m[1].rm_so, n))
                know(at + m[2].rm_so, (size_t)(m[2].rm_eo - m[2].rm_so), kinds[k].kind);
        }
    regfree(&call);
}

static void know_folder(const char *folder)
{
    DIR *dir = opendir(folder);
    char path[512];
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        const char *end = strrchr(e->d_name, '.');
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (end && !strcmp(end, ".c")) know_attributes(path);
    }
    closedir(dir);
}

static int setup(void **state)
{
    (void)state;
    know_folder(AMPC_SOURCE_DIR "/frontend/lower");
    know_folder(AMPC_SOURCE_DIR "/frontend/opaque");
    return known.count > 40 ? 0 : -1;
}

static int draw(int n)
{
    seed ^= seed << 13;
    seed ^= seed >> 17;
    seed ^= seed << 5;
    return (int)(seed % (uint32_t)n);
}

static void add_attribute(node *n, const attribute *a)
{
    static const int64_t ints[] = {0,         0,        1, 1, 2, -1, 3, 7, 8, 1 << 16, INT32_MAX, (int64_t)1 << 32,
                                   INT64_MAX, INT64_MIN};
    static const float floats[] = {0, 1, -1, 0.5f, 1e38f, -1e38f};
    static const char *const texts[] = {"",          "x",     "ij,jk->ik", "ij,j->", ",->\x01\xff",
                                        "a...->...", "VALID", "SAME_UPPER"};
    static const char *const lists[] = {"",
                                        "0",
                                        "1",
                                        "-1",
                                        "1,1",
                                        "2,2",
                                        "0,1",
                                        "0,0,0,0",
                                        "1,1,1,1",
                                        "2,2,2",
                                        "0,1,2,3",
                                        "9223372036854775807",
                                        "-9223372036854775808,1",
                                        "4294967296,65536",
                                        "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"};
    switch (a->kind) {
    case 'i': node_int(n, a->name, ints[draw(sizeof ints / sizeof *ints)]); break;
    case 'f': node_float(n, a->name, floats[draw(sizeof floats / sizeof *floats)]); break;
    case 't': node_text(n, a->name, texts[draw(sizeof texts / sizeof *texts)]); break;
    default: node_ints(n, a->name, lists[draw(sizeof lists / sizeof *lists)]); break;
    }
}

/* Adds a graph whose results are its inputs, or the iteration number. */
static void add_graph(node *n, const char *name, const char *prefix)
{
    model m = model_new(1);
    char value[48];
    int inputs = draw(4), outputs = draw(4);
    for (int i = 0; i < inputs; i++) {
        snprintf(value, sizeof value, "%s%s.%d", prefix, name, i);
        model_input(&m, value, ONNX_float32, draw(2) ? "2" : "?,?");
    }
    for (int i = 0; i < outputs; i++) {
        snprintf(value, sizeof value, "%s%s.%d", prefix, name, draw(3));
        model_output(&m, i < inputs ? value : operands[draw(OPERANDS)], 0, NULL);
    }
    node_graph(n, name, &m);
}

/* ---- the nodes of one operator ----------------------------------------------------------------- */

typedef struct plan { /* one node */
    const char *in[MAX_OPERANDS];
    int n_in, n_out;
    uint32_t attributes; /* start of their values in the random sequence; 0: none */
    bool refused;
} plan;

static struct {
    plan items[MAX_NODES];
    int count;
} plans;

static plan *add_plan(const char *const *in, int n_in, int n_out)
{
    plan *p = &plans.items[plans.count++];
    assert_true(plans.count <= MAX_NODES && n_in <= MAX_OPERANDS);
    *p = (plan){.n_in = n_in, .n_out = n_out};
    if (n_in) memcpy(p->in, in, (size_t)n_in * sizeof *in);
    return p;
}

static void fill(const char **in, const char *name)
{
    for (int i = 0; i < MAX_OPERANDS; i++) in[i] = name;
}

/* Makes the random sequence independent of earlier nodes. */
static void seed_draw(const char *op, uint32_t number)
{
    seed = base_seed;
    for (; *op; op++) seed = seed * 31 + (unsigned char)*op;
    seed = seed * 2654435761u + number * 2 + 1;
}

static void plan_nodes(const char *op, int opset)
{
    const char *in[MAX_OPERANDS];
    const int schema = onnx_schema_arity(onnx_operator_find(op)).max, max = schema == ONNX_ANY ? 4 : schema + 1;
    plans.count = 0;
    seed_draw(op, (uint32_t)opset);
    for (int k = 0; k < OPERANDS; k++)
        for (int n = 0; n <= max; n++) {
            fill(in, operands[k]);
            add_plan(in, n, 1);
        }
    for (int base = 0; base < 3; base++)
        for (int n = 1; n <= max; n++)
            for (int absent = 0; absent < n; absent++) {
                fill(in, (const char *[]){"f4", "f2", "i1"}[base]);
                in[absent] = "";
                add_plan(in, n, base + 1);
            }
    for (int i = 0; i < drawn; i++) {
        for (int k = 0; k < MAX_OPERANDS; k++) in[k] = draw(8) ? operands[draw(OPERANDS)] : "";
        plan *p = add_plan(in, draw(max + 1), 1 + draw(MAX_RESULTS));
        p->attributes = (uint32_t)(1 + i);
    }
}

static bool takes_graphs(const char *op) { return !strcmp(op, "If") || !strcmp(op, "Loop") || !strcmp(op, "Scan"); }

static void add_node(model *m, const char *op, int index, const plan *p)
{
    node n = {0};
    char name[32];
    for (int i = 0; i < p->n_in; i++) wire_text(&n, 1, p->in[i]);
    for (int i = 0; i < p->n_out; i++) {
        snprintf(name, sizeof name, "y%d_%d", index, i);
        wire_text(&n, 2, name);
    }
    snprintf(name, sizeof name, "n%d", index);
    wire_text(&n, 3, name);
    wire_text(&n, 4, op);
    seed_draw(op, p->attributes);
    for (int i = 0; i < known.count && p->attributes; i++)
        if (draw(3) == 0) add_attribute(&n, &known.items[i]);
    for (int i = 0; i < 3 && p->attributes && takes_graphs(op); i++)
        if (draw(2)) add_graph(&n, (const char *[]){"body", "then_branch", "else_branch"}[i], name);
    model_add(m, &n);
    snprintf(name, sizeof name, "y%d_0", index);
    if (index % 2) model_output(m, name, ONNX_float32, index % 4 == 1 ? "?,?" : "2,2");
    else model_output(m, name, 0, NULL);
}

static wire model_of(const char *op, int opset)
{
    model m = model_new(opset);
    add_operands(&m);
    model_node(&m, "Relu", operands[1], "always"); /* the items of a sequence are outputs, and it may have none */
    model_output(&m, "always", 0, NULL);
    for (int i = 0; i < plans.count; i++)
        if (!plans.items[i].refused) add_node(&m, op, i, &plans.items[i]);
    return model_finish(&m);
}

/* ---- running them ------------------------------------------------------------------------------ */

/* Marks the node that an error names directly or through one of its results. */
static void mark(void *user, diag_level level, const char *message)
{
    const char *at = strstr(message, "node 'n"), *result = strstr(message, " 'y");
    (void)user;
    if (level == DIAG_ERROR && at) plans.items[atoi(at + strlen("node 'n"))].refused = true;
    else if (level == DIAG_ERROR && result) plans.items[atoi(result + strlen(" 'y"))].refused = true;
}

static ampc_status import(const char *op, int opset, bool opaque, diag *d, ir_module **m)
{
    const onnx_import_options o = {.opaque = opaque, .max_tensor_bytes = 1 << 24};
    wire file = model_of(op, opset);
    ampc_status s = onnx_import_memory(file.bytes, file.size, op, &o, d, m);
    wire_free(&file);
    return s;
}

/* The operators whose opaque nodes get types from a row, without a declaration. */
static const char *const typed[] = {
#define LIKE(op, shape_of, dtype_of) #op,
#define TYPE(op, rule) #op,
#include "frontend/onnx.def"
};
enum { TYPED = sizeof typed / sizeof *typed };
static bool is_typed[TYPED];

/* Nodes with even numbers have no declared result. */
static void note_types(const char *op, const ir_module *m)
{
    for (const ir_node *n = m->graphs.items[0]->first; n; n = n->next)
        for (int i = 0; i < TYPED && n->op == IR_OP_opaque && n->n_out && atoi(n->loc.node + 1) % 2 == 0; i++)
            is_typed[i] |= !strcmp(typed[i], op);
}

/* Those with a case in opaque_types.rows, which shows that they stay opaque. */
static void note_cases(void)
{
    static char text[1 << 14];
    char call[64];
    FILE *f = fopen(AMPC_SOURCE_DIR "/tests/expect/frontend/opaque_types.rows", "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    for (int i = 0; i < TYPED; i++) {
        snprintf(call, sizeof call, "= %s(", typed[i]);
        is_typed[i] |= strstr(text, call) != NULL;
    }
}

static int left(void)
{
    int n = 0;
    for (int i = 0; i < plans.count; i++) n += !plans.items[i].refused;
    return n;
}

static void check_operator(scratch *t, const char *op, int opset, bool opaque)
{
    ir_module *m = NULL;
    if (only && strcmp(only, op) != 0) return;
    diag *d = diag_new(mark, NULL);
    assert_non_null(d);
    plan_nodes(op, opset);
    import(op, opset, opaque, d, &m);
    ir_module_free(m);
    diag_free(d);
    if (left() && (import(op, opset, opaque, t->d, &m) != AMPC_OK || ir_verify(m, t->d) != AMPC_OK))
        fail_msg("%s, opset %d: %s", op, opset, diag_first_error(t->d));
    if (left() && opset >= onnx_operator_find(op)->since) note_types(op, m);
    ir_module_free(m);
}

static int step = 13; /* between opsets: 1, 14, 27 */
#define EACH_OPSET(opset) (int opset = ONNX_OPSET_FIRST; opset <= ONNX_OPSET_LAST; opset += step)

TEST_SCRATCH(test_opaque)
{
    for (const onnx_operator *o = onnx_operators; o->name; o++)
        for
            EACH_OPSET(opset) check_operator(t, o->name, opset, true);
    note_cases();
    for (int i = 0; i < TYPED && !only; i++)
        if (!is_typed[i]) fail_msg("no node gets its type from the row of %s in onnx.def", typed[i]);
}

/* ---- lowered operators ------------------------------------------------------------------------- */

typedef struct row {
    const char *op;
    int since, min, max, results;
} row;

static const row rows[] = {
#define FORM(op, since, min, max, results, handler, argument) {#op, since, min, max, results},
#include "frontend/onnx.def"
};
enum { ROWS = sizeof rows / sizeof *rows };

TEST_SCRATCH(test_lowered)
{
    for (int i = 0; i < ROWS; i++)
        for
            EACH_OPSET(opset)
    if (rows[i].since <= opset && (!i || strcmp(rows[i - 1].op, rows[i].op) != 0))
        check_operator(t, rows[i].op, opset, false);
}

/* A node that cannot be lowered is imported as opaque without further checks of its operands, so rows must be at
 * least as strict as the schema. */
TEST_SCRATCH(test_rows_keep_to_the_schema)
{
    for (int i = 0; i < ROWS; i++) {
        const onnx_operator *o = onnx_operator_find(rows[i].op);
        assert_non_null(o);
        const onnx_arity a = onnx_schema_arity(o);
        if (rows[i].min < a.required || rows[i].max > a.max || rows[i].results > a.results)
            fail_msg("%s, opset %d: operands %d to %d, results up to %d", o->name, rows[i].since, rows[i].min,
                     rows[i].max, rows[i].results);
    }
}

TEST_SCRATCH(test_notes_name_operators)
{
    static const char *const names[] = {
#define MAIN(op, ir) #op,
#define GRADIENT(op, value, reason) #op,
#define NOTE(op, text) #op,
#include "frontend/onnx.def"
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!onnx_operator_find(names[i])) fail_msg("onnx.def: there is no operator %s", names[i]);
}

/* usage: test_operands [SEED [OPERATOR]]. A seed selects all opsets and more nodes, drawn from it. */
TEST_GROUP(setup, NULL)

int main(int argc, char **argv)
{
    only = argc > 2 ? argv[2] : NULL;
    if (argc > 1) base_seed = (uint32_t)atoi(argv[1]), drawn = 400, step = 1;
    return test_run();
}
