/* test_described.c - plans for a described GPU: the product itself with the real cuDNN and without driver or device, not a program
 * with the doubles. */

#include <sys/wait.h>

#include "kernels/cuda/api.h"
#include "tests/test.h"

#define RUN AMPC_BUILD_DIR "/ampc-run"
#define RUN_DOUBLE AMPC_BUILD_DIR "/tests/cuda/ampc-run-double"
#define H200 AMPC_SOURCE_DIR "/tests/cuda/recorded/h200.json"
#define MNIST AMPC_SOURCE_DIR "/tests/models/mnist.onnx"
#define MLP AMPC_SOURCE_DIR "/tests/models/mlp.onnx"
#define QUOTED(number) #number
#define TEXT(number) QUOTED(number)
#define TRAINS " --loss=ce --optimizer=momentum"
/* Limits the address space to this many KiB; not with AddressSanitizer, which needs terabytes. */
#ifdef __SANITIZE_ADDRESS__
#define WITHIN(kib) ""
#else
#define WITHIN(kib) "ulimit -v " #kib "; "
#endif

/* Returns the standard output of a command (malloc'ed), which must exit with `status`. */
static char *shell(const char *command, int status)
{
    FILE *pipe = popen(command, "r");
    char *text = NULL, block[4096];
    size_t length = 0;
    assert_non_null(pipe);
    for (size_t n; (n = fread(block, 1, sizeof block, pipe)) > 0; length += n) {
        text = realloc(text, length + n + 1);
        assert_non_null(text);
        memcpy(text + length, block, n);
    }
    const int ended = WEXITSTATUS(pclose(pipe));
    if (text) text[length] = 0;
    if (ended != status) fail_msg("%s: status %d\n%s", command, ended, text ? text : "");
    return text ? text : strdup("");
}

static void need(cuda_library library)
{
    char error[512], file[64];
    void *handle = cuda_system.open(library, error, sizeof error);
    cuda_library_file(library, file, sizeof file);
    if (handle) return;
    print_message("[  SKIPPED ] needs %s\n", file);
    skip();
}

/* The double imitates the device of the same file, so both must yield the same plan, including engines and workspace. */
TEST(as_for_a_device)
{
    need(CUDA_DNN);
    need(CUDA_RTC);
    char *described = shell(RUN " plan " MNIST TRAINS " --batch=64 -q --device=" H200, 0);
    char *there = shell(RUN_DOUBLE " plan " MNIST TRAINS " --batch=64 -q --device=cuda", 0);
    assert_non_null(strstr(described, "conv_grad_weight"));
    assert_string_equal(described, there);
    free(described);
    free(there);
}

/* For f16 x f16 -> f32, all engines compile at run time. They must be planned without compiling, and without falling back to f32
 * copies, which would need a workspace of twice the operands. */
TEST(engines_that_compile_are_planned)
{
    need(CUDA_DNN);
    need(CUDA_RTC);
    free(shell("printf '%s' 'ampc-ir 3\ngraph @g(@x : f16[N,64,56,56], @dy : f16[N,64,56,56]) {\nforward:\n"
               "  %dw, %db = conv_grad_weight @dy, @x {strides=[1,1], pads=[1,1,1,1], dilations=[1,1], group=1, "
               "shape=[64,64,3,3], out=f32} : f32[64,64,3,3], f32[64]\n  output \"dw\" = %dw\n}\n' > described.ir",
               0));
    char *text = shell(WITHIN(8388608) RUN " plan described.ir --entry g --batch=256 --json --device=" H200, 0);
    const char *workspace = strstr(text, "\"conv_grad_weight\"");
    workspace = workspace ? strstr(workspace, "\"workspace\":") : NULL;
    assert_non_null(workspace);
    assert_in_range(atoll(workspace + strlen("\"workspace\":")), 0, 64 << 20);
    free(text);
    remove("described.ir");
}

/* Plans an arena of more than 8 GB in an address space of 2 GB. */
TEST(nothing_is_allocated)
{
    char *text = shell(WITHIN(2097152) RUN " plan " MLP TRAINS " --batch=400000000 -q --device=" H200, 0);
    const char *arena = strstr(text, "\narena ");
    assert_non_null(arena);
    assert_true(atoll(arena + strlen("\narena ")) > (int64_t)8 << 30);
    free(text);
}

/* Returns the number of a plan's summary. */
static int64_t number_of(const char *plan, const char *name)
{
    const char *at = strstr(plan, name);
    assert_non_null(at);
    return atoll(at + strlen(name));
}

