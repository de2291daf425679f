/* test_program.c - fused kernels: they compute the same as their ops one by one; properties of the compiled code; its disk
 * cache. */
#include "tests/ops/programs.h"

#include "kernels/cuda/generate.h"
#include "kernels/cuda/fused_text.h"
#include "kernels/cuda/reduce.h"
#include "tests/cuda/double/inner.h"
#include "tests/rows.h"
#include "tests/tier.h"

#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
enum { PROGRAMS = 20 };
#else
enum { PROGRAMS = 60 };
#endif
enum { AT_ONCE = 30, MAX_COUNT = 3000 };

static char error[512];

static void must(ampc_status status)
{
    if (status != AMPC_OK) fail_msg("%s", error);
}

/* ---- random fused kernels; a batch is compiled at once ---- */

static void prepare_one(const ops_program *p)
{
    const k_context ctx = {.threads = 1, .error = error, .error_size = sizeof error};
    k_view out[K_MAX_RESULTS];
    for (int i = 0; i < p->fused.n_results; i++) out[i] = p->expected[i];
    const k_args args = {
        .in = p->in, .out = out, .n_in = p->n_in, .n_out = p->fused.n_results, .fused = &p->fused, .ctx = &ctx};
    must(ops_prepare(&cuda_fused, &args));
}

static void check_batch(uint64_t first, int n)
{
    static ops_program programs[AT_ONCE];
    for (int i = 0; i < n; i++) {
        ops_program_make(&programs[i], first + (uint64_t)i, MAX_COUNT);
        prepare_one(&programs[i]);
    }
    for (int i = 0; i < n; i++) {
        ops_program_expect(&programs[i]);
        ops_program_check(&programs[i], 1);
        ops_program_free(&programs[i]);
    }
}

/* Environment: OPS_PROGRAMS is the number of fused kernels; OPS_PROGRAM is the seed of a single one. Below the full tier
 * (tests/tier.h), there are fewer of them, and others for each AMPC_SEED. */
static void programs_give_the_bits_of_their_ops(void **state)
{
    const char *only = getenv("OPS_PROGRAM"), *many = getenv("OPS_PROGRAMS");
    const int programs = many ? atoi(many) : tier_is_reduced() ? PROGRAMS / 3 : PROGRAMS;
    const uint64_t from = tier_first((size_t)programs);
    (void)state;
    if (only) check_batch(strtoul(only, NULL, 10), 1);
    else print_message("programs %d to %d\n", (int)from, (int)from + programs - 1);
    for (int first = 0; first < programs && !only; first += AT_ONCE)
        check_batch(from + (uint64_t)first, programs - first < AT_ONCE ? programs - first : AT_ONCE);
}

/* ---- an example: y = relu(x + bias), and the sum of each row of y ---- */

typedef struct example {
    k_fused fused;
    k_view in[2], out[2];
} example;

static k_view view_of(ir_dtype t, int64_t rows, int64_t columns)
{
    return (k_view){.data = error, .dtype = t, .rank = 2, .dims = {rows, columns}};
}

/* `sums`: with row sums, else without. */
static example example_of(ir_dtype t, int64_t rows, int64_t columns, bool sums)
{
    example e = {.in = {view_of(t, rows, columns), view_of(t, 1, columns)},
                 .out = {view_of(t, rows, columns), view_of(IR_f32, rows, 1)}};
    k_fused *p = &e.fused;
    *p = (k_fused){.count = rows * columns, .row = columns, .n_operands = 2, .n_code = 2, .n_results = 1 + sums};
    p->operands[0] = (k_operand){.in = 0, .dense = true};
    p->operands[1] = (k_operand){.in = 1, .walk = k_walk_broadcast(&e.in[1], &e.in[0])};
    p->code[0] = (k_instruction){.op = IR_OP_add, .type = t, .n_arg = 2, .arg = {~0, ~1}};
    p->code[1] = (k_instruction){.op = IR_OP_relu, .type = t, .n_arg = 1, .arg = {0}};
    p->results[0] = (k_result){1, K_EACH};
    p->results[1] = (k_result){1, K_ROW_SUM};
    return e;
}

