/* metrics.c - trains until a metric no longer improves, and evaluates the best weights in detail.
 *
 *     metrics mlp.onnx npz:data.npz,validation=0.2 FOLDER
 *
 * A fifth of the samples is held out of the training and evaluated after each epoch. FOLDER/best.safetensors has the
 * weights with the best F1 score. */
#include <ampc.h>
#include <stdio.h>

static void report(void *user, int64_t step, const ampc_evaluation *result)
{
    (void)user;
    printf("step %lld:", (long long)step);
    for (size_t i = 0; i < result->n_metrics; i++)
        printf(" %s %.4f", result->metrics[i].name, result->metrics[i].value);
    printf("\n");
}

static ampc_status train(ampc_session *s, const char *data, const char *folder)
{
    const ampc_train_options how = {.struct_size = sizeof how,
                                    .data = data,
                                    .epochs = 200,
                                    .batch = 32,
                                    .seed = 1,
                                    .checkpoint_dir = folder,
                                    .keep = 2,
                                    .eval_data = data,
                                    .metrics = "accuracy,auc",
                                    .best = "f1_macro",
                                    .early_stop = "f1_macro,patience=4,min-delta=0.001",
                                    .evaluated = report};
    return ampc_train(s, &how);
}

static ampc_status evaluate(ampc_session *s, const char *data, const char *folder)
{
    char path[4096];
    ampc_evaluation result = {.struct_size = sizeof result};
    snprintf(path, sizeof path, "%s/best.safetensors", folder);
    ampc_status status = ampc_checkpoint_load_weights(s, path);
    if (status == AMPC_OK) status = ampc_evaluate_metrics(s, data, 0, "f1_macro,confusion", &result);
    if (status != AMPC_OK) return status;
    printf("best: %s %.4f\n", result.metrics[1].name, result.metrics[1].value);
    for (int64_t label = 0; label < result.classes; label++) {
        if ((size_t)label < result.n_class_names) printf("%s is predicted as", result.class_names[label]);
        else printf("label %lld is predicted as", (long long)label);
        for (int64_t c = 0; c < result.classes; c++)
            printf(" %lld", (long long)result.confusion[label * result.classes + c]);
        printf("\n");
    }
    return AMPC_OK;
}

int main(int argc, char **argv)
{
    const ampc_compile_options how = {
        .struct_size = sizeof how, .loss = "ce", .optimizer = "adamw,lr=0.01", .init = "kaiming", .seed = 1};
    ampc_context *c = NULL;
    ampc_module *m = NULL;
    ampc_session *s = NULL;
    ampc_status status = argc == 4 ? ampc_context_create(NULL, &c) : AMPC_USAGE;
    if (status == AMPC_OK) status = ampc_module_import(c, argv[1], NULL, 0, &m);
    if (status == AMPC_OK) status = ampc_module_compile(m, &how);
    if (status == AMPC_OK) status = ampc_session_open(m, NULL, &s);
    if (status == AMPC_OK) status = train(s, argv[2], argv[3]);
    if (status == AMPC_OK) status = evaluate(s, argv[2], argv[3]);
    if (status != AMPC_OK) printf("%s\n", argc == 4 ? ampc_context_message(c) : "usage: metrics MODEL DATA FOLDER");
    ampc_session_free(s);
    ampc_module_free(m);
    ampc_context_free(c);
    return (int)status;
}
