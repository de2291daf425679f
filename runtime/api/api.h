/* api.h - the definitions of the handles in ampc.h; private to api*.c. */
#ifndef RT_API_H
#define RT_API_H

#include "runtime/api/ampc.h"
#include "runtime/api/operators.h"

#include "passes/passes.h"
#include "runtime/data/data.h"
#include "runtime/train/evaluate.h"
#include "runtime/train/stepper.h"

#include <stdatomic.h>
#include <stdlib.h>

struct ampc_context {
    diag *d;
    void (*log)(void *user, ampc_log_level level, const char *message);
    void *user;
    bool reports;       /* the caller's log function is running */
    custom_ops custom;  /* registered operators */
    atomic_int holders; /* references: the caller, and every module and session */
};

/* What a module was imported from; all of it is malloced. path and bytes NULL: it was loaded. */
typedef struct api_source {
    char *path;
    void *bytes;
    size_t n_bytes;
    ampc_dim *dims;
    size_t n_dims;
    bool keep_unknown;
    int64_t batch;
} api_source;

/* Texts of dimensions, each malloced. */
typedef struct api_dim_name {
    ir_dim dim;
    char *text;
} api_dim_name;

typedef struct api_dim_names {
    api_dim_name *items;
    size_t count;
} api_dim_names;

struct ampc_module {
    ampc_context *context;
    ir_module *ir;
    api_source source;
    char *folder;        /* of the weight files; NULL: the current folder */
    char *summary;       /* NULL: neither compiled nor converted in this process */
    api_dim_names names; /* that the caller has been given */
    enum { API_IMPORTED, API_COMPILED, API_BROKEN } stage;
    atomic_int holders; /* references: the caller and every session, which may be of another thread */
};

struct ampc_tensor {
    rt_tensor view; /* owns its name */
    size_t bytes;
    bool borrowed; /* the data is the caller's */
    void (*release)(void *user, void *data);
    void *user;
};

/* The last evaluation of a session. */
typedef struct api_evaluated {
    rt_metric_choices choices; /* has the names of `metrics` */
    rt_eval eval;
    ampc_metric metrics[RT_EVAL_VALUES];
} api_evaluated;

struct ampc_session {
    ampc_context *context;
    ampc_module *module;
    rt_session *rt;
    rt_stepper stepper;       /* session NULL: the module has no training step */
    bool trains;              /* ampc_train is running */
    const char *loss;         /* name of the output that is the loss; NULL: none */
    char **keys;              /* [n_keys]; NULL for constants */
    int n_keys;               /* number of storages of rt */
    api_evaluated *evaluated; /* NULL before the first evaluation */
    char found[1024];         /* what the last check has found */
};

struct ampc_data {
    rt_source source;
    rt_source_field *fields; /* those of the source */
};

/* Views of the caller's tensors, calloced; NULL: out of memory. */
static inline rt_tensor *api_views(ampc_tensor *const *inputs, size_t n)
{
    rt_tensor *views = calloc(n + 1, sizeof *views);
    for (size_t i = 0; views && i < n; i++) views[i] = inputs[i]->view;
    return views;
}

/* Makes a tensor with a copy of the elements of `from`; zeros if it has none. */
ampc_status api_tensor_new(ampc_context *c, const char *name, const rt_tensor *from, ampc_tensor **tensor);

/* ---- api_accumulate.c ---- */

/* Makes @unscale compute the norm and the flag only; a module without it is left alone. */
ampc_status api_select_unscaled(const ampc_session *s, diag *d);
/* Fails if the graph is one of those that ampc_accumulate, ampc_unscale and ampc_apply run. */
ampc_status api_refuse_window_graph(const ir_graph *g, diag *d);
/* Fails if gradients are accumulated that ampc_apply has not used yet. */
ampc_status api_refuse_in_window(ampc_session *s, diag *d);
void api_step_result(const rt_stepper *t, const rt_step_result *r, ampc_step_result *result);

/* Whether a function of the caller is running: log, or one of a custom operator. */
static inline bool api_is_calling(const ampc_context *c) { return c->reports || c->custom.calls; }
/* Makes a module of `ir` and `source`, which it owns from then on; they are freed if this fails. */
ampc_status api_module_new(ampc_context *c, ir_module *ir, const char *path, const api_source *source,
                           ampc_module **module);