static k_args args_of(example *e, const k_context *ctx)
{
    return (k_args){.in = e->in, .out = e->out, .n_in = 2, .n_out = e->fused.n_results, .fused = &e->fused, .ctx = ctx};
}

static k_context open_context(void)
{
    k_context ctx = {.threads = 1, .error = error, .error_size = sizeof error};
    must(cuda_context_open(&ctx, 0));
    return ctx;
}

/* ---- compiled code ---- */

static int count_of(const char *text, const char *word)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, word)); at += strlen(word)) n++;
    return n;
}

/* Compiles to PTX; returns NULL, with the reason in `error`, if NVRTC or its double rejects the source. */
static char *ptx_of(const char *text)
{
    char *unit = NULL, *ptx = NULL;
    const char *texts[64], *names[64],
        *options[] = {"--gpu-architecture=sm_90", "--std=c++17", "--ptxas-options=-warn-spills",
                      "--ptxas-options=-warn-lmem-usage"};
    nvrtcProgram program;
    size_t bytes = 0;
    for (int i = 0; i < cuda_header_count; i++) texts[i] = cuda_headers[i].text, names[i] = cuda_headers[i].name;
    assert_true(asprintf(&unit,
                         "#include \"kernels/cuda/fused.cuh\"\n"
                         "extern \"C\" __global__ void FUSED_BOUNDS example%s",
                         text) > 0);
    must(cuda_api_open(CUDA_RTC, error, sizeof error));
    assert_int_equal(cuda.nvrtcCreateProgram(&program, unit, "example.cu", cuda_header_count, texts, names),
                     NVRTC_SUCCESS);
    if (!cuda.nvrtcCompileProgram(program, 4, options) && !cuda.nvrtcGetPTXSize(program, &bytes)) {
        ptx = malloc(bytes);
        assert_int_equal(cuda.nvrtcGetPTX(program, ptx), NVRTC_SUCCESS);
    } else {
        snprintf(error, sizeof error, "%s", double_reason());
    }
    cuda.nvrtcDestroyProgram(&program);
    free(unit);
    return ptx;
}

static char *ptx_of_example(example *e)
{
    const ir_dtype in[] = {e->in[0].dtype, e->in[1].dtype}, out[] = {e->out[0].dtype, e->out[1].dtype};
    const cuda_row_cut cut = cuda_cut_rows(e->in[0].dims[0], e->in[0].dims[1]);
    int tile = 0;
    char *text = fused_text(&e->fused, &(fused_types){in, out}, &cut, &tile);
    assert_non_null(text);
    assert_int_equal(tile, CUDA_TILE);
    char *ptx = ptx_of(text);
    free(text);
    assert_non_null(ptx);
    return ptx;
}

