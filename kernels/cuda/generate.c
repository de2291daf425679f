/* generate.c - compiles generated sources to kernels (see generate.h).
 *
 * Kernels are named by the hash of their source. All sources added since the last compilation form one unit, so that
 * the headers are parsed once for all of them. The unit is compiled to device code, or to PTX if the device is newer
 * than NVRTC. The result is cached as a sealed file (cache.h); code that the device fails to load counts as missing. */
#include "kernels/cuda/generate.h"
#include "kernels/cuda/cache.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CODE = 256 << 20, MAX_LOG_LINE = 200 };

/* A loaded unit, unloaded when the context is closed. */
typedef struct loaded {
    cudaLibrary_t library;
    struct loaded *next;
} loaded;

struct cuda_generation {
    cuda_generated *kernels;
    loaded *libraries;
};

/* ---- the kernels of a context ---- */

static struct cuda_generation *generation_of(const k_context *ctx)
{
    cuda_context *c = cuda_of(ctx);
    if (!c->generation) c->generation = calloc(1, sizeof *c->generation);
    return c->generation;
}

ampc_status cuda_generate(const k_context *ctx, char *text, const cuda_generated **out)
{
    struct cuda_generation *g = generation_of(ctx);
    cuda_generated *k = g ? g->kernels : NULL;
    while (k && strcmp(k->text, text) != 0) k = k->next;
    if (k) {
        free(text);
    } else {
        k = g ? calloc(1, sizeof *k) : NULL;
        if (!k) {
            free(text);
            return cuda_fail(ctx, AMPC_NO_MEMORY, "out of memory");
        }
        cuda_cache_key key = cuda_cache_start();
        cuda_cache_add_text(&key, text);
        snprintf(k->name, sizeof k->name, "fused_%016" PRIx64, key.name);
        k->text = text;
        k->next = g->kernels;
        g->kernels = k;
    }
    *out = k;
    return AMPC_OK;
}

static void drop_pending(struct cuda_generation *g)
{
    for (cuda_generated **at = &g->kernels; *at;) {
        cuda_generated *k = *at;
        if (k->kernel) {
            at = &k->next;
            continue;
        }
        *at = k->next;
        free(k->text);
        free(k);
    }
}

void cuda_generate_close(cuda_context *c)
{
    struct cuda_generation *g = c->generation;
    if (!g) return;
    for (cuda_generated *k = g->kernels; k; k = k->next) k->kernel = NULL;
    drop_pending(g);
    while (g->libraries) {
        loaded *l = g->libraries;
        g->libraries = l->next;
        cuda.cudaLibraryUnload(l->library);
        free(l);
    }
    free(g);
    c->generation = NULL;
}

/* ---- units ---- */

static bool is_pending(const cuda_generated *k) { return !k->kernel; }

static bool any_pending(const struct cuda_generation *g)
{
    for (const cuda_generated *k = g->kernels; k; k = k->next)
        if (is_pending(k)) return true;
    return false;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(cuda_generated *const *)a)->name, (*(cuda_generated *const *)b)->name);
}

/* Writes the kernels sorted by name, so that the unit and its cache key do not depend on the order of plans. */
static void write_unit(FILE *f, cuda_generated *const *kernels, int n)
{
    fprintf(f, "#include \"kernels/cuda/fused.cuh\"\n");
    for (int i = 0; i < n; i++)
        fprintf(f, "\nextern \"C\" __global__ void FUSED_BOUNDS %s%sAMPC_KERNEL(%s)\n", kernels[i]->name,
                kernels[i]->text, kernels[i]->name);
}

/* Returns the source of the unit, malloc'ed; NULL if out of memory. */
static char *unit_text(const struct cuda_generation *g)
{
    char *text = NULL;
    size_t size = 0;
    int n = 0;
    for (cuda_generated *k = g->kernels; k; k = k->next) n += is_pending(k);
    cuda_generated **kernels = malloc((size_t)n * sizeof *kernels);
    FILE *f = kernels ? open_memstream(&text, &size) : NULL;
    if (f) {
        n = 0;
        for (cuda_generated *k = g->kernels; k; k = k->next)
            if (is_pending(k)) kernels[n++] = k;
        qsort(kernels, (size_t)n, sizeof *kernels, by_name);
        write_unit(f, kernels, n);
        bool failed = ferror(f) != 0;
        if (fclose(f) != 0 || failed) {
            free(text);
            text = NULL;
        }
    }
    free(kernels);
    return text;
}

