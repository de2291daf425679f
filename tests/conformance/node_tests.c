/* node_tests.c - runs the ONNX backend node tests: import, run, compare with the stored outputs.
 *
 * usage: node_tests CORPUS XFAIL [NAME..]
 *        node_tests --convert CORPUS OUT
 *
 * --convert writes each model that can be converted, as `ampc --amp=O0` and `ampc` do, to OUT/O0/NAME/model.onnx, with the
 * stored inputs and outputs, and to OUT/fp16/NAME.onnx. It prints a line for each model that crashes.
 *
 * A case passes as `run` if it passes with all inputs given at run time. Otherwise it passes as `bound` if it
 * passes with its shape-like inputs (listed below) fixed at compile time, which a static graph requires.
 * XFAIL lists the cases that must fail, "NAME reason"; a listed case that passes is an error. Each case runs
 * in its own process. Prints one line per case, then a line of counts, then "N passed, N failed, N skipped"
 * (skipped: expected failures). */
#include "frontend/onnx.h"
#include "frontend/read/tensor.h"
#include "ir/base/wire.h"
#include "runtime/api/ampc.h"
#include "runtime/session/session.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_TENSORS = 64, MAX_DIMS = 256, PATH_SIZE = 512, REASON_SIZE = 1024, MAX_DEPTH = 16 };

/* Operands that must be constant in a static graph: operands `first` to `last` of op. These are shapes, axes
 * and amounts, values that the size of the result or the length of a sequence depends on, and the switches of Dropout. */
static const struct {
    const char *op;
    size_t first, last;
} shape_like[] = {
    {"Reshape", 1, 1},
    {"Expand", 1, 1},
    {"Tile", 1, 1},
    {"Slice", 1, 4},
    {"Pad", 1, 1},
    {"Pad", 3, 3},
    {"Resize", 1, 3},
    {"Upsample", 1, 1},
    {"ReduceSum", 1, 1},
    {"ReduceMean", 1, 1},
    {"ReduceL1", 1, 1},
    {"ReduceL2", 1, 1},
    {"ReduceLogSum", 1, 1},
    {"ReduceLogSumExp", 1, 1},
    {"ReduceProd", 1, 1},
    {"ReduceSumSquare", 1, 1},
    {"ReduceMax", 1, 1},
    {"ReduceMin", 1, 1},
    {"Squeeze", 1, 1},
    {"Unsqueeze", 1, 1},
    {"Split", 1, 1},
    {"TopK", 1, 1},
    {"OneHot", 1, 1},
    {"Range", 0, 2},
    {"ConstantOfShape", 0, 0},
    {"Trilu", 1, 1},
    {"CumSum", 1, 1},
    {"Dropout", 1, 2},
    {"MaxUnpool", 2, 2},
    {"Col2Im", 1, 2},
    {"CenterCropPad", 1, 1},
    {"AffineGrid", 1, 1},
    {"DFT", 1, 2},
    {"STFT", 1, 1},
    {"STFT", 3, 3},
    {"HannWindow", 0, 0},
    {"HammingWindow", 0, 0},
    {"BlackmanWindow", 0, 0},
    {"MelWeightMatrix", 0, 4},
    {"Loop", 0, 1},
    {"If", 0, 0},
    {"SequenceAt", 1, 1},
    {"SequenceInsert", 2, 2},
    {"SequenceErase", 1, 1},
    {"SplitToSequence", 1, 1},
};

typedef struct test_case {
    const char *folder;
    arena *arena;
    diag *diag;
    onnx_file *file;
    int n_in, n_out;
    const char *in_names[MAX_TENSORS], *out_names[MAX_TENSORS];
    onnx_tensor in[MAX_TENSORS], out[MAX_TENSORS];
    bool bind[MAX_TENSORS];
    const char *ends[MAX_TENSORS]; /* names that one more item of an output would have */
    int n_ends;
    onnx_dim_binding dims[MAX_DIMS]; /* lengths of sequences, and sizes of their items */
    int n_dims;
    char reason[REASON_SIZE];
} test_case;

#define FAIL(t, ...) (snprintf((t)->reason, REASON_SIZE, __VA_ARGS__), false)

/* ---- reading a case -------------------------------------------------------------------------- */

static int declared_type(const Onnx__ValueInfoProto *info)
{
    const Onnx__TypeProto *type = info->type;
    return type && type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE ? type->tensor_type->elem_type : 0;
}