static void elements_move_in_128_bits(void **state)
{
    static const struct {
        ir_dtype type;
        int64_t columns;
        bool sums;
        int loads, stores;
    } rows[] = {
        {IR_f16, 64, false, 2, 1}, {IR_bf16, 64, true, 2, 1}, {IR_f32, 64, false, 4, 2}, {IR_f16, 63, false, 1, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        example e = example_of(rows[i].type, 512, rows[i].columns, rows[i].sums);
        char *ptx = ptx_of_example(&e);
        assert_int_equal(count_of(ptx, "ld.global.v4"), rows[i].loads);
        assert_int_equal(count_of(ptx, "st.global.v4"), rows[i].stores);
        assert_int_equal(count_of(ptx, ".local"), 0);
        assert_int_equal(count_of(ptx, "fma."), 0);
        free(ptx);
    }
}

static void local_memory_is_found(void **state)
{
    (void)state;
    assert_null(ptx_of("(fused_arguments a)\n{\n"
                       "    float t[64];\n"
                       "    for (int i = 0; i < 64; i++) t[a.fault[i] & 63] = (float)i;\n"
                       "    *static_cast<float *>(a.result[0]) = t[*a.fault & 63];\n}\n"));
    assert_non_null(strstr(error, "Local memory used"));
}

/* The largest possible fused kernel in the type with the largest tiles. It would not compile if it did not fit into registers. */
static void the_largest_program_fits(void **state)
{
    k_fused p = {
        .count = 4096, .row = 64, .n_operands = K_MAX_OPERANDS, .n_code = K_MAX_CODE, .n_results = K_MAX_RESULTS};
    ir_dtype in[K_MAX_OPERANDS], out[K_MAX_RESULTS];
    const ir_dtype types[] = {IR_f32, IR_i64, IR_f16};
    const cuda_row_cut cut = cuda_cut_rows(p.count / p.row, p.row);
    int tile = 0;
    (void)state;
    for (int t = 0; t < 6; t++) {
        const ir_dtype type = types[t / 2];
        for (int i = 0; i < K_MAX_OPERANDS; i++) p.operands[i].dense = true, in[i] = type;
        for (int k = 0; k < K_MAX_CODE; k++)
            p.code[k] = (k_instruction){.op = k % 2 ? IR_OP_mul : IR_OP_add,
                                        .type = type,
                                        .n_arg = 2,
                                        .arg = {k ? k - 1 : ~0, ~(k % K_MAX_OPERANDS)}};
        for (int r = 0; r < K_MAX_RESULTS; r++) {
            p.results[r] = (k_result){K_MAX_CODE - 1 - 4 * r, t % 2 && type != IR_i64 && r > 3 ? K_ROW_MEAN : K_EACH};
            out[r] = type;
        }
        char *text = fused_text(&p, &(fused_types){in, out}, &cut, &tile), *ptx = ptx_of(text);
        if (!ptx) fail_msg("%s: %s", ir_dtype_name(type), error);
        free(text);
        free(ptx);
    }
}

/* ---- cached code ---- */

/* Prepares the example on a newly opened device; returns how often NVRTC compiled. `fail`: which call fails. */
static long compilations(long fail)
{
    example e = example_of(IR_f16, 16, 64, false);
    k_context ctx = open_context();
    k_args args = args_of(&e, &ctx);
    size_t workspace = 0;
    void *other = NULL;
    must(cuda_fused.prepare(&args, &args.state, &workspace));
    must(cuda_fused.prepare(&args, &other, &workspace));
    double_mark();
    if (fail) double_fail(fail);
    must(cuda_prepared(&ctx));
    if (fail) assert_string_equal(double_failed(), "cudaLibraryLoadData");
    long n = double_count("nvrtcCompileProgram");
    must(cuda_prepared(&ctx));
    assert_int_equal(double_count("nvrtcCompileProgram"), n);
    cuda_fused.release(args.state);
    cuda_fused.release(other);
    cuda_context_close(&ctx);
    return n;
}

/* Finds the only file of cached code in `folder`. */
static void find_kept(const char *folder, char *path, size_t size)
{
    char command[600];
    snprintf(command, sizeof command, "echo %s/ampc/kernels-*", folder);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    assert_non_null(fgets(path, (int)size, f));
    pclose(f);
    path[strcspn(path, "\n")] = 0;
    assert_int_equal(access(path, R_OK), 0);
}

/* Changes one byte. */
static void flip(const char *path, long offset)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, offset, SEEK_SET), 0);
    const int byte = fgetc(f);
    assert_int_equal(fseek(f, offset, SEEK_SET), 0);
    assert_int_not_equal(fputc(~byte & 0xff, f), EOF);
    assert_int_equal(fclose(f), 0);
}

static void damage(const char *path, const char *command)
{
    char line[1200];
    snprintf(line, sizeof line, command, path);
    assert_int_equal(system(line), 0);
}