/* ---- NVRTC ---- */

static ampc_status rtc_status(const k_context *ctx, nvrtcResult result, const char *call)
{
    if (result == NVRTC_SUCCESS) return AMPC_OK;
    return cuda_fail(ctx, result == NVRTC_ERROR_OUT_OF_MEMORY ? AMPC_NO_MEMORY : AMPC_DEVICE, "%s: %s", call,
                     cuda.nvrtcGetErrorString(result));
}
#define RTC_CALL(ctx, function, ...) CUDA_FORWARD(rtc_status(ctx, cuda.function(__VA_ARGS__), #function))

/* Finds the newest architecture that NVRTC supports and the device can run. Returns AMPC_DEVICE if there is none. */
static ampc_status choose_architecture(const k_context *ctx, int device, int *out)
{
    int n = 0;
    RTC_CALL(ctx, nvrtcGetNumSupportedArchs, &n);
    int *supported = malloc((size_t)(n > 0 ? n : 1) * sizeof *supported);
    if (!supported) return cuda_fail(ctx, AMPC_NO_MEMORY, "out of memory");
    ampc_status status = rtc_status(ctx, cuda.nvrtcGetSupportedArchs(supported), "nvrtcGetSupportedArchs");
    *out = 0;
    for (int i = 0; i < n && status == AMPC_OK; i++)
        if (supported[i] <= device && supported[i] > *out) *out = supported[i];
    free(supported);
    if (status == AMPC_OK && *out == 0)
        return cuda_fail(ctx, AMPC_DEVICE, "fused kernels: this NVRTC does not support architecture %d", device);
    return status;
}

/* Reports the first line of the log that contains "error". */
static ampc_status compile_failed(const k_context *ctx, nvrtcProgram program, nvrtcResult result)
{
    size_t bytes = 0;
    char *log = NULL;
    if (cuda.nvrtcGetProgramLogSize(program, &bytes) == NVRTC_SUCCESS) log = calloc(1, bytes + 1);
    if (log) cuda.nvrtcGetProgramLog(program, log);
    const char *line = log ? strstr(log, "error") : NULL;
    if (!line) line = log ? log : "";
    cuda_fail(ctx, AMPC_DEVICE, "NVRTC failed to compile a fused kernel: %s: %.*s", cuda.nvrtcGetErrorString(result),
              (int)(strcspn(line, "\n") < MAX_LOG_LINE ? strcspn(line, "\n") : MAX_LOG_LINE), line);
    free(log);
    return result == NVRTC_ERROR_OUT_OF_MEMORY ? AMPC_NO_MEMORY : AMPC_DEVICE;
}

static ampc_status read_code(const k_context *ctx, nvrtcProgram program, bool ptx, char **code, size_t *bytes)
{
    if (ptx) RTC_CALL(ctx, nvrtcGetPTXSize, program, bytes);
    else RTC_CALL(ctx, nvrtcGetCUBINSize, program, bytes);
    *code = malloc(*bytes ? *bytes : 1);
    if (!*code) return cuda_fail(ctx, AMPC_NO_MEMORY, "out of memory");
    if (ptx) RTC_CALL(ctx, nvrtcGetPTX, program, *code);
    else RTC_CALL(ctx, nvrtcGetCUBIN, program, *code);
    return AMPC_OK;
}

/* Disables FMA contraction, so that a fused kernel rounds exactly like separate kernels. */
static ampc_status compile_for(const k_context *ctx, nvrtcProgram program, int device, char **code, size_t *bytes)
{
    char architecture[64];
    const char *options[] = {architecture, "--std=c++17", "--fmad=false", "--ptxas-options=-warn-spills",
                             "--ptxas-options=-warn-lmem-usage"};
    int newest = 0;
    CUDA_FORWARD(choose_architecture(ctx, device, &newest));
    const bool ptx = newest != device;
    snprintf(architecture, sizeof architecture, "--gpu-architecture=%s_%d", ptx ? "compute" : "sm", newest);
    nvrtcResult result = cuda.nvrtcCompileProgram(program, ptx ? 3 : 5, options);
    return result ? compile_failed(ctx, program, result) : read_code(ctx, program, ptx, code, bytes);
}

