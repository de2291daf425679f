/* fit.c - trains a model from random weights with the whole loop of the library, resumably, and exports it.
 *
 *     fit mlp.onnx npz:data.npz FOLDER trained.onnx
 *
 * The data have an array for each input of the model and the labels of the classes (docs/api.md). Checkpoints are in
 * FOLDER: if the program is interrupted, start it again, and it continues with the same result. */
#include <ampc.h>
#include <stdio.h>

enum { EPOCHS = 20 };

static int report(void *user, const ampc_step_result *step)
{
    int *epoch = user;
    if ((int)step->epoch == *epoch) return 0;
    *epoch = (int)step->epoch;
    printf("epoch %d: loss %.4f, rate %.4f, loss scale %g\n", *epoch, step->loss, step->lr, step->loss_scale);
    return 0;
}

static ampc_status train(ampc_session *s, const char *data, const char *folder)
{
    int epoch = 0;
    const ampc_train_options how = {.struct_size = sizeof how,
                                    .data = data,
                                    .epochs = EPOCHS,
                                    .batch = 32,
                                    .lr_schedule = "one-cycle,rise=0.2",
                                    .seed = 1,
                                    .checkpoint_dir = folder,
                                    .save_every = 50,
                                    .keep = 2,
                                    .resume = 1,
                                    .progress = report,
                                    .user = &epoch};
    return ampc_train(s, &how);
}

static ampc_status evaluate(ampc_session *s, const char *data)
{
    ampc_evaluation result = {.struct_size = sizeof result};
    ampc_status status = ampc_evaluate(s, data, 0, &result);
    if (status == AMPC_OK)
        printf("%lld samples, loss %.4f, accuracy %.3f\n", (long long)result.samples, result.loss, result.accuracy);
    return status;
}

int main(int argc, char **argv)
{
    /* The moving averages are what is evaluated and exported. */
    const ampc_compile_options how = {.struct_size = sizeof how,
                                      .loss = "ce",
                                      .optimizer = "adamw,lr=0.03",
                                      .init = "kaiming",
                                      .seed = 1,
                                      .no_decay = 1,
                                      .ema = 0.98};
    ampc_context *c = NULL;
    ampc_module *m = NULL;
    ampc_session *s = NULL;
    ampc_status status = argc == 5 ? ampc_context_create(NULL, &c) : AMPC_USAGE;
    if (status == AMPC_OK) status = ampc_module_import(c, argv[1], NULL, 0, &m);
    if (status == AMPC_OK) status = ampc_module_compile(m, &how);
    if (status == AMPC_OK) status = ampc_session_open(m, NULL, &s);
    if (status == AMPC_OK) status = train(s, argv[2], argv[3]);
    if (status == AMPC_OK) status = evaluate(s, argv[2]);
    if (status == AMPC_OK) status = ampc_export_onnx(s, argv[4]);
    if (status != AMPC_OK) printf("%s\n", argc == 5 ? ampc_context_message(c) : "usage: fit MODEL DATA FOLDER RESULT");
    ampc_session_free(s);
    ampc_module_free(m);
    ampc_context_free(c);
    return (int)status;
}
