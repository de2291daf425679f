/* borrow.c - infers with the model argv[1], which has an input "x" of type float[N,4] and one float output of N rows,
 * named argv[2], on arrays of the program: inputs are read where they are, and results are stored where they are
 * needed. */
#include <ampc.h>

#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 1000, BATCH = 100, CLASSES = 2 };

/* Called when a tensor no longer needs the array. */
static void released(void *user, void *data)
{
    ++*(int *)user;
    free(data);
}

/* One batch: rows of x to rows of y. */
static ampc_status infer(ampc_session *s, ampc_tensor *in, const char *key, ampc_tensor *out)
{
    ampc_status status = ampc_session_run(s, "infer", &in, 1);
    return status == AMPC_OK ? ampc_session_get_into(s, key, out) : status;
}

/* Tensors of one batch each borrow a part of the arrays. */
static ampc_status infer_rows(ampc_context *c, ampc_session *s, const char *key, float *x, float *y)
{
    const int64_t in_dims[] = {BATCH, 4}, out_dims[] = {BATCH, CLASSES};
    ampc_status status = AMPC_OK;
    for (int row = 0; row < ROWS && status == AMPC_OK; row += BATCH) {
        ampc_tensor *in = NULL, *out = NULL;
        status = ampc_tensor_borrow(c, "x", AMPC_F32, 2, in_dims, x + row * 4, NULL, NULL, &in);
        if (status == AMPC_OK)
            status = ampc_tensor_borrow(c, "scores", AMPC_F32, 2, out_dims, y + row * CLASSES, NULL, NULL, &out);
        if (status == AMPC_OK) status = infer(s, in, key, out);
        ampc_tensor_free(in);
        ampc_tensor_free(out);
    }
    return status;
}

static ampc_status open_session(ampc_context *c, const char *path, ampc_module **m, ampc_session **s)
{
    const ampc_session_options one = {.struct_size = sizeof one, .threads = 1};
    ampc_status status = ampc_module_import(c, path, NULL, 0, m);
    if (status == AMPC_OK) status = ampc_module_compile(*m, NULL);
    return status == AMPC_OK ? ampc_session_open(*m, &one, s) : status;
}

/* Counts the rows whose second score is higher. */
static int count_second(const float *y)
{
    int count = 0;
    for (int i = 0; i < ROWS; i++) count += y[i * CLASSES + 1] > y[i * CLASSES];
    return count;
}

int main(int argc, char **argv)
{
    ampc_context *c = NULL;
    ampc_module *m = NULL;
    ampc_session *s = NULL;
    ampc_tensor *all = NULL;
    char key[128];
    int freed = 0;
    static float x[ROWS * 4];
    float *y = calloc(ROWS * CLASSES, sizeof *y);
    const int64_t dims[] = {ROWS, CLASSES};
    if (argc != 3 || !y) {
        printf("usage: borrow MODEL.onnx OUTPUT\n");
        free(y);
        return AMPC_USAGE;
    }
    for (int i = 0; i < ROWS * 4; i++) x[i] = (float)(i % 17) / 8 - 1;
    snprintf(key, sizeof key, "output/%s", argv[2]);
    ampc_status status = ampc_context_create(NULL, &c);
    if (status == AMPC_OK) status = ampc_tensor_borrow(c, "all", AMPC_F32, 2, dims, y, released, &freed, &all);
    if (status == AMPC_OK) status = open_session(c, argv[1], &m, &s);
    if (status == AMPC_OK) status = infer_rows(c, s, key, x, y);
    if (status == AMPC_OK) printf("%d of %d rows have class 1\n", count_second(ampc_tensor_data(all)), ROWS);
    else printf("%s\n", ampc_context_message(c));
    ampc_tensor_free(all);
    printf("released %d array\n", freed);
    ampc_session_free(s);
    ampc_module_free(m);
    ampc_context_free(c);
    return (int)status;
}
