/* api_fixture.h - a context, modules, a session and its inputs, for the tests of arguments and callbacks. */
#ifndef TESTS_API_FIXTURE_H
#define TESTS_API_FIXTURE_H

#include "tests/unit/api_calls.h"

typedef struct fixture {
    ampc_context *c;
    ampc_module *m, *fresh; /* compiled; only imported */
    ampc_session *s;
    ampc_tensor *in[2];
    char path[64];
} fixture;

static inline int set_up(void **state)
{
    static fixture f;
    const int64_t dims[] = {32, 4};
    float x[32 * 4] = {0};
    int64_t label[32] = {0};
    f = (fixture){.path = "/tmp/ampc-api-XXXXXX"};
    int fd = mkstemp(f.path);
    if (fd >= 0) close(fd);
    *state = &f;
    return fd < 0 || ampc_context_create(NULL, &f.c) || ampc_module_import(f.c, MLP, NULL, 0, &f.m) ||
           ampc_module_import(f.c, MLP, NULL, 0, &f.fresh) || ampc_module_compile(f.m, &training) ||
           ampc_session_open(f.m, &one_thread, &f.s) || ampc_tensor_create(f.c, "x", AMPC_F32, 2, dims, x, &f.in[0]) ||
           ampc_tensor_create(f.c, "label", AMPC_I64, 1, dims, label, &f.in[1]);
}

static inline int tear_down(void **state)
{
    fixture *f = *state;
    ampc_tensor_free(f->in[0]);
    ampc_tensor_free(f->in[1]);
    ampc_session_free(f->s);
    ampc_module_free(f->fresh);
    ampc_module_free(f->m);
    ampc_context_free(f->c);
    unlink(f->path);
    return 0;
}

#define TEST_API(name) TEST_WITH(set_up, tear_down, fixture *f, name)

#endif