static bool read_tensor(test_case *t, const char *kind, int i, const Onnx__ValueInfoProto *info, onnx_tensor *out)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof path, "%s/test_data_set_0/%s_%d.pb", t->folder, kind, i);
    if (onnx_tensor_read_file(t->arena, path, t->diag, out) != AMPC_OK) return FAIL(t, "%s", diag_first_error(t->diag));
    /* Some files of the corpus store bfloat16 as uint16 bit patterns. */
    if (out->type == ONNX_uint16 && declared_type(info) == ONNX_bfloat16) out->dtype = IR_bf16;
    if (out->dtype == IR_NO_DTYPE) return FAIL(t, "element type %s", onnx_type_name(out->type));
    return true;
}

/* ---- sequences and optionals: each item is an input or output of its own */

enum { ITEM_TENSOR = 3, ITEM_SEQUENCE = 5, ITEM_OPTIONAL = 7 }; /* fields of SequenceProto and OptionalProto */

typedef struct side { /* the inputs or the outputs of a case */
    bool input;
    const char **names;
    onnx_tensor *tensors;
    int *count;
} side;

static void add_dim(test_case *t, const char *name, int64_t size)
{
    if (t->n_dims < MAX_DIMS) t->dims[t->n_dims++] = (onnx_dim_binding){name, size};
}

static bool add_tensor(test_case *t, side s, const char *name, const Onnx__TypeProto *type, wire_field at)
{
    const onnx_bytes bytes = {.data = at.value, .size = (size_t)(at.end - at.value)};
    onnx_file f = {.path = t->folder, .bytes = bytes, .in_memory = true};
    ProtobufCMessage *proto;
    onnx_tensor *to = &s.tensors[*s.count];
    if (*s.count == MAX_TENSORS) return FAIL(t, "too many tensors");
    if (onnx_decode(t->arena, &onnx__tensor_proto__descriptor, bytes, t->folder, t->diag, &proto) != AMPC_OK ||
        onnx_tensor_describe(t->arena, &f, (const Onnx__TensorProto *)proto, t->diag, to) != AMPC_OK ||
        onnx_tensor_load(t->arena, &f, to, t->diag) != AMPC_OK)
        return FAIL(t, "%s", diag_first_error(t->diag));
    if (to->dtype == IR_NO_DTYPE) return FAIL(t, "element type %s", onnx_type_name(to->type));
    for (int i = 0; s.input && !type->tensor_type->shape && i < to->rank; i++)
        add_dim(t, arena_printf(t->arena, "%s_dim%d", name, i), to->dims[i]);
    s.names[(*s.count)++] = name;
    return true;
}

static bool add_value(test_case *t, side s, const char *name, const Onnx__TypeProto *type, wire_field at)
{
    const bool sequence = type->value_case == ONNX__TYPE_PROTO__VALUE_SEQUENCE_TYPE;
    const bool optional = type->value_case == ONNX__TYPE_PROTO__VALUE_OPTIONAL_TYPE;
    int count = 0;
    if (!sequence && !optional) return add_tensor(t, s, name, type, at);
    const Onnx__TypeProto *inner = sequence ? type->sequence_type->elem_type : type->optional_type->elem_type;
    for (wire_field item; wire_next_field(&at, &item);) {
        if (item.number != ITEM_TENSOR && item.number != ITEM_SEQUENCE && item.number != ITEM_OPTIONAL) continue;
        const char *own = sequence ? arena_printf(t->arena, "%s.%d", name, count) : name;
        if (!add_value(t, s, own, inner, item)) return false;
        count++;
    }
    if (s.input) add_dim(t, arena_printf(t->arena, "%s_%s", name, sequence ? "length" : "present"), count);
    else if (t->n_ends < MAX_TENSORS) t->ends[t->n_ends++] = arena_printf(t->arena, "%s.%d", name, count);
    return true;
}

static bool read_items(test_case *t, const char *kind, int i, const Onnx__ValueInfoProto *info)
{
    const side in = {true, t->in_names, t->in, &t->n_in}, out = {false, t->out_names, t->out, &t->n_out};
    const char *path = arena_printf(t->arena, "%s/test_data_set_0/%s_%d.pb", t->folder, kind, i);
    onnx_bytes bytes;
    if (onnx_bytes_load(t->arena, path, false, t->diag, &bytes) != AMPC_OK) {
        if (diag_status(t->diag) == AMPC_IO || info->type->value_case != ONNX__TYPE_PROTO__VALUE_OPTIONAL_TYPE)
            return FAIL(t, "%s", diag_first_error(t->diag));
        diag_clear(t->diag); /* the file of an absent optional is empty */
        bytes.size = 0;
    }
    const wire_field all = {.value = bytes.data, .end = bytes.data + bytes.size};
    return add_value(t, *kind == 'i' ? in : out, info->name, info->type, all);
}