/* *code is malloc'ed, also on failure. */
static ampc_status compile(const k_context *ctx, const char *text, int device, char **code, size_t *bytes)
{
    char reason[256];
    nvrtcProgram program = NULL;
    if (cuda_api_open(CUDA_RTC, reason, sizeof reason) != AMPC_OK)
        return cuda_fail(ctx, AMPC_DEVICE, "fused kernels require NVRTC: %s", reason);
    const char **texts = malloc((size_t)cuda_header_count * sizeof *texts);
    const char **names = malloc((size_t)cuda_header_count * sizeof *names);
    ampc_status status = texts && names ? AMPC_OK : cuda_fail(ctx, AMPC_NO_MEMORY, "out of memory");
    for (int i = 0; i < cuda_header_count && status == AMPC_OK; i++) {
        texts[i] = cuda_headers[i].text;
        names[i] = cuda_headers[i].name;
    }
    if (status == AMPC_OK)
        status = rtc_status(ctx, cuda.nvrtcCreateProgram(&program, text, "fused.cu", cuda_header_count, texts, names),
                            "nvrtcCreateProgram");
    free(texts);
    free(names);
    if (status == AMPC_OK) status = compile_for(ctx, program, device, code, bytes);
    if (program) cuda.nvrtcDestroyProgram(&program);
    return status;
}

/* The cache key of a unit: everything that its code depends on. */
static cuda_cache_key unit_key(const char *text, int architecture, int version)
{
    cuda_cache_key key = cuda_cache_start();
    cuda_cache_add_text(&key, text);
    for (int i = 0; i < cuda_header_count; i++) {
        cuda_cache_add_text(&key, cuda_headers[i].name);
        cuda_cache_add_text(&key, cuda_headers[i].text);
    }
    cuda_cache_add(&key, &architecture, sizeof architecture);
    cuda_cache_add(&key, &version, sizeof version);
    return key;
}

/* ---- loading ---- */

/* Loads compiled code and looks up all pending kernels. The context owns the library, even if a kernel is missing. */
static ampc_status load(const k_context *ctx, struct cuda_generation *g, const char *code)
{
    loaded *l = calloc(1, sizeof *l);
    if (!l) return cuda_fail(ctx, AMPC_NO_MEMORY, "out of memory");
    ampc_status status = cuda_status(ctx, cuda.cudaLibraryLoadData(&l->library, code, NULL, NULL, 0, NULL, NULL, 0),
                                     "cudaLibraryLoadData");
    if (!l->library) {
        free(l);
        return status;
    }
    l->next = g->libraries;
    g->libraries = l;
    for (cuda_generated *k = g->kernels; k && status == AMPC_OK; k = k->next) {
        if (!is_pending(k)) continue;
        status = cuda_get_kernel(ctx, l->library, k->name, &k->kernel);
    }
    return status;
}

static ampc_status build(const k_context *ctx, struct cuda_generation *g, const char *text)
{
    int major = 0, minor = 0, version = 0;
    char *code = NULL;
    size_t bytes = 0;
    CUDA_CALL(ctx, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, cuda_of(ctx)->device));
    CUDA_CALL(ctx, cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, cuda_of(ctx)->device));
    CUDA_CALL(ctx, cudaRuntimeGetVersion(&version));
    const int device = 10 * major + minor;
    const cuda_cache_key key = unit_key(text, device, version);
    code = cuda_cache_find("kernels", &key, MAX_CODE, &bytes);
    if (code) {
        ampc_status status = load(ctx, g, code);
        free(code);
        if (status == AMPC_OK) return AMPC_OK;
        cuda.cudaGetLastError(); /* clears the error, or a later call would report it */
        code = NULL;
    }
    ampc_status status = compile(ctx, text, device, &code, &bytes);
    if (status == AMPC_OK) status = load(ctx, g, code);
    if (status == AMPC_OK) cuda_cache_store("kernels", &key, code, bytes);
    free(code);
    return status;
}

ampc_status cuda_prepared(const k_context *ctx)
{
    struct cuda_generation *g = cuda_of(ctx)->generation;
    if (!g || !any_pending(g)) return AMPC_OK;
    char *text = unit_text(g);
    ampc_status status = text ? build(ctx, g, text) : cuda_fail(ctx, AMPC_NO_MEMORY, "out of memory");
    free(text);
    if (status != AMPC_OK) drop_pending(g);
    return status;
}
