/* api_handles.h - a context, a model in it, a session of that, and inputs: what most tests of ampc.h begin with. */
#ifndef TESTS_API_HANDLES_H
#define TESTS_API_HANDLES_H

#include "tests/unit/api_calls.h"

typedef struct handles {
    ampc_context *c;
    ampc_module *m;
    ampc_session *s;
    ampc_tensor *in[2];
} handles;

static inline handles open_file(const char *path, const ampc_compile_options *o)
{
    handles h = {0};
    assert_int_equal(ampc_context_create(NULL, &h.c), AMPC_OK);
    OK(h.c, ampc_module_import(h.c, path, NULL, 0, &h.m));
    OK(h.c, ampc_module_compile(h.m, o));
    OK(h.c, ampc_session_open(h.m, &one_thread, &h.s));
    return h;
}

/* Makes 32 points whose first coordinate decides the class. */
static inline void make_inputs(handles *h)
{
    float x[32][4];
    int64_t label[32];
    const int64_t dims[] = {32, 4};
    for (int i = 0; i < 128; i++) x[i / 4][i % 4] = (float)(i * 37 % 19) / 9 - 1;
    for (int i = 0; i < 32; i++) label[i] = x[i][0] > 0;
    OK(h->c, ampc_tensor_create(h->c, "x", AMPC_F32, 2, dims, x, &h->in[0]));
    OK(h->c, ampc_tensor_create(h->c, "label", AMPC_I64, 1, dims, label, &h->in[1]));
}

static inline handles open_all(const ampc_compile_options *o)
{
    handles h = open_file(MLP, o);
    make_inputs(&h);
    return h;
}

static inline void close_all(handles *h)
{
    ampc_tensor_free(h->in[0]);
    ampc_tensor_free(h->in[1]);
    ampc_session_free(h->s);
    ampc_module_free(h->m);
    ampc_context_free(h->c);
}

static inline int set_up_handles(void **state)
{
    static handles h;
    h = open_all(&training);
    *state = &h;
    return 0;
}

static inline int tear_down_handles(void **state)
{
    close_all(*state);
    return 0;
}

#define TEST_HANDLES(name) TEST_WITH(set_up_handles, tear_down_handles, handles *h, name)

#endif