static bool is_initializer(const Onnx__GraphProto *g, const char *name)
{
    for (size_t i = 0; i < g->n_initializer; i++)
        if (strcmp(g->initializer[i]->name, name) == 0) return true;
    return false;
}

static bool read_case(test_case *t)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof path, "%s/model.onnx", t->folder);
    if (onnx_file_open(path, t->diag, &t->file) != AMPC_OK) return FAIL(t, "%s", diag_first_error(t->diag));
    const Onnx__GraphProto *g = t->file->model->graph;
    for (size_t i = 0, file = 0; i < g->n_input && t->n_in < MAX_TENSORS; i++) {
        if (is_initializer(g, g->input[i]->name)) continue;
        const int k = (int)file++;
        if (!declared_type(g->input[i]) && !read_items(t, "input", k, g->input[i])) return false;
        if (!declared_type(g->input[i])) continue;
        if (!read_tensor(t, "input", k, g->input[i], &t->in[t->n_in])) return false;
        t->in_names[t->n_in++] = g->input[i]->name;
    }
    for (size_t i = 0; i < g->n_output && t->n_out < MAX_TENSORS; i++) {
        if (!declared_type(g->output[i]) && !read_items(t, "output", (int)i, g->output[i])) return false;
        if (!declared_type(g->output[i])) continue;
        if (!read_tensor(t, "output", (int)i, g->output[i], &t->out[t->n_out])) return false;
        t->out_names[t->n_out++] = g->output[i]->name;
    }
    return true;
}

/* Marks the graph inputs from whose values `name` is computed; shapes of inputs are known anyway. */
static bool mark_sources(test_case *t, const char *name, int depth)
{
    const Onnx__GraphProto *g = t->file->model->graph;
    bool any = false;
    for (int v = 0; v < t->n_in; v++)
        if (strcmp(t->in_names[v], name) == 0) any = t->bind[v] = true;
    for (size_t k = 0; k < g->n_node && depth < MAX_DEPTH; k++)
        for (size_t o = 0; o < g->node[k]->n_output; o++) {
            const Onnx__NodeProto *n = g->node[k];
            if (strcmp(n->output[o], name) != 0 || !strcmp(n->op_type, "Shape") || !strcmp(n->op_type, "Size"))
                continue;
            for (size_t i = 0; i < n->n_input; i++) any |= mark_sources(t, n->input[i], depth + 1);
        }
    return any;
}

/* Marks the inputs that some node uses as a shape-like operand. Returns false if there are none. */
static bool mark_shape_like(test_case *t)
{
    const Onnx__GraphProto *g = t->file->model->graph;
    bool any = false;
    for (size_t k = 0; k < g->n_node; k++)
        for (size_t r = 0; r < sizeof shape_like / sizeof *shape_like; r++) {
            if (strcmp(g->node[k]->op_type, shape_like[r].op) != 0) continue;
            for (size_t i = shape_like[r].first; i <= shape_like[r].last && i < g->node[k]->n_input; i++)
                any |= mark_sources(t, g->node[k]->input[i], 0);
        }
    return any;
}

/* ---- running and comparing ------------------------------------------------------------------- */

static bool close_enough(double a, double b)
{
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
    if (isinf(a) || isinf(b)) return a == b;
    return fabs(a - b) <= 1e-7 + 1e-3 * fabs(b);
}

static bool compare(test_case *t, const rt_tensor *got, int i)
{
    const onnx_tensor *want = &t->out[i];
    if (!got) return FAIL(t, "output '%s' is missing", t->out_names[i]);
    if (got->dtype != want->dtype)
        return FAIL(t, "output '%s' has type %s, not %s", t->out_names[i], ir_dtype_name(got->dtype),
                    ir_dtype_name(want->dtype));
    bool same = got->rank == want->rank;
    for (int k = 0; k < want->rank && same; k++) same = got->dims[k] == want->dims[k];
    if (!same) return FAIL(t, "output '%s' has another shape", t->out_names[i]);
    size_t size = ir_dtype_size(want->dtype);
    for (int64_t k = 0; k < want->count; k++) {
        double a = ir_load_f64(got->dtype, (const char *)got->data + (size_t)k * size);
        double b = ir_load_f64(want->dtype, (const char *)want->bytes + (size_t)k * size);
        if (!close_enough(a, b)) return FAIL(t, "output '%s'[%lld] is %g, not %g", t->out_names[i], (long long)k, a, b);
    }
    return true;
}

