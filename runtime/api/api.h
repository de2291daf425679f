/* api.h - what stands behind the handles of ampc.h; private to api*.c. */
#ifndef RT_API_H
#define RT_API_H

#include "runtime/api/ampc.h"

#include "runtime/train/stepper.h"

struct ampc_context {
    diag *d;
    void (*log)(void *user, ampc_log_level level, const char *message);
    void *user;
    bool reports; /* the caller's log function runs */
    int holders;  /* the caller and every module */
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
};

struct ampc_session {
    ampc_module *module;
    rt_session *rt;
    rt_stepper stepper; /* session NULL: the module has no training step */
    bool trains;        /* within ampc_train */
    const char *loss;   /* the output that is the loss; NULL: none */
    char **keys;        /* [n_keys]; NULL for constants */
    int n_keys;         /* storage of rt */
};

void api_context_release(ampc_context *c);
void api_module_release(ampc_module *m);
/* The entry graph with that key. */
ampc_status api_graph(const ampc_module *m, const char *key, diag *d, const ir_graph **out);

/* ---- api_check.c: AMPC_USAGE, with a message where there is a context to tell ---- */

/* Begins a call: forgets the messages of the one before; *d is where new ones go. Refused without a handle and while
 * the context's log function runs. */
ampc_status api_enter(ampc_context *c, diag **d);
ampc_status api_enter_module(const ampc_module *m, diag **d);
ampc_status api_enter_session(const ampc_session *s, diag **d);
/* Also refused within ampc_train on this session: for calls that would pull the ground from under it. */
ampc_status api_enter_idle(const ampc_session *s, diag **d);

/* For an argument that may not be NULL; `d` is in scope. */
#define NEED(argument)                                                                             \
    do {                                                                                           \
        if (!(argument)) return api_null(d, __func__, #argument);                                  \
    } while (0)
ampc_status api_null(diag *d, const char *function, const char *argument);
/* n pointers, none of them NULL, as many as an int can count. */
#define NEED_ITEMS(argument, n) TRY(api_items(d, __func__, #argument, (const void *const *)(argument), n))
ampc_status api_items(diag *d, const char *function, const char *argument, const void *const *items, size_t n);
ampc_status api_dims(diag *d, const char *function, const ampc_dim *dims, size_t n);
ampc_status api_number(diag *d, const char *what, double v, double low, double high);

/* The numbers of a struct of options: 0, which is the default, or within limits. A row without a name ends a table. */
typedef struct api_range {
    const char *name;
    size_t offset;
    enum { API_REAL, API_WHOLE, API_INT } kind;
    double low, high;
} api_range;
#define API_RANGE(type, member, limits)                                                            \
    {                                                                                              \
        #member, offsetof(type, member),                                                           \
            _Generic(((type *)0)->member, double: API_REAL, int64_t: API_WHOLE, int: API_INT),     \
            limits                                                                                 \
    }
ampc_status api_ranges(diag *d, const void *options, const api_range *ranges);

/* The caller's struct as this version of the library knows it: what the caller's lacks is 0. Refused when struct_size
 * is not set, or members that this version does not have are not 0. */
ampc_status api_options(const void *from, void *to, size_t size, diag *d);
/* The other way round, for structs that are filled: as much as the caller's has room for, which is checked before the
 * call does anything. Nothing for NULL. */
ampc_status api_result_check(const void *to, diag *d);
void api_result(const void *from, void *to, size_t size);

/* A value for the storage of this key. */
ampc_status api_state(diag *d, const ir_storage *s, const char *key, double v);

#endif