/* Nothing in a plan grows with the number of pairs: both directions of attention, with packed queries, keys and values, need
 * memory and traffic in proportion to the length. */
TEST(attention_is_linear)
{
    int64_t bytes = 0, planned = 0;
    free(shell("printf '%s' 'ampc-ir 3\ngraph @g(@x : f16[4,T,384], @d : f16[4,T,128]) {\nforward:\n"
               "  %n = neg @x : f16[4,T,384]\n"
               "  %q, %k, %v = split %n {axis=2, sizes=[128,128,128]} : f16[4,T,128], f16[4,T,128], f16[4,T,128]\n"
               "  %qr = reshape %q {shape=[4,T,2,64]} : f16[4,T,2,64]\n"
               "  %kr = reshape %k {shape=[4,T,2,64]} : f16[4,T,2,64]\n"
               "  %vr = reshape %v {shape=[4,T,2,64]} : f16[4,T,2,64]\n"
               "  %dr = reshape @d {shape=[4,T,2,64]} : f16[4,T,2,64]\n"
               "  %qt = transpose %qr {perm=[0,2,1,3]} : f16[4,2,T,64]\n"
               "  %kt = transpose %kr {perm=[0,2,1,3]} : f16[4,2,T,64]\n"
               "  %vt = transpose %vr {perm=[0,2,1,3]} : f16[4,2,T,64]\n"
               "  %dt = transpose %dr {perm=[0,2,1,3]} : f16[4,2,T,64]\n"
               "  %y, %l = attention %qt, %kt, %vt, _ {scale=0.125, causal=true} : f16[4,2,T,64], f32[4,2,T,2]\n"
               "  %dq, %dk, %dv = attention_grad %qt, %kt, %vt, _, %y, %l, %dt {scale=0.125, causal=true} : "
               "f16[4,2,T,64], f16[4,2,T,64], f16[4,2,T,64]\n"
               "  output \"dq\" = %dq\n  output \"dk\" = %dk\n  output \"dv\" = %dv\n}\n' > described.ir",
               0));
    for (int length = 256; length <= 4096; length *= 4) {
        char command[256];
        snprintf(command, sizeof command, RUN " plan described.ir --entry g --dim T=%d --json --device=" H200, length);
        char *plan = shell(command, 0);
        assert_null(strstr(plan, "\"transpose\""));
        const int64_t b = number_of(plan, "\"launches\":3,\"bytes\":"), p = number_of(plan, "\"planned_bytes\":");
        assert_true(length == 256 || (b == 4 * bytes && p <= 4 * planned));
        bytes = b;
        planned = p;
        free(plan);
    }
    remove("described.ir");
}

/* Matmuls need none of the libraries. */
TEST(products_open_no_library)
{
    const char *log = "LD_DEBUG=files " RUN " plan " MLP TRAINS " --batch=8 -q --device=" H200 " 2>&1 | "
                      "grep -oE 'file=[^ ]*lib(cu|nv)[^ ]*' | sort -u";
    char *opened = shell(log, 0);
    assert_string_equal(opened, "");
    free(opened);
}

/* Convolutions need cuDNN. Without a usable one, the error is a single line and the exit code that of a missing device. */
TEST(a_missing_library_is_named)
{
    char *text = shell("rm -rf described.lib && mkdir described.lib && cp " AMPC_BUILD_DIR
                       "/generated/kernels/cuda/driver/libcuda.so.1 described.lib/libcudnn.so." TEXT(
                           CUDNN_MAJOR) " && AMPC_CUDA_PATH=$PWD/described.lib " RUN " plan " MNIST " -q --device=" H200
                                        " 2>&1",
                       6);
    assert_non_null(strstr(text, "cuDNN is older than this program"));
    free(text);
    free(shell("rm -r described.lib", 0));
}

/* Neither cuDNN plans nor kernels are cached. */
TEST(nothing_is_cached)
{
    need(CUDA_DNN);
    free(shell("mkdir -p described.cache && XDG_CACHE_HOME=$PWD/described.cache " RUN " plan " MNIST TRAINS
               " --batch=64 -q --device=" H200 " && rmdir described.cache",
               0));
}

/* cuDNN receives the description unchanged, so it has to describe a valid device. */
TEST(a_description_is_checked)
{
    need(CUDA_DNN);
    free(shell("sed 's/\"warpSize\": 32/\"warpSize\": 0/' " H200 " > described.json", 0));
    char *text = shell(RUN " plan " MNIST " --device=described.json 2>&1", 1);
    assert_non_null(strstr(text, "described.json: error: the property 'warpSize' must be a positive integer"));
    free(text);
    remove("described.json");
}
