/* api.h - what stands behind the handles of ampc.h; private to api*.c. */
#ifndef RT_API_H
#define RT_API_H

#include "runtime/ampc.h"

#include "runtime/stepper.h"

struct ampc_context {
    diag *d;
    void (*log)(void *user, ampc_log_level level, const char *message);
    void *user;
    int holders; /* the caller and every module */
};

struct ampc_module {
    ampc_context *context;
    ir_module *ir;
    char *folder;  /* of its weight files; NULL: the current one */
    char *summary; /* NULL: not compiled here */
    enum { API_IMPORTED, API_COMPILED, API_BROKEN } stage;
    int holders; /* the caller and every session */
};

struct ampc_tensor {
    rt_tensor view; /* owns name and data */
    size_t bytes;
    ampc_context *context;
};

struct ampc_session {
    ampc_module *module;
    rt_session *rt;
    rt_stepper stepper; /* session NULL: the module has no training step */
    char **keys;        /* [n_keys]; NULL for constants */
    int n_keys;         /* storage of rt */
};

/* Begins a call: forgets the messages of the one before. */
diag *api_enter(ampc_context *c);
void api_context_release(ampc_context *c);
void api_module_release(ampc_module *m);

/* The caller's struct as this version of the library knows it: what the caller's lacks is 0. AMPC_USAGE when
 * struct_size is not set, or members that this version does not have are not 0. */
ampc_status api_options(const void *from, void *to, size_t size, diag *d);
/* The other way round, for structs that are filled: as much as the caller's has room for. */
ampc_status api_result(const void *from, void *to, size_t size, diag *d);

/* By name, -1: unknown. The table ends with NULL. */
int api_word(const char *word, const char *const *words);

#endif
