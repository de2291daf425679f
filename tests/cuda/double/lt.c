/* lt.c - the double of cuBLASLt: its own handle, algorithms and execution, with the real library's descriptors.
 *
 * An algorithm contains a magic number, a fingerprint of the problem for which it was found, and its requirements on pointers and
 * workspace. A matmul with an algorithm for another problem, or one that does not meet the requirements, is rejected. Beyond the
 * header's rules, the double enforces ours: the algorithm is always specified, and partial sums are never stored in the result's
 * type. */
#include "tests/cuda/double/lt.h"

#include <stdlib.h>
#include <string.h>

static const char HANDLE[] = "cuBLASLt handle";
static const uint64_t MARK = 0x7464756f622d746c;

enum { MAX_ALGORITHMS = 4, ROOM_STEP = 1 << 20, LEAST_ALIGNMENT = 16 };

/* The contents of a cublasLtMatmulAlgo_t. */
typedef struct algorithm {
    uint64_t mark, problem, workspace, number;
    uint32_t alignment[4]; /* of A, B, C, D */
    uint32_t bias, aux;    /* alignment of the pointers in the heuristic call; 0: absent */
} algorithm;
_Static_assert(sizeof(algorithm) <= sizeof(cublasLtMatmulAlgo_t), "an algorithm fits in the library's");

static cublasStatus_t wrong(const char *why)
{
    double_refuse("cuBLASLt: %s", why);
    return CUBLAS_STATUS_INVALID_VALUE;
}

/* ---- handle ---------------------------------------------------------------------------------- */

static cublasStatus_t create(cublasLtHandle_t *out)
{
    *out = malloc(1);
    if (!*out) return CUBLAS_STATUS_ALLOC_FAILED;
    double_enter(*out, HANDLE);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t destroy(cublasLtHandle_t handle)
{
    if (!double_known(handle, HANDLE)) return wrong("no such handle");
    double_leave(handle);
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- algorithms ------------------------------------------------------------------------------ */

/* Hashes everything but addresses (FNV-1a). */
static uint64_t fingerprint(const lt_problem *problem)
{
    const lt_problem *p = problem;
    const int64_t parts[] = {p->a.type,   p->a.rows,   p->a.columns,  p->a.ld,        p->a.batch,       p->a.stride,
                             p->b.type,   p->b.rows,   p->b.columns,  p->b.ld,        p->b.stride,      p->trans_a,
                             p->c.ld,     p->c.stride, p->d.type,     p->d.ld,        p->d.stride,      p->trans_b,
                             p->epilogue, p->aux_ld,   p->aux_stride, p->bias_stride, p->device_scalars};
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < sizeof parts; i++) hash = (hash ^ ((const unsigned char *)parts)[i]) * 0x100000001b3;
    return hash;
}

static uint32_t alignment_of(const char *address)
{
    enum { MAX_COUNT = 256 };
    uintptr_t bits = (uintptr_t)address | MAX_COUNT;
    return (uint32_t)(bits & -bits);
}

static cublasStatus_t read_preference(cublasLtMatmulPreference_t preference, uint64_t *room, uint32_t *schemes,
                                      uint32_t *alignment)
{
    static const cublasLtMatmulPreferenceAttributes_t names[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    size_t written;
    if (!preference) return wrong("the preference is missing");
    cublasStatus_t status = double_inner.cublasLtMatmulPreferenceGetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, room, sizeof *room, &written);
    if (!status)
        status = double_inner.cublasLtMatmulPreferenceGetAttribute(
            preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes, sizeof *schemes, &written);
    for (int i = 0; i < 4 && !status; i++)
        status = double_inner.cublasLtMatmulPreferenceGetAttribute(preference, names[i], &alignment[i],
                                                                   sizeof alignment[i], &written);
    return status;
}

/* The first algorithm requires full alignment and some workspace, like split-k algorithms; the last one requires nothing. */
static cublasStatus_t heuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t how, cublasLtMatrixLayout_t a,
                                cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                cublasLtMatmulPreference_t preference, int most,
                                cublasLtMatmulHeuristicResult_t *results, int *count)
{
    lt_problem p;
    uint64_t room = 0;
    uint32_t schemes = 0, alignment[4];
    *count = 0;
    if (!double_known(handle, HANDLE)) return wrong("no such handle");
    if (most <= 0) return wrong("no algorithm was asked for");
    cublasStatus_t status = lt_read(&p, how, a, b, c, d);
    if (!status) status = read_preference(preference, &room, &schemes, alignment);
    if (status) return status;
    if (schemes & (CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE))
        return wrong("partial sums could be kept in the type of the result, which we never allow");
    if (schemes && p.epilogue & ~(unsigned)(LT_SUM_A | LT_SUM_B) && p.d.type != IR_f32)
        return wrong("the sum of parts of k would be rounded before the epilogue");
    for (int i = 0; i < most && i < MAX_ALGORITHMS; i++) {
        algorithm found = {.mark = MARK, .problem = fingerprint(&p), .number = (uint64_t)i};
        uint64_t wish = (uint64_t)(MAX_ALGORITHMS - 1 - i) * ROOM_STEP;
        found.workspace = wish < room ? wish : room;
        for (int k = 0; k < 4; k++)
            found.alignment[k] = alignment[k] < LEAST_ALIGNMENT || i == 0 ? alignment[k] : LEAST_ALIGNMENT;
        if (p.epilogue & (LT_BIAS | LT_SUMS)) found.bias = alignment_of(p.bias);
        if (p.epilogue & LT_WITH_AUX) found.aux = alignment_of(p.aux);
        memset(&results[i], 0, sizeof results[i]);
        memcpy(&results[i].algo, &found, sizeof found);
        results[i].workspaceSize = found.workspace;
        results[i].wavesCount = 1;
        ++*count;
    }
    return CUBLAS_STATUS_SUCCESS;
}

