/* check.c - finds the node of the ONNX model argv[1] whose result is the first that is not finite, and the one that
 * loses most of its digits in fp16. The model has an input "x" of type float[N,4]; one of its values is made too large
 * for fp16 here. */
#include <ampc.h>

#include <stdio.h>

static ampc_status show(ampc_session *s, ampc_tensor *x)
{
    ampc_check_result r = {.struct_size = sizeof r};
    ampc_status status = ampc_check(s, "infer", &x, 1, &r);
    if (status != AMPC_OK) return status;
    if (!r.found) printf("all values are finite\n");
    else printf("node '%s' (%s): %s\n", r.node, r.op, r.text);
    return AMPC_OK;
}

static void print_worst(void *user, const ampc_compared *v)
{
    (void)user;
    if (v->loses_most) printf("loses most: '%s' (%s), an error of %.2g\n", v->node, v->op, v->added);
}

/* With small inputs, which are also compared with f32 and f64, then with one that overflows in fp16. */
static ampc_status check(ampc_context *c, ampc_session *s, const ampc_compile_options *how)
{
    float x[2][4] = {{1, 2, 3, 4}, {0.5f, -1, -2, 0.25f}};
    const int64_t dims[] = {2, 4};
    ampc_tensor *in = NULL;
    ampc_status status = ampc_tensor_borrow(c, "x", AMPC_F32, 2, dims, x, NULL, NULL, &in);
    if (status == AMPC_OK) status = show(s, in);
    if (status == AMPC_OK) status = ampc_compare(s, how, "infer", &in, 1, print_worst, NULL);
    x[1][2] = 1e6f;
    if (status == AMPC_OK) status = show(s, in);
    ampc_tensor_free(in);
    return status;
}

int main(int argc, char **argv)
{
    const ampc_compile_options how = {.struct_size = sizeof how, .dtype = "fp16"};
    const ampc_session_options one = {.struct_size = sizeof one, .threads = 1};
    ampc_context *c = NULL;
    ampc_module *m = NULL;
    ampc_session *s = NULL;
    if (argc != 2) {
        printf("usage: check MODEL.onnx\n");
        return AMPC_USAGE;
    }
    ampc_status status = ampc_context_create(NULL, &c);
    if (status == AMPC_OK) status = ampc_module_import(c, argv[1], NULL, 0, &m);
    if (status == AMPC_OK) status = ampc_module_compile(m, &how);
    if (status == AMPC_OK) status = ampc_session_open(m, &one, &s);
    if (status == AMPC_OK) status = check(c, s, &how);
    if (status != AMPC_OK) printf("%s\n", ampc_context_message(c));
    ampc_session_free(s);
    ampc_module_free(m);
    ampc_context_free(c);
    return (int)status;
}
