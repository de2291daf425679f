/* test_api.c - the table of CUDA functions: errors on machines without CUDA, the search for libraries, and that our programs
 * neither need nor load a library unless asked to. */

#include <dlfcn.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cuda/double/inner.h"
#include "tests/test.h"

#define RUN AMPC_BUILD_DIR "/ampc-run"
#define RUN_DOUBLE AMPC_BUILD_DIR "/tests/cuda/ampc-run-double"
#define MLP AMPC_SOURCE_DIR "/tests/models/mlp.onnx"

static char error[512];

static void expect_refusal(cuda_library library, const char *part)
{
    error[0] = 0;
    assert_int_equal(cuda_api_open(library, error, sizeof error), AMPC_DEVICE);
    if (!strstr(error, part) || strchr(error, '\n')) fail_msg("expected '%s' in one line: %s", part, error);
}

/* ---- no CUDA --------------------------------------------------------------------------------- */

TEST(drivers)
{
    static const struct {
        int error;
        bool absent;
        const char *part;
    } rows[] = {{cudaErrorInsufficientDriver, true, "no CUDA driver on this machine (error 35, cudaErrorInsufficient"},
                {cudaErrorStubLibrary, true, "only a stub for linking (error 34,"},
                {cudaErrorNoDevice, true, "no CUDA device is visible (error 100,"},
                {cudaErrorInitializationError, false, "cannot count its devices: initialization error (error 3,"},
                {cudaErrorUnknown, false, "(error 999,"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double_install();
        double_driver(rows[i].error);
        expect_refusal(CUDA_RT, rows[i].part);
        assert_int_equal(cuda_error_is_absence((cudaError_t)rows[i].error), rows[i].absent);
    }
    double_driver(0);
    assert_int_equal(cuda_api_open(CUDA_RT, error, sizeof error), AMPC_OK); /* failures are not cached */
    assert_int_equal(cuda_api_open(CUDA_RT, error, sizeof error), AMPC_OK);
}

/* ---- other libraries ------------------------------------------------------------------------- */

static const char *lacking; /* a function that the library lacks, or NULL */
static int version;

static cudaError_t runtime_version(int *out)
{
    *out = version;
    return cudaSuccess;
}

static size_t lt_version(void) { return (size_t)version; }

static void *odd_symbol(void *handle, cuda_library library, const char *name)
{
    union {
        cudaError_t (*runtime)(int *);
        size_t (*lt)(void);
        void *pointer;
    } own = {.runtime = runtime_version};
    if (lacking && strcmp(name, lacking) == 0) return NULL;
    if (version && strcmp(name, "cudaRuntimeGetVersion") == 0) return own.pointer;
    own.lt = lt_version;
    if (version && strcmp(name, "cublasLtGetVersion") == 0) return own.pointer;
    return double_provider.symbol(handle, library, name);
}

static void *no_library(cuda_library library, char *reason, size_t size)
{
    char file[64];
    cuda_library_file(library, file, sizeof file);
    snprintf(reason, size, "%s is gone", file);
    return NULL;
}

TEST(odd_libraries)
{
    const cuda_provider none = {.open = no_library}, odd = {double_provider.open, odd_symbol};
    char part[64];
    cuda_api_provide(&none);
    snprintf(part, sizeof part, "libcudart.so.%d is gone", CUDART_VERSION / 1000);
    expect_refusal(CUDA_RT, part);
    expect_refusal(CUDA_DNN, "libcudnn.so.9 is gone");
    cuda_api_provide(&odd);
    lacking = "cudaGraphLaunch";
    expect_refusal(CUDA_RT, "the CUDA runtime is older than this program: it has no cudaGraphLaunch");
    lacking = NULL;
    version = 11080;
    expect_refusal(CUDA_RT, "the CUDA runtime of version 11 cannot be used: this program was built for version");
    version = 110000;
    expect_refusal(CUDA_LT, "cuBLASLt of version 11 cannot be used");
    version = 0;
    cuda_api_provide(NULL);
}

/* ---- searching ------------------------------------------------------------------------------- */

/* Finds the folder of the installed runtime; false if there is none. */
static bool find_runtime(char *folder)
{
    char reason[512];
    Dl_info info;
    void *handle = cuda_system.open(CUDA_RT, reason, sizeof reason);
    if (!handle || !dladdr(cuda_system.symbol(handle, CUDA_RT, "cudaMalloc"), &info)) return false;
    if (!realpath(info.dli_fname, folder)) return false;
    *strrchr(folder, '/') = 0;
    dlclose(handle);
    return true;
}

/* In a child process, sets a variable and opens the runtime; returns whether it was loaded from `path`. */
static bool opens_from(const char *variable, const char *value, const char *path)
{
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        Dl_info info;
        setenv(variable, value, 1);
        void *handle = cuda_system.open(CUDA_RT, error, sizeof error);
        void *symbol = handle ? cuda_system.symbol(handle, CUDA_RT, "cudaMalloc") : NULL;
        _exit(symbol && dladdr(symbol, &info) && strcmp(info.dli_fname, path) == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void make_folders(char *path)
{
    for (char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        mkdir(path, 0777);
        *slash = '/';
    }
}

/* Creates a link to the real library in a folder structure below `root`. */
static void plant(const char *root, const char *folder, const char *real, char *path, size_t size)
{
    char file[64], target[PATH_MAX + 128];
    cuda_library_file(CUDA_RT, file, sizeof file);
    int length = snprintf(path, size, "%s/%s%s", root, folder, file);
    assert_true(length > 0 && (size_t)length < size);
    snprintf(target, sizeof target, "%s/%s", real, file);
    make_folders(path);
    unlink(path);
    assert_int_equal(symlink(target, path), 0);
}

TEST(search_order)
{
    static const char *const layouts[] = {"", "lib64/", "lib/", "nvidia/cu13/lib/"};
    char real[PATH_MAX], root[] = "/tmp/ampc-search-XXXXXX", path[PATH_MAX + 128], value[PATH_MAX], command[64];
    if (!find_runtime(real)) {
        print_message("no CUDA runtime is installed\n");
        skip();
    }
    assert_non_null(mkdtemp(root));
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        snprintf(value, sizeof value, "%s/%zu", root, i);
        plant(value, layouts[i], real, path, sizeof path);
        assert_true(opens_from("AMPC_CUDA_PATH", value, path));
        snprintf(value, sizeof value, "/nowhere::%s/%zu", root, i); /* a list */
        assert_true(opens_from("AMPC_CUDA_PATH", value, path));
    }
    snprintf(command, sizeof command, "rm -rf %s", root);
    assert_int_equal(system(command), 0);
}

TEST(bad_files_are_named)
{
    char folder[] = "/tmp/ampc-search-XXXXXX", path[PATH_MAX], file[64];
    assert_non_null(mkdtemp(folder));
    cuda_library_file(CUDA_RT, file, sizeof file);
    snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("no library", f);
    fclose(f);
    setenv("AMPC_CUDA_PATH", folder, 1);
    void *handle = cuda_system.open(CUDA_RT, error, sizeof error);
    if (!handle && !strstr(error, path)) fail_msg("%s", error); /* otherwise, a later location had a usable library */
    unsetenv("AMPC_CUDA_PATH");
    unlink(path);
    rmdir(folder);
}

/* ---- programs -------------------------------------------------------------------------------- */

/* Runs a shell command and stores its output in `output`; returns its exit code. */
static int shell(const char *command, char *output, size_t size)
{
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t n = fread(output, 1, size - 1, pipe);
    char rest[4096];
    while (fread(rest, 1, sizeof rest, pipe)) continue;
    output[n] = 0;
    return WEXITSTATUS(pclose(pipe));
}

TEST(nothing_is_needed)
{
    char output[4096];
    assert_int_equal(shell("for f in ampc ampc-run libampc.so; do readelf -d " AMPC_BUILD_DIR
                           "/$f || echo cannot-read; done | grep -E 'NEEDED|cannot'",
                           output, sizeof output),
                     0);
    assert_non_null(strstr(output, "libc.so"));
    assert_null(strstr(output, "cannot-read"));
    static const char *const names[] = {"cuda", "cublas", "cudnn", "nvrtc", "stdc++"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strstr(output, names[i])) fail_msg("%s", output);
}

/* Runs the tool on an MLP; the loader's debug log shows each library that is opened. */
TEST(the_processor_opens_nothing)
{
    char *output = malloc(1 << 20);
    assert_non_null(output);
    shell("LD_DEBUG=files " RUN " bench " MLP " --batch 2 --warmup 0 --iterations 1 --threads 1 --device=cpu 2>&1 | "
          "grep -oE 'file=[^ ]*' | sort -u",
          output, 1 << 20);
    assert_non_null(strstr(output, "libdnnl"));
    if (strstr(output, "libcu") || strstr(output, "libnv")) fail_msg("%s", output);
    free(output);
}

TEST(no_device_is_one_line)
{
    static const struct {
        const char *command, *part;
    } rows[] = {
        {"CUDA_VISIBLE_DEVICES= " RUN, "cuda"}, /* real libraries: no driver, or no device */
        {"AMPC_DOUBLE_DRIVER=35 " RUN_DOUBLE, "there is no CUDA driver on this machine (error 35"},
        {"AMPC_DOUBLE_DRIVER=34 " RUN_DOUBLE, "(error 34"},
        {"AMPC_DOUBLE_DRIVER=100 " RUN_DOUBLE, "no CUDA device is visible"},
        {"AMPC_DOUBLE_DRIVER=3 " RUN_DOUBLE, "cannot count its devices"},
    };
    char command[1024], output[4096];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(command, sizeof command, "%s bench %s --batch 2 --warmup 0 --iterations 1 --device=cuda 2>&1",
                 rows[i].command, MLP);
        int code = shell(command, output, sizeof output);
        char *end = strchr(output, '\n');
        if (code != AMPC_DEVICE || !strstr(output, rows[i].part) || !end || end[1])
            fail_msg("%s: exit code %d: %s", command, code, output);
    }
}