static unsigned refused_when_checked, refused_when_run;

void double_refuse_algorithms(unsigned checked, unsigned run)
{
    refused_when_checked = checked;
    refused_when_run = run;
}

static cublasStatus_t refuse_if(unsigned refused, const algorithm *a)
{
    if (!(refused >> a->number & 1)) return CUBLAS_STATUS_SUCCESS;
    double_refuse("cuBLASLt: this algorithm is to be refused");
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

static cublasStatus_t check_algorithm(const lt_problem *p, const cublasLtMatmulAlgo_t *algo, algorithm *out)
{
    if (!algo) return wrong("no algorithm is given: we always choose it ourselves");
    memcpy(out, algo, sizeof *out);
    if (out->mark != MARK) return wrong("not an algorithm of the double");
    if (out->problem != fingerprint(p)) return wrong("the algorithm was found for another problem");
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t algorithm_check(cublasLtHandle_t handle, cublasLtMatmulDesc_t how, cublasLtMatrixLayout_t a,
                                      cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                      const cublasLtMatmulAlgo_t *algo, cublasLtMatmulHeuristicResult_t *result)
{
    lt_problem p;
    algorithm found;
    if (!double_known(handle, HANDLE)) return wrong("no such handle");
    cublasStatus_t status = lt_read(&p, how, a, b, c, d);
    if (!status) status = check_algorithm(&p, algo, &found);
    if (!status) status = refuse_if(refused_when_checked, &found);
    if (status) return status;
    memset(result, 0, sizeof *result);
    result->algo = *algo;
    result->workspaceSize = found.workspace;
    return CUBLAS_STATUS_SUCCESS;
}

/* The real library does not expose the contents of an algorithm. */
static cublasStatus_t algorithm_get(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t name,
                                    void *value, size_t size, size_t *written)
{
    (void)algo, (void)name, (void)value, (void)size, (void)written;
    double_refuse("cuBLASLt: the double's algorithms have no attributes");
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

static cublasStatus_t algorithm_set(cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t name,
                                    const void *value, size_t size)
{
    (void)value;
    return algorithm_get(algo, name, NULL, size, NULL);
}

/* ---- matmul ---------------------------------------------------------------------------------- */

static bool is_matrix(const lt_matrix *m, const char *base, uint32_t alignment)
{
    const size_t bytes = (size_t)lt_extent(m) * ir_dtype_size(m->type);
    return double_on_device(base, bytes) && (alignment == 0 || (uintptr_t)base % alignment == 0);
}

static cublasStatus_t check_pointers(const lt_call *call, const algorithm *found)
{
    const lt_problem *p = &call->p;
    const bool with_c = call->device_beta || call->beta != 0;
    if (!is_matrix(&p->a, call->a, found->alignment[0]) || !is_matrix(&p->b, call->b, found->alignment[1]) ||
        (with_c && !is_matrix(&p->c, call->c, found->alignment[2])) || !is_matrix(&p->d, call->d, found->alignment[3]))
        return wrong("a matrix is not wholly on the device, or less aligned than its algorithm was told");
    if (with_c && call->c == call->d && (p->c.ld != p->d.ld || p->c.stride != p->d.stride))
        return wrong("C overlaps D in another layout");
    if (p->epilogue & (LT_BIAS | LT_SUMS)) {
        int64_t last = (p->d.batch - 1) * p->bias_stride + lt_sum_length(p);
        if (!double_on_device(p->bias, (size_t)last * ir_dtype_size(p->bias_type)))
            return wrong("the bias is not wholly on the device");
        if (alignment_of(p->bias) < found->bias) return wrong("the bias is less aligned than when it was asked for");
    }
    if (p->epilogue & LT_WITH_AUX) {
        int64_t last = (p->d.batch - 1) * p->aux_stride + p->aux_ld * p->d.columns;
        size_t bytes = LT_BITS_AUX(p->epilogue) ? (size_t)last / 8 : (size_t)last * ir_dtype_size(p->aux_type);
        if (!double_on_device(p->aux, bytes) || (uintptr_t)p->aux % LEAST_ALIGNMENT)
            return wrong("the aux buffer is not wholly on the device or not aligned to 16 bytes");
        if (alignment_of(p->aux) < found->aux)
            return wrong("the aux buffer is less aligned than when it was asked for");
    }
    if (call->workspace_bytes &&
        (!double_on_device(call->workspace, call->workspace_bytes) || (uintptr_t)call->workspace % LEAST_ALIGNMENT))
        return wrong("the workspace is not wholly on the device or not aligned to 16 bytes");
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t read_scalars(lt_call *call, const void *alpha, const void *beta)
{
    if (!alpha || !beta) return wrong("alpha or beta is missing");
    if (double_on_device(alpha, sizeof(float)) != call->p.device_scalars ||
        double_on_device(beta, sizeof(float)) != call->p.device_scalars)
        return wrong("alpha or beta is not where the pointer mode says");
    if (call->p.device_scalars) {
        call->device_alpha = alpha;
        call->device_beta = beta;
    } else {
        call->alpha = *(const float *)alpha;
        call->beta = *(const float *)beta;
    }
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t enqueue(const lt_call *call, cudaStream_t stream)
{
    lt_call *kept = malloc(sizeof *kept);
    if (!kept) return CUBLAS_STATUS_ALLOC_FAILED;
    *kept = *call;
    return double_enqueue(stream, "matmul", lt_run, kept, free) ? CUBLAS_STATUS_EXECUTION_FAILED
                                                                : CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t matmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t how, const void *alpha, const void *a,
                             cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                             const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                             cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo, void *workspace,
                             size_t workspace_bytes, cudaStream_t stream)
{
    lt_call call = {.a = a, .b = b, .c = c, .d = d, .workspace = workspace};
    algorithm found;
    if (!double_known(handle, HANDLE)) return wrong("no such handle");
    cublasStatus_t status = lt_read(&call.p, how, a_layout, b_layout, c_layout, d_layout);
    if (!status) status = check_algorithm(&call.p, algo, &found);
    if (!status) status = refuse_if(refused_when_run, &found);
    if (!status) status = read_scalars(&call, alpha, beta);
    if (status) return status;
    if (found.workspace > workspace_bytes) return wrong("the workspace is smaller than the algorithm wants");
    call.workspace_bytes = (size_t)found.workspace;
    status = check_pointers(&call, &found);
    return status ? status : enqueue(&call, stream);
}

/* A function of the double, checked to have the library function's type. */
/* clang-format off */
#define OWN(name, function) {#name, (void (*)(void)) _Generic(&(function), __typeof__(&(name)) : &(function))}
/* clang-format on */
static const double_function functions[] = {
    OWN(cublasLtCreate, create),
    OWN(cublasLtDestroy, destroy),
    OWN(cublasLtMatmulAlgoGetHeuristic, heuristic),
    OWN(cublasLtMatmulAlgoCheck, algorithm_check),
    OWN(cublasLtMatmulAlgoConfigGetAttribute, algorithm_get),
    OWN(cublasLtMatmulAlgoConfigSetAttribute, algorithm_set),
    OWN(cublasLtMatmul, matmul),
    {NULL, NULL},
};

const double_library double_lt = {true, functions};