void api_module_release(ampc_module *m);
void api_context_release(ampc_context *c); /* NULL allowed */
/* One compilation: what is compiled, and how it went. */
typedef struct api_compilation {
    ir_module *ir;
    bool for_onnx; /* the module is only written as ONNX */
    bool wide;     /* the module computes in f64 */
    bool begun;    /* the module has changed */
    char *summary; /* malloced; NULL after a failure */
    /* Called with the finished module, to write it or to report on it; NULL: nothing is done. */
    ampc_status (*finish)(const struct api_compilation *c, compile *compiled);
    void *user;
    const char *explain; /* as in compile_options, like the next member */
    bool json;
    FILE *text; /* what explanations are printed to; NULL: they are not */
} api_compilation;
ampc_status api_compile(api_compilation *c, const ampc_compile_options *options, diag *d);
/* Stores the summary in the module, unless there is none. */
void api_summarize(ampc_module *m, const api_compilation *c);
/* Checks options of the caller and copies them. */
ampc_status api_compile_options(const ampc_compile_options *from, diag *d, ampc_compile_options *to);
/* Imports the module's model again into c->ir and compiles it with these options, which have been checked; the caller
 * frees it and the summary. AMPC_USAGE: the module was not imported. */
ampc_status api_compile_again(const ampc_module *m, const ampc_compile_options *o, api_compilation *c, diag *d);
void api_source_clear(api_source *source);
/* Finds the entry graph with this key. AMPC_USAGE, reported, if there is none. */
ampc_status api_graph(const ampc_module *m, const char *key, diag *d, const ir_graph **out);

/* ---- api_evaluate.c ---- */

/* A data set as the caller names it: exactly one of the two is set. */
typedef struct api_data_choice {
    const char *spec;
    const ampc_data *data;
} api_data_choice;

/* Opens the data set; synthetic data have the types of the inputs of `graph`. */
ampc_status api_open_data(const ampc_session *s, const ir_graph *g, api_data_choice from, rt_split split, uint64_t seed,
                          diag *d, rt_dataset **data);
/* Describes an evaluation for the caller; `metrics` has RT_EVAL_VALUES elements. */
ampc_evaluation api_evaluation(const rt_eval *eval, ampc_metric *metrics);
void api_evaluated_free(api_evaluated *e); /* NULL allowed */

/* ---- api_check.c: AMPC_USAGE, with a message if there is a context to report to ---- */

/* Options in messages are called by the members of the structs in ampc.h. */
extern const diag_words api_words;
/* Begins a call: discards the messages of the previous call and returns the diag for new ones. AMPC_USAGE if the
 * handle is NULL or the context's log function is running. */
ampc_status api_enter(ampc_context *c, diag **d);
ampc_status api_enter_module(const ampc_module *m, diag **d);
ampc_status api_enter_session(const ampc_session *s, diag **d);
/* Like api_enter_session, but also refused during ampc_train on this session. For calls that would free or change
 * state that the training loop uses. */
ampc_status api_enter_idle(const ampc_session *s, diag **d);

/* Fails unless `argument` is non-NULL; `d` must be in scope. */
#define NEED(argument) \
    do { \
        if (!(argument)) return api_null(d, __func__, #argument); \
    } while (0)
ampc_status api_null(diag *d, const char *function, const char *argument);
/* Fails unless the array holds n non-NULL pointers and n fits in an int. */
#define NEED_ITEMS(argument, n) TRY(api_items(d, __func__, #argument, (const void *const *)(argument), n))
ampc_status api_items(diag *d, const char *function, const char *argument, const void *const *items, size_t n);
ampc_status api_dims(diag *d, const char *function, const ampc_dim *dims, size_t n);
ampc_status api_number(diag *d, const char *what, double v, double low, double high);

/* A member of an options struct, from ir/base/options.def. A row with name NULL ends a table. */
typedef struct api_option {
    const char *name;
    size_t at;    /* in the struct */
    size_t field; /* in compile_options, if it is an option of a compilation */
    bool is_int;  /* the member is an int */
    option_kind kind;
    const pass_word *words;
    double limits[2];
} api_option;
/* clang-format off */
#define API_OPTION(type, member, field, kind) \
    {#member, offsetof(type, member), field, _Generic(((type *)0)->member, int : true, default : false), \
     OPTION_ROW(kind)},
/* clang-format on */
/* Fails unless every member is valid. 0 and NULL, the default, always are. */
ampc_status api_check_options(diag *d, const void *options, const api_option *rows);

/* Copies an options struct of the caller to this version's layout, with 0 for members that the caller's version
 * lacks. AMPC_USAGE if struct_size is not set, or if a member unknown to this version is not 0. */
ampc_status api_options(const void *from, void *to, size_t size, diag *d);
/* The opposite direction, for result structs: api_result_check validates struct_size before the call does anything;
 * api_result copies as much as fits into the caller's struct. `to` may be NULL. */
ampc_status api_result_check(const void *to, diag *d);
bool api_sized(const void *to); /* the same as an answer; not NULL */
void api_result(const void *from, void *to, size_t size);

/* Checks that `v` is a valid value for the state `s`. */
ampc_status api_state(diag *d, const ir_storage *s, const char *key, double v);

#endif
