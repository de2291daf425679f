/* threads.c - infers with the model argv[1] on eight threads that share one copy of the weights. Inputs are made up;
 * symbolic dimensions are 1. Each thread compares its results with those that one thread computed before. */
#include <ampc.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { THREADS = 8, RUNS = 20, MAX_INPUTS = 8 };

/* A thread has a context, so messages are its own, and a session, so activations are. */
typedef struct worker {
    pthread_t thread;
    ampc_context *context;
    ampc_session *session;
    ampc_tensor *in[MAX_INPUTS];
    size_t n;
    ampc_tensor *expected; /* the result of the first thread */
    const char *key;
    ampc_status status;
    int different;
} worker;

/* Floats are made up, depending on `seed`; integers are 0. */
static ampc_status make_input(ampc_context *c, ampc_module *m, size_t index, int seed, ampc_tensor **out)
{
    ampc_input_info info = {.struct_size = sizeof info};
    ampc_status status = ampc_module_input(m, "infer", index, &info);
    if (status != AMPC_OK) return status;
    for (int i = 0; i < info.rank; i++)
        if (info.dims[i] < 0) info.dims[i] = 1;
    status = ampc_tensor_create(c, info.name, info.dtype, info.rank, info.dims, NULL, out);
    if (status != AMPC_OK || info.dtype != AMPC_F32) return status;
    float *x = ampc_tensor_data(*out);
    for (size_t i = 0; i < ampc_tensor_bytes(*out) / sizeof *x; i++) x[i] = (float)((int)i * 7 % 31 + seed) / 16 - 1;
    return AMPC_OK;
}

static ampc_status make_inputs(worker *w, ampc_module *m, int seed)
{
    ampc_status status = ampc_module_input_count(m, "infer", &w->n);
    if (w->n > MAX_INPUTS) w->n = MAX_INPUTS;
    for (size_t i = 0; i < w->n && status == AMPC_OK; i++) status = make_input(w->context, m, i, seed, &w->in[i]);
    return status;
}

static void *work(void *user)
{
    worker *w = user;
    for (int run = 0; run < RUNS && w->status == AMPC_OK; run++) {
        ampc_tensor *result = NULL;
        w->status = ampc_session_run(w->session, "infer", w->in, w->n);
        if (w->status == AMPC_OK) w->status = ampc_session_get(w->session, w->key, &result);
        if (w->status == AMPC_OK)
            w->different += memcmp(ampc_tensor_data(result), ampc_tensor_data(w->expected),
                                   ampc_tensor_bytes(result)) != 0;
        ampc_tensor_free(result);
    }
    return NULL;
}

/* Shares the weights of `first` with a worker, and computes there what the worker will expect. */
static ampc_status prepare(worker *w, ampc_module *m, ampc_session *first, const char *key, int seed)
{
    const ampc_session_options how = {.struct_size = sizeof how, .deterministic = 1};
    ampc_status status = ampc_context_create(NULL, &w->context);
    w->key = key;
    if (status == AMPC_OK) status = make_inputs(w, m, seed);
    if (status == AMPC_OK) status = ampc_session_run(first, "infer", w->in, w->n);
    if (status == AMPC_OK) status = ampc_session_get(first, key, &w->expected);
    return status == AMPC_OK ? ampc_session_share(first, w->context, &how, &w->session) : status;
}

/* Returns how many results differ; -1 after a failure. */
static int run_all(ampc_module *m, ampc_session *first, const char *key)
{
    static worker workers[THREADS];
    int different = 0, started = 0;
    ampc_status status = AMPC_OK;
    for (int i = 0; i < THREADS && status == AMPC_OK; i++) status = prepare(&workers[i], m, first, key, i);
    for (; started < THREADS && status == AMPC_OK; started++)
        if (pthread_create(&workers[started].thread, NULL, work, &workers[started]) != 0) status = AMPC_NO_MEMORY;
    for (int i = 0; i < started; i++) pthread_join(workers[i].thread, NULL);
    for (int i = 0; i < THREADS; i++) {
        worker *w = &workers[i];
        different += w->different;
        if (w->context && *ampc_context_message(w->context)) printf("%s\n", ampc_context_message(w->context));
        if (status == AMPC_OK) status = w->status;
        for (size_t k = 0; k < w->n; k++) ampc_tensor_free(w->in[k]);
        ampc_tensor_free(w->expected);
        ampc_session_free(w->session);
        ampc_context_free(w->context);
    }
    return status == AMPC_OK ? different : -1;
}

int main(int argc, char **argv)
{
    ampc_context *c = NULL;
    ampc_module *m = NULL;
    ampc_session *first = NULL;
    char key[128];
    int different = -1;
    if (argc != 3) {
        printf("usage: threads MODEL.onnx OUTPUT\n");
        return AMPC_USAGE;
    }
    const ampc_session_options how = {.struct_size = sizeof how, .deterministic = 1};
    snprintf(key, sizeof key, "output/%s", argv[2]);
    ampc_status status = ampc_context_create(NULL, &c);
    if (status == AMPC_OK) status = ampc_module_import(c, argv[1], NULL, 0, &m);
    if (status == AMPC_OK) status = ampc_module_compile(m, NULL);
    if (status == AMPC_OK) status = ampc_session_open(m, &how, &first);
    if (status == AMPC_OK) different = run_all(m, first, key);
    if (c && *ampc_context_message(c)) printf("%s\n", ampc_context_message(c));
    if (different >= 0) printf("%d threads, %d runs each: %d different results\n", THREADS, RUNS, different);
    ampc_session_free(first);
    ampc_module_free(m);
    ampc_context_free(c);
    return different == 0 ? 0 : 1;
}
