/* test_scaler.c - the loss scalers of tests/train/test_scaler.c on the CUDA backend: the same random flags, shorter sequences. */
#include "kernels/cuda/cuda.h"
#include "runtime/backend/backend.h"
#include "tests/cuda/double/double.h"
#include "tests/train/scaler_rules.h"

extern const rt_backend rt_backend_cuda;

enum { LENGTH = 8 };

/* A trail in one block of memory, so that a sequence needs one copy in each direction. */
typedef struct block {
    float scale[LENGTH + 1];
    int32_t good[LENGTH + 1], bad[LENGTH + 1];
    bool found[LENGTH];
} block;

static char error[512];
static k_context context = {.threads = 1, .error = error, .error_size = sizeof error};
static block *device, *host;

static int open_device(void **state)
{
    (void)state;
    double_install();
    double_mode(DOUBLE_LAZY);
    if (cuda_context_open(&context, 0) != AMPC_OK) return -1;
    if (rt_backend_cuda.device_ops->clear_fault(&context) != AMPC_OK) return -1;
    return cuda.cudaMalloc((void **)&device, sizeof *device) || cuda.cudaMallocHost((void **)&host, sizeof *host);
}

static int close_device(void **state)
{
    (void)state;
    cuda.cudaFree(device);
    cuda.cudaFreeHost(host);
    cuda_context_close(&context);
    double_reset();
    return 0;
}

static void run_steps(const ir_node *n)
{
    k_view in[4] = {{.dtype = IR_bool}, {.dtype = IR_f32}, {.dtype = IR_i32}, {.dtype = IR_i32}}, out[3];
    k_args args = {.op = n->op, .in = in, .out = out, .n_in = 4, .n_out = 3, .attr = n->attr, .ctx = &context};
    const k_kernel *kernel = cuda_kernel(n->op);
    size_t workspace = 0;
    memcpy(out, in + 1, sizeof out);
    assert_int_equal(kernel->prepare(&args, &args.state, &workspace), AMPC_OK);
    for (int k = 0; k < LENGTH; k++) {
        in[0].data = &device->found[k];
        in[1].data = &device->scale[k];
        in[2].data = &device->good[k];
        in[3].data = &device->bad[k];
        out[0].data = &device->scale[k + 1];
        out[1].data = &device->good[k + 1];
        out[2].data = &device->bad[k + 1];
        if (kernel->run(&args) != AMPC_OK) fail_msg("%s", error);
    }
    kernel->release(args.state);
}

static void run_on_cuda(const ir_node *n, scaler_trail *t)
{
    (void)t; /* its arrays are those of `host` */
    cudaStream_t stream = cuda_of(&context)->stream;
    cuda.cudaMemcpyAsync(device, host, sizeof *host, cudaMemcpyHostToDevice, stream);
    run_steps(n);
    cuda.cudaMemcpyAsync(host, device, sizeof *host, cudaMemcpyDeviceToHost, stream);
    assert_int_equal(cuda.cudaStreamSynchronize(stream), cudaSuccess);
}

TEST_SCRATCH(test_scalers)
{
    scaler_trail trail = {LENGTH, host->found, host->scale, host->good, host->bad};
    for (int i = 0; i < SCALER_ROWS; i++) scaler_compare(t, &scaler_rows[i], &trail, run_on_cuda);
}

TEST_GROUP(open_device, close_device)