static void code_is_kept(void **state)
{
    static const char *const damages[] = {"truncate -s 40 '%s'", "truncate -s 0 '%s'", "truncate -s -1 '%s'",
                                          "truncate -s +1 '%s'", "rm '%s'"};
    static const long offsets[] = {3, 20, 900};
    char folder[] = "/tmp/ampc-test-XXXXXX", path[512];
    const char *before = getenv("XDG_CACHE_HOME");
    char *old = before ? strdup(before) : NULL;
    (void)state;
    assert_non_null(mkdtemp(folder));
    setenv("XDG_CACHE_HOME", folder, 1);
    assert_int_equal(compilations(0), 1);
    assert_int_equal(compilations(0), 0);
    find_kept(folder, path, sizeof path);
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        damage(path, damages[i]);
        assert_int_equal(compilations(0), 1);
        assert_int_equal(compilations(0), 0);
    }
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        flip(path, offsets[i]);
        assert_int_equal(compilations(0), 1);
        assert_int_equal(compilations(0), 0);
    }
    assert_int_equal(compilations(4), 1); /* code that the device does not load */
    damage(path, "rm -r \"$(dirname '%s')\"");
    assert_int_equal(rmdir(folder), 0);
    setenv("XDG_CACHE_HOME", "/dev/null", 1);
    assert_int_equal(compilations(0), 1);
    if (old) setenv("XDG_CACHE_HOME", old, 1);
    else unsetenv("XDG_CACHE_HOME");
    free(old);
}

/* ---- NVRTC is missing, or older than the device ---- */

static int newest; /* architecture that NVRTC supports; 0: no NVRTC */

static nvrtcResult one_architecture(int *n)
{
    *n = 1;
    return NVRTC_SUCCESS;
}
static nvrtcResult that_one(int *known)
{
    *known = newest;
    return NVRTC_SUCCESS;
}

static void *open_other(cuda_library library, char *reason, size_t size)
{
    if (library != CUDA_RTC || newest) return double_provider.open(library, reason, size);
    snprintf(reason, size, "NVRTC was not found");
    return NULL;
}
static void *symbol_of_other(void *handle, cuda_library library, const char *name)
{
    nvrtcResult (*own)(int *) = strcmp(name, "nvrtcGetNumSupportedArchs") == 0 ? one_architecture
                                : strcmp(name, "nvrtcGetSupportedArchs") == 0  ? that_one
                                                                               : NULL;
    void *symbol = NULL;
    if (!own) return double_provider.symbol(handle, library, name);
    memcpy(&symbol, &own, sizeof symbol);
    return symbol;
}

/* Prepares a fused kernel if NVRTC supports only one architecture, or is missing. */
static void with_other(int architecture, ampc_status wanted, const char *reason)
{
    static const cuda_provider provider = {open_other, symbol_of_other};
    example e = example_of(IR_bf16, 3, 11 + architecture, true);
    size_t workspace = 0;
    newest = architecture;
    cuda_api_provide(&provider);
    k_context ctx = open_context();
    k_args args = args_of(&e, &ctx);
    must(cuda_fused.prepare(&args, &args.state, &workspace));
    ampc_status status = cuda_prepared(&ctx);
    if (status != wanted) fail_msg("%s", error);
    if (reason) assert_string_equal(error, reason);
    cuda_fused.release(args.state);
    must(cuda_prepared(&ctx)); /* rejected kernels are no longer pending */
    cuda_context_close(&ctx);
    cuda_api_provide(&double_provider);
    must(cuda_api_open(CUDA_RT, error, sizeof error));
}

static void nvrtc_may_be_missing_or_old(void **state)
{
    (void)state;
    setenv("XDG_CACHE_HOME", "/dev/null", 1);
    with_other(0, AMPC_DEVICE, "fused kernels require NVRTC: NVRTC was not found");
    with_other(80, AMPC_OK, NULL); /* uses PTX */
    with_other(100, AMPC_DEVICE, "fused kernels: this NVRTC does not support architecture 90");
}

/* ---- faults ---- */

enum { ROWS = 2, COLUMNS = 200000 }; /* rows that are cut into groups */

typedef struct buffers {
    float *host;
    char *device;
    size_t bytes;
} buffers;

