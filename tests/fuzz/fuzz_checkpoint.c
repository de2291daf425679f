/* fuzz_checkpoint.c - arbitrary bytes as a checkpoint, which must be rejected or loaded completely, and described. */
#include "runtime/train/checkpoint_file.h"
#include "tests/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char text[] = "ampc-ir 3\n"
                           "param @w : f32[2,3] = [1, 2, 3, 4, 5, 6]\n"
                           "state @bn.mean : f32[3] = [0, 0, 0]\n"
                           "graph @infer(@x : f32[N,2]) as infer {\n"
                           "forward:\n"
                           "  %y = matmul @x, @w : f32[N,3]\n"
                           "  %z = add %y, @bn.mean : f32[N,3]\n"
                           "  output \"z\" = %z\n"
                           "}\n";

static ir_module *module;
static rt_session *session;

static void open_once(diag *d)
{
    const rt_session_options o = {.device = "cpu", .threads = 1};
    if (session) return;
    if (ir_parse(text, sizeof text - 1, "fuzz.ir", d, &module) != AMPC_OK ||
        rt_session_open(module, &o, d, &session) != AMPC_OK) {
        fprintf(stderr, "%s\n", diag_first_error(d));
        abort();
    }
}

static float sum(const char *name, int n, diag *d)
{
    rt_tensor t;
    float total = 0;
    if (test_storage(session, name, d, &t) != AMPC_OK) abort();
    for (int i = 0; i < n; i++) total += ((float *)t.data)[i];
    return total;
}

static void describe(const char *path)
{
    diag *d = diag_new(NULL, NULL);
    rt_checkpoint_file *f = NULL;
    rt_run_state run;
    rt_checkpoint_fit fit;
    ampc_status status = rt_checkpoint_file_open(path, RT_CHECKPOINT_WEIGHTS, d, &f);
    if (status == AMPC_OK && rt_checkpoint_file_fit(f, module, &fit) != AMPC_OK) abort();
    if (status == AMPC_OK && !f->foreign) status = rt_checkpoint_file_run(f, &run);
    if ((status == AMPC_OK) != !*diag_first_error(d)) abort();
    rt_checkpoint_file_free(f);
    diag_free(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[] = "/tmp/ampc-fuzz-XXXXXX";
    diag *d = diag_new(NULL, NULL);
    int file = mkstemp(path);
    rt_run_state run;
    open_once(d);
    if (file < 0 || write(file, data, size) != (ssize_t)size) abort();
    close(file);
    float w = sum("w", 6, d), mean = sum("bn.mean", 3, d);
    for (int part = RT_CHECKPOINT_ALL; part <= RT_CHECKPOINT_WEIGHTS; part++) {
        diag_clear(d);
        const rt_checkpoint_how how = {.part = (rt_checkpoint_part)part};
        ampc_status status = rt_checkpoint_read(session, module, path, &how, d, &run);
        bool moved = sum("w", 6, d) != w || sum("bn.mean", 3, d) != mean;
        if (status != AMPC_OK && (moved || !*diag_first_error(d))) abort();
        if (status == AMPC_OK) w = sum("w", 6, d), mean = sum("bn.mean", 3, d);
    }
    describe(path);
    unlink(path);
    diag_free(d);
    return 0;
}