static bool run_module(test_case *t, const ir_module *m)
{
    rt_tensor inputs[MAX_TENSORS];
    int n = 0;
    for (int i = 0; i < t->n_in; i++) {
        if (t->bind[i]) continue;
        inputs[n] = (rt_tensor){.name = t->in_names[i],
                                .dtype = t->in[i].dtype,
                                .rank = t->in[i].rank,
                                .data = (void *)(uintptr_t)t->in[i].bytes};
        memcpy(inputs[n++].dims, t->in[i].dims, sizeof t->in[i].dims);
    }
    rt_session_options options = {.device = "cpu", .threads = 1};
    rt_session *s = NULL;
    bool ok = rt_session_open(m, &options, t->diag, &s) == AMPC_OK &&
              rt_session_run(s, "forward", inputs, n, t->diag) == AMPC_OK;
    if (!ok) snprintf(t->reason, REASON_SIZE, "%s", diag_first_error(t->diag));
    for (int i = 0; i < t->n_out && ok; i++) ok = compare(t, rt_session_output(s, t->out_names[i]), i);
    for (int i = 0; i < t->n_ends && ok; i++)
        if (rt_session_output(s, t->ends[i])) ok = FAIL(t, "there is another item, '%s'", t->ends[i]);
    rt_session_close(s);
    return ok;
}

static bool import_and_run(test_case *t)
{
    onnx_constant constants[MAX_TENSORS];
    onnx_import_options options = {.constants = constants, .dims = t->dims, .n_dims = t->n_dims};
    for (int i = 0; i < t->n_in; i++)
        if (t->bind[i])
            constants[options.n_constants++] = (onnx_constant){
                t->in_names[i], ir_type_make(t->in[i].dtype, t->in[i].rank, t->in[i].dims), t->in[i].bytes};
    ir_module *m;
    diag_clear(t->diag);
    if (onnx_import(t->file->path, &options, t->diag, &m) != AMPC_OK) return FAIL(t, "%s", diag_first_error(t->diag));
    bool ok = ir_verify(m, t->diag) == AMPC_OK ? run_module(t, m) : FAIL(t, "%s", diag_first_error(t->diag));
    ir_module_free(m);
    return ok;
}

typedef enum outcome { PASSED_RUN, PASSED_BOUND, FAILED } outcome;

static outcome run_case(test_case *t)
{
    if (!read_case(t)) return FAILED;
    if (import_and_run(t)) return PASSED_RUN;
    if (mark_shape_like(t) && import_and_run(t)) return PASSED_BOUND;
    return FAILED;
}

/* ---- processes ------------------------------------------------------------------------------- */

static int child(const char *folder, int out)
{
    test_case *t = calloc(1, sizeof *t);
    t->folder = folder;
    t->arena = arena_new(0);
    t->diag = diag_new(NULL, NULL);
    jmp_buf guard;
    outcome o = FAILED;
    if (!setjmp(guard)) {
        arena_set_guard(t->arena, &guard);
        o = run_case(t);
    }
    size_t n = strlen(t->reason);
    return write(out, t->reason, n) == (ssize_t)n ? (int)o : (int)FAILED;
}

static outcome isolated(const char *folder, char *reason)
{
    const struct rlimit limit = {120, 120}; /* seconds of processor time; a case takes milliseconds */
    int pipes[2], status = 0;
    reason[0] = 0;
    if (pipe(pipes) != 0) return FAILED;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        close(pipes[0]);
        setrlimit(RLIMIT_CPU, &limit);
        _exit(child(folder, pipes[1]));
    }
    close(pipes[1]);
    ssize_t n = read(pipes[0], reason, REASON_SIZE - 1);
    reason[n > 0 ? n : 0] = 0;
    close(pipes[0]);
    waitpid(pid, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) <= FAILED) return (outcome)WEXITSTATUS(status);
    snprintf(reason, REASON_SIZE, "crashed");
    return FAILED;
}

/* ---- the corpus ------------------------------------------------------------------------------ */

static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }
static int is_test(const struct dirent *e) { return strncmp(e->d_name, "test_", 5) == 0; }

/* Returns the reason why a case must fail, or NULL. Lines have the form "NAME reason"; '#' starts a comment. */
static const char *expected_failure(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = list; p && *p; p = strchr(p, '\n')) {
        if (*p == '\n') p++;
        if (strncmp(p, name, n) == 0 && p[n] == ' ') return p + n + 1;
    }
    return NULL;
}