/* Lays out x, bias, y and the sums at multiples of the arena's alignment. */
static size_t place(example *e, char *base)
{
    size_t at = 0;
    k_view *views[] = {&e->in[0], &e->in[1], &e->out[0], &e->out[1]};
    for (int i = 0; i < 4; i++) {
        views[i]->data = base + at;
        at += (k_bytes(views[i]) + CUDA_ALIGNMENT - 1) / CUDA_ALIGNMENT * CUDA_ALIGNMENT;
    }
    return at;
}

static void run_example(example *e, const k_context *ctx, bool fault, buffers *b)
{
    k_args args = args_of(e, ctx);
    size_t workspace = 0;
    void *memory;
    cudaStream_t stream = cuda_of(ctx)->stream;
    must(cuda_fused.prepare(&args, &args.state, &workspace));
    must(cuda_prepared(ctx));
    assert_true(workspace > 0);
    assert_int_equal(cuda.cudaMalloc(&memory, workspace), cudaSuccess);
    args.workspace = memory;
    for (size_t i = 0; i < b->bytes / sizeof *b->host; i++) b->host[i] = 1;
    cuda.cudaMemcpyAsync(b->device, b->host, b->bytes, cudaMemcpyHostToDevice, stream);
    cuda.cudaMemsetAsync(cuda_of(ctx)->fault, fault ? 0 : K_NO_FAULT & 0xff, sizeof(int), stream);
    must(cuda_fused.run(&args));
    cuda.cudaMemcpyAsync(b->host, b->device, b->bytes, cudaMemcpyDeviceToHost, stream);
    assert_int_equal(cuda.cudaStreamSynchronize(stream), cudaSuccess);
    cuda.cudaFree(memory);
    cuda_fused.release(args.state);
}

static void nothing_is_committed_after_a_fault(void **state)
{
    k_context ctx = open_context();
    example e = example_of(IR_f32, ROWS, COLUMNS, true);
    buffers b = {.bytes = place(&e, NULL)};
    (void)state;
    assert_int_equal(cuda.cudaMallocHost((void **)&b.host, b.bytes), cudaSuccess);
    assert_int_equal(cuda.cudaMalloc((void **)&b.device, b.bytes), cudaSuccess);
    place(&e, b.device);
    for (int i = 0; i < 4; i++) {
        const bool fault = i & 1;
        const bool commits = e.fused.commits = i & 2;
        run_example(&e, &ctx, fault, &b);
        const float *y = b.host + ((char *)e.out[0].data - b.device) / (ptrdiff_t)sizeof *y;
        const float *sums = b.host + ((char *)e.out[1].data - b.device) / (ptrdiff_t)sizeof *sums;
        for (int r = 0; r < ROWS; r++) assert_true(sums[r] == (fault && commits ? 1 : 2 * COLUMNS));
        for (int k = 0; k < ROWS * COLUMNS; k++) assert_true(y[k] == (fault && commits ? 1 : 2));
    }
    cuda.cudaFree(b.device);
    cuda.cudaFreeHost(b.host);
    cuda_context_close(&ctx);
}

/* ---- rejections ---- */

static void f64_is_refused(void **state)
{
    k_context ctx = open_context();
    example e = example_of(IR_f32, 3, 5, false);
    k_args args = args_of(&e, &ctx);
    size_t workspace = 0;
    (void)state;
    e.fused.code[0].type = IR_f64;
    assert_int_equal(cuda_fused.prepare(&args, &args.state, &workspace), AMPC_UNSUPPORTED);
    assert_non_null(strstr(error, "float64"));
    cuda_context_close(&ctx);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_give_the_bits_of_their_ops),
        cmocka_unit_test(elements_move_in_128_bits),
        cmocka_unit_test(local_memory_is_found),
        cmocka_unit_test(the_largest_program_fits),
        cmocka_unit_test(code_is_kept),
        cmocka_unit_test(nothing_is_committed_after_a_fault),
        cmocka_unit_test(f64_is_refused),
        cmocka_unit_test(nvrtc_may_be_missing_or_old),
    };
    return rows_run("program", tests, sizeof tests / sizeof *tests);
}

int main(void) { return ops_main(2, (char *[]){"", "--device=cuda"}, run); }
