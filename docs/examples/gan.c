/* gan.c - trains a generator and a discriminator, which a recipe links, with an optimizer each.
 *
 *     gan gan/ring.recipe generator.onnx
 *
 * The recipe has an input "point" of type float[N,2] and noise that training draws. The real points are on a circle
 * with radius 1. After the training, the program generates points from noise of its own and writes the generator. */
#include <ampc.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 128, STEPS = 1500 };

static double uniform(void) { return (rand() + 0.5) / (RAND_MAX + 1.0); }

static ampc_status make_points(ampc_context *c, ampc_tensor **out)
{
    const int64_t dims[] = {ROWS, 2};
    float x[ROWS][2];
    for (int i = 0; i < ROWS; i++) {
        const double angle = 6.283185307179586 * uniform();
        x[i][0] = (float)cos(angle);
        x[i][1] = (float)sin(angle);
    }
    return ampc_tensor_create(c, "point", AMPC_F32, 2, dims, x, out);
}

static ampc_status step(ampc_context *c, ampc_session *s, ampc_step_result *result)
{
    ampc_tensor *points = NULL;
    ampc_status status = make_points(c, &points);
    if (status == AMPC_OK) status = ampc_train_step(s, &points, 1, result);
    if (status == AMPC_OK && result->step % 500 == 1)
        printf("step %d: sum of the losses %.4f\n", (int)result->step, result->loss);
    ampc_tensor_free(points);
    return status;
}

/* Prints the mean radius of generated points and its deviation. */
static ampc_status print_radius(ampc_session *s)
{
    ampc_tensor *made;
    ampc_status status = ampc_session_get(s, "output/fake", &made);
    if (status != AMPC_OK) return status;
    const float *x = ampc_tensor_data(made);
    double sum = 0, squares = 0;
    for (int i = 0; i < ROWS; i++) {
        const double r = hypot((double)x[2 * i], (double)x[2 * i + 1]);
        sum += r;
        squares += r * r;
    }
    ampc_tensor_free(made);
    printf("radius %.2f, deviation %.2f\n", sum / ROWS, sqrt(squares / ROWS - sum * sum / ROWS / ROWS));
    return AMPC_OK;
}

/* In "infer", the noise is an input. Of its results, only output/fake can be computed without points. */
static ampc_status generate(ampc_context *c, ampc_session *s)
{
    static const char *const fake = "output/fake";
    const int64_t dims[] = {ROWS, 2};
    float z[ROWS][2];
    ampc_tensor *noise = NULL;
    for (int i = 0; i < ROWS; i++) {
        const double radius = sqrt(-2 * log(uniform())), angle = 6.283185307179586 * uniform();
        z[i][0] = (float)(radius * cos(angle));
        z[i][1] = (float)(radius * sin(angle));
    }
    ampc_status status = ampc_tensor_create(c, "noise", AMPC_F32, 2, dims, z, &noise);
    if (status == AMPC_OK) status = ampc_select(s, "infer", &fake, 1);
    if (status == AMPC_OK) status = ampc_session_run(s, "infer", &noise, 1);
    if (status == AMPC_OK) status = print_radius(s);
    ampc_tensor_free(noise);
    return status;
}

int main(int argc, char **argv)
{
    const ampc_compile_options how = {.struct_size = sizeof how, .seed = 1};
    ampc_context *c = NULL;
    ampc_module *m = NULL;
    ampc_session *s = NULL;
    ampc_step_result result = {.struct_size = sizeof result};
    ampc_status status = argc == 3 ? ampc_context_create(NULL, &c) : AMPC_USAGE;
    if (status == AMPC_OK) status = ampc_module_import(c, argv[1], NULL, 0, &m);
    if (status == AMPC_OK) status = ampc_module_compile(m, &how);
    if (status == AMPC_OK) status = ampc_session_open(m, NULL, &s);
    for (int i = 0; i < STEPS && status == AMPC_OK; i++) status = step(c, s, &result);
    if (status == AMPC_OK) status = generate(c, s);
    if (status == AMPC_OK) status = ampc_export_model(s, "G", argv[2]);
    if (status == AMPC_OK) printf("trained, sum of the losses %.4f\n", result.loss);
    else printf("%s\n", ampc_context_message(c));
    ampc_session_free(s);
    ampc_module_free(m);
    ampc_context_free(c);
    return (int)status;
}
