/* record.c - records the behaviour of a device and its libraries, for test doubles on machines without one.
 *
 * usage: gpu-record FOLDER
 *   FOLDER/arguments.json  launches with large arguments in a CUDA graph, before anything else (record.h)
 *   FOLDER/device.json     the device properties, as cuDNN describes them for planning without a device
 *   FOLDER/lt.json         for matmuls of many types, shapes and epilogues: cuBLASLt's status and first algorithm */
#include "tests/gpu/record.h"

#include <stdlib.h>

static char error[512];

static int fail(const char *what)
{
    fprintf(stderr, "gpu-record: %s: %s\n", what, error);
    return 1;
}

static FILE *create(const char *folder, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    if (!f) perror(path);
    return f;
}

/* ---- the device ------------------------------------------------------------------------------ */

static ampc_status write_device(const k_context *ctx, FILE *f)
{
    enum { ROOM = 1 << 20 };
    int32_t device = 0;
    int64_t n = 0;
    static char text[ROOM];
    cudnnBackendDescriptor_t d;
    CUDA_FORWARD(cuda_open_dnn(ctx));
    CUDA_DNN_CALL(ctx, cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &d));
    CUDA_DNN_CALL(ctx, cudnnBackendSetAttribute(d, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, 1, &device));
    CUDA_DNN_CALL(ctx, cudnnBackendFinalize(d));
    CUDA_DNN_CALL(
        ctx, cudnnBackendGetAttribute(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, ROOM, &n, text));
    fwrite(text, 1, (size_t)n, f);
    cuda.cudnnBackendDestroyDescriptor(d);
    return AMPC_OK;
}

/* ---- cuBLASLt -------------------------------------------------------------------------------- */

typedef struct problem {
    cudaDataType_t in, out;
    cublasLtEpilogue_t epilogue;
    cublasOperation_t trans_a, trans_b;
    uint64_t m, n, k;
} problem;

static const cudaDataType_t types[][2] = {{CUDA_R_32F, CUDA_R_32F},
                                          {CUDA_R_16F, CUDA_R_16F},
                                          {CUDA_R_16F, CUDA_R_32F},
                                          {CUDA_R_16BF, CUDA_R_16BF},
                                          {CUDA_R_16BF, CUDA_R_32F}};
static const cublasLtEpilogue_t epilogues[] = {
    CUBLASLT_EPILOGUE_DEFAULT,     CUBLASLT_EPILOGUE_BIAS,          CUBLASLT_EPILOGUE_RELU_BIAS,
    CUBLASLT_EPILOGUE_GELU_BIAS,   CUBLASLT_EPILOGUE_RELU_AUX_BIAS, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
    CUBLASLT_EPILOGUE_DRELU_BGRAD, CUBLASLT_EPILOGUE_DGELU_BGRAD,   CUBLASLT_EPILOGUE_BGRADB};
static const uint64_t sizes[][3] = {{4096, 512, 4096}, {768, 4096, 768}, {10, 32, 784}, {17, 5, 3}, {1, 1, 1}};

static cublasLtMatrixLayout_t layout(cudaDataType_t type, uint64_t rows, uint64_t columns)
{
    cublasLtMatrixLayout_t l = NULL;
    cuda.cublasLtMatrixLayoutCreate(&l, type, rows, columns, (int64_t)rows);
    return l;
}