static char *read_text(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    size_t n = (size_t)ftell(f);
    rewind(f);
    char *text = calloc(1, n + 1);
    if (fread(text, 1, n, f) != n) text[0] = 0;
    fclose(f);
    return text;
}

/* ---- converting ------------------------------------------------------------------------------ */

static bool convert(ampc_module *m, const char *amp, const char *path)
{
    const ampc_compile_options options = {.struct_size = sizeof options, .amp = amp};
    return ampc_module_convert(m, &options, path) == AMPC_OK;
}

static void convert_model(const char *corpus, const char *name, const char *out)
{
    char path[PATH_SIZE], folder[PATH_SIZE], to[2 * PATH_SIZE];
    ampc_context *context;
    ampc_module *m;
    snprintf(path, sizeof path, "%s/%s/model.onnx", corpus, name);
    const ampc_import_options import = {.struct_size = sizeof import, .path = path, .keep_unknown = 1};
    if (ampc_context_create(NULL, &context) != AMPC_OK) return;
    if (ampc_module_import_with(context, &import, &m) == AMPC_OK) {
        snprintf(folder, sizeof folder, "%s/O0/%s", out, name);
        snprintf(to, sizeof to, "%s/model.onnx", folder);
        if (mkdir(folder, 0777) == 0 && convert(m, "O0", to)) {
            snprintf(path, sizeof path, "%s/%s/test_data_set_0", corpus, name);
            snprintf(to, sizeof to, "%s/test_data_set_0", folder);
            if (symlink(path, to)) fprintf(stderr, "%s: no link\n", to);
        } else {
            rmdir(folder);
        }
        snprintf(to, sizeof to, "%s/fp16/%s.onnx", out, name);
        convert(m, NULL, to);
        ampc_module_free(m);
    }
    ampc_context_free(context);
}

/* Each model is converted in its own process. */
static int convert_all(const char *corpus, const char *out)
{
    struct dirent **cases;
    const int n = scandir(corpus, &cases, is_test, by_name);
    for (int i = 0; i < n; i++) {
        int status = 0;
        fflush(stdout);
        const pid_t pid = fork();
        if (pid == 0) {
            convert_model(corpus, cases[i]->d_name, out);
            _exit(0);
        }
        if (pid < 0 || waitpid(pid, &status, 0) < 0 || !WIFEXITED(status) || WEXITSTATUS(status))
            printf("FAIL %s crashed\n", cases[i]->d_name);
    }
    for (int i = 0; i < n; i++) free(cases[i]);
    if (n >= 0) free(cases);
    return n > 0 ? 0 : 2;
}

/* ---------------------------------------------------------------------------------------------- */

static bool chosen(int argc, char **argv, const char *name)
{
    bool any = argc <= 3;
    for (int i = 3; i < argc; i++) any |= strcmp(argv[i], name) == 0;
    return any;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "--convert") == 0) return convert_all(argv[2], argv[3]);
    char *list = argc > 2 ? read_text(argv[2]) : NULL;
    struct dirent **cases;
    int n = argc > 2 ? scandir(argv[1], &cases, is_test, by_name) : -1;
    if (n < 0 || !list) {
        fprintf(stderr, "usage: node_tests CORPUS XFAIL [NAME..]\n       node_tests --convert CORPUS OUT\n");
        return 2;
    }
    int run = 0, bound = 0, failed = 0, expected = 0, surprises = 0;
    for (int i = 0; i < n; i++) {
        char folder[PATH_SIZE], reason[REASON_SIZE];
        const char *name = cases[i]->d_name;
        snprintf(folder, sizeof folder, "%s/%s", argv[1], name);
        if (!chosen(argc, argv, name)) continue;
        outcome o = isolated(folder, reason);
        const char *xfail = expected_failure(list, name);
        run += o == PASSED_RUN;
        bound += o == PASSED_BOUND;
        if (o != FAILED) {
            surprises += xfail != NULL;
            printf("%s %s%s\n", xfail ? "FAIL" : "PASS", name,
                   xfail ? " passes, but is listed as an expected failure" : "");
        } else {
            expected += xfail != NULL;
            failed += xfail == NULL;
            printf("%s %s %s\n", xfail ? "XFAIL" : "FAIL", name, reason);
        }
    }
    for (int i = 0; i < n; i++) free(cases[i]);
    free(cases);
    free(list);
    printf("node tests: %d pass with inputs at run time, %d more with shape-like inputs bound, %d "
           "expected failures\n",
           run, bound, expected);
    printf("%d passed, %d failed, %d skipped\n", run + bound - surprises, failed + surprises, expected);
    return failed + surprises ? 1 : 0;
}
