/* data.c - trains and evaluates the ONNX model argv[1], which has an input "x" of type float[N,4] and float scores for
 * two classes, on data of the program: samples that a function computes when they are needed, then arrays. */
#include <ampc.h>

#include <stdio.h>

enum { ROWS = 512, BATCH = 32, EPOCHS = 8 };

/* Sample `row`: a pseudorandom point. The sign of its first coordinate decides the class. */
static float coordinate(int64_t row, int k) { return (float)((row * 4 + k + 1) * 7919 % 1999) / 1000 - 1; }

static int64_t class_of(int64_t row) { return coordinate(row, 0) > 0; }

/* Threads of the library call this for the next batches while a step runs. */
static int read_sample(void *user, int64_t row, size_t field, void *dst)
{
    (void)user;
    if (field == 1) *(int64_t *)dst = class_of(row);
    for (int k = 0; field == 0 && k < 4; k++) ((float *)dst)[k] = coordinate(row, k);
    return 0; /* nonzero: an error, which ends the training */
}

static int show(void *user, const ampc_step_result *step)
{
    (void)user;
    if (step->step % (ROWS / BATCH) == 0) printf("epoch %.0f: loss %.3f\n", step->epoch, step->loss);
    return 0;
}

static ampc_status train(ampc_context *c, ampc_session *s)
{
    const ampc_data_field fields[] = {{.name = "x", .dtype = AMPC_F32, .rank = 1, .dims = {4}},
                                      {.name = "label", .dtype = AMPC_I64}};
    const ampc_data_options from = {
        .struct_size = sizeof from, .fields = fields, .n_fields = 2, .rows = ROWS, .read = read_sample};
    ampc_data *data = NULL;
    ampc_status status = ampc_data_create(c, &from, &data);
    const ampc_train_options how = {.struct_size = sizeof how,
                                    .dataset = data,
                                    .epochs = EPOCHS,
                                    .batch = BATCH,
                                    .seed = 7,
                                    .workers = 2,
                                    .progress = show};
    if (status == AMPC_OK) status = ampc_train(s, &how);
    ampc_data_free(data);
    return status;
}

/* Evaluates on other samples, which are in arrays of the program and are not copied. */
static ampc_status evaluate(ampc_context *c, ampc_session *s)
{
    static float x[ROWS][4];
    static int64_t label[ROWS];
    for (int i = 0; i < ROWS; i++) {
        for (int k = 0; k < 4; k++) x[i][k] = coordinate(ROWS + i, k);
        label[i] = class_of(ROWS + i);
    }
    const ampc_data_field fields[] = {{.name = "x", .dtype = AMPC_F32, .rank = 1, .dims = {4}, .data = x},
                                      {.name = "label", .dtype = AMPC_I64, .data = label}};
    const ampc_data_options from = {.struct_size = sizeof from, .fields = fields, .n_fields = 2, .rows = ROWS};
    ampc_evaluation e = {.struct_size = sizeof e};
    ampc_data *data = NULL;
    ampc_status status = ampc_data_create(c, &from, &data);
    if (status == AMPC_OK) status = ampc_evaluate_data(s, data, 0, NULL, &e);
    if (status == AMPC_OK) printf("%lld samples, accuracy %.3f\n", (long long)e.samples, e.accuracy);
    ampc_data_free(data);
    return status;
}

int main(int argc, char **argv)
{
    const ampc_compile_options how = {.struct_size = sizeof how, .loss = "ce", .optimizer = "adamw,lr=0.02"};
    const ampc_session_options one = {.struct_size = sizeof one, .threads = 1};
    ampc_context *c = NULL;
    ampc_module *m = NULL;
    ampc_session *s = NULL;
    if (argc != 2) {
        printf("usage: data MODEL.onnx\n");
        return AMPC_USAGE;
    }
    ampc_status status = ampc_context_create(NULL, &c);
    if (status == AMPC_OK) status = ampc_module_import(c, argv[1], NULL, 0, &m);
    if (status == AMPC_OK) status = ampc_module_compile(m, &how);
    if (status == AMPC_OK) status = ampc_session_open(m, &one, &s);
    if (status == AMPC_OK) status = train(c, s);
    if (status == AMPC_OK) status = evaluate(c, s);
    if (status != AMPC_OK) printf("%s\n", ampc_context_message(c));
    ampc_session_free(s);
    ampc_module_free(m);
    ampc_context_free(c);
    return (int)status;
}