static void write_problem(const k_context *ctx, FILE *f, const problem *p, void *memory, const char *comma)
{
    cublasLtMatmulDesc_t desc;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t result = {0};
    size_t workspace = CUDA_LT_WORKSPACE;
    int64_t aux = (int64_t)(p->m + 127) / 128 * 128;
    int found = 0, algorithm = -1;
    cuda.cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cuda.cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &p->trans_a, sizeof p->trans_a);
    cuda.cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSB, &p->trans_b, sizeof p->trans_b);
    cuda.cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &p->epilogue, sizeof p->epilogue);
    cuda.cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &memory, sizeof memory);
    cuda.cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &memory, sizeof memory);
    cuda.cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &aux, sizeof aux);
    cuda.cublasLtMatmulPreferenceCreate(&preference);
    cuda.cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                              sizeof workspace);
    bool ta = p->trans_a == CUBLAS_OP_T, tb = p->trans_b == CUBLAS_OP_T;
    cublasLtMatrixLayout_t a = layout(p->in, ta ? p->k : p->m, ta ? p->m : p->k);
    cublasLtMatrixLayout_t b = layout(p->in, tb ? p->n : p->k, tb ? p->k : p->n), d = layout(p->out, p->m, p->n);
    cublasStatus_t status = cuda.cublasLtMatmulAlgoGetHeuristic(cuda_of(ctx)->lt, desc, a, b, d, d, preference, 1,
                                                                &result, &found);
    if (status == CUBLAS_STATUS_SUCCESS && found) {
        size_t written;
        cuda.cublasLtMatmulAlgoConfigGetAttribute(&result.algo, CUBLASLT_ALGO_CONFIG_ID, &algorithm, sizeof algorithm,
                                                  &written);
    }
    fprintf(
        f,
        "%s\n {\"in\": %d, \"out\": %d, \"epilogue\": %d, \"trans_a\": %d, \"trans_b\": %d, \"m\": %llu, \"n\": %llu, "
        "\"k\": %llu, \"status\": %d, \"found\": %d, \"algorithm\": %d, \"workspace\": %zu}",
        comma, (int)p->in, (int)p->out, (int)p->epilogue, (int)p->trans_a, (int)p->trans_b, (unsigned long long)p->m,
        (unsigned long long)p->n, (unsigned long long)p->k, (int)status, found, algorithm, result.workspaceSize);
    cuda.cublasLtMatrixLayoutDestroy(a);
    cuda.cublasLtMatrixLayoutDestroy(b);
    cuda.cublasLtMatrixLayoutDestroy(d);
    cuda.cublasLtMatmulPreferenceDestroy(preference);
    cuda.cublasLtMatmulDescDestroy(desc);
}

#define EACH(i, array) for (size_t i = 0; i < sizeof(array) / sizeof *(array); i++)

static ampc_status write_products(const k_context *ctx, FILE *f)
{
    const cublasOperation_t ops[] = {CUBLAS_OP_N, CUBLAS_OP_T};
    void *memory;
    const char *comma = "";
    CUDA_FORWARD(cuda_open_lt(ctx));
    CUDA_CALL(ctx, cudaMalloc(&memory, 1 << 20));
    fprintf(f, "{\"version\": %zu, \"products\": [", cuda.cublasLtGetVersion());
    EACH(t, types) EACH(e, epilogues) EACH(s, sizes) EACH(ta, ops) EACH(tb, ops)
    {
        const problem p = {types[t][0], types[t][1], epilogues[e], ops[ta],
                           ops[tb],     sizes[s][0], sizes[s][1],  sizes[s][2]};
        write_problem(ctx, f, &p, memory, comma);
        comma = ",";
    }
    fprintf(f, "\n]}\n");
    cuda.cudaFree(memory);
    return AMPC_OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

typedef struct part {
    const char *file, *what;
    ampc_status (*write)(const k_context *ctx, FILE *f);
} part;

static const part parts[] = {{"arguments.json", "large arguments in a CUDA graph", record_arguments},
                             {"device.json", "the device's properties", write_device},
                             {"lt.json", "cuBLASLt", write_products}};

static int record(const k_context *ctx, const char *folder, const part *p)
{
    FILE *f = create(folder, p->file);
    if (!f) return 1;
    int failures = p->write(ctx, f) != AMPC_OK && fail(p->what);
    return failures + (fclose(f) != 0);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: gpu-record FOLDER\n");
        return 2;
    }
    k_context ctx = {.threads = 1, .error = error, .error_size = sizeof error};
    if (cuda_context_open(&ctx, 0) != AMPC_OK) return fail("no device") + AMPC_DEVICE - 1;
    int failures = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) failures += record(&ctx, argv[1], &parts[i]);
    cuda_context_close(&ctx);
    return failures ? 1 : 0;
}
