/* session.h - a module made runnable: storage in memory, one plan per entry graph and shape binding.
 *
 * Run side: plain allocation, every failure is a status with a message in the diag. A session belongs to one thread
 * at a time. */
#ifndef AMPC_SESSION_H
#define AMPC_SESSION_H

#include "ir/ir.h"
#include "kernels/kernel.h"

typedef struct rt_session rt_session;

typedef struct rt_session_options {
    const char *device; /* "cpu"; anything else is refused with AMPC_DEVICE */
    int threads;        /* 0: all cores of the process */
    int deterministic;  /* 0: off; T: work is split for T threads whatever the cores */
    /* By symbol index of the module, -1: from the inputs of each run; NULL: all from inputs. */
    int64_t *symbol_sizes;
    const char *weights_dir; /* folder against which relative weight files are opened; NULL: "." */
} rt_session_options;

/* The module must outlive the session and not change. Loads all storage. */
ampc_status rt_session_open(const ir_module *m, const rt_session_options *o, diag *d,
                            rt_session **out);
void rt_session_close(rt_session *s); /* NULL allowed */

/* One input of a run: dtype and shape are checked against the graph's; symbols take their size from here. Data is
 * only read. Integer inputs may be given as any integer type and float inputs as any float type (converted). */
typedef struct rt_tensor {
    const char *name;
    ir_dtype dtype;
    int rank;
    int64_t dims[IR_MAX_RANK];
    void *data;
} rt_tensor;

/* Runs an entry graph. The results stay valid until the next run of the session. On failure (also half way) storage
 * is as it was before the run. */
ampc_status rt_session_run(rt_session *s, const char *graph, const rt_tensor *inputs, int n,
                           diag *d);
/* An output statement of the last run by name, or NULL. The data belongs to the session. */
const rt_tensor *rt_session_output(const rt_session *s, const char *name);
int rt_session_output_count(const rt_session *s);
const rt_tensor *rt_session_output_at(const rt_session *s,
                                      int i); /* name is the statement's name */

/* Storage by name (parameters, BN statistics, optimizer slots, @lr, @loss_scale ...): a view of the live bytes. */
ampc_status rt_session_storage(rt_session *s, const char *name, diag *d, rt_tensor *out);
int rt_session_storage_count(const rt_session *s);
void rt_session_storage_at(rt_session *s, int i, rt_tensor *out, ir_storage_kind *kind);

/* Bytes that a run of `graph` under the current binding needs: arena (activations, workspace) and storage. */
typedef struct rt_memory {
    int64_t arena, storage;
} rt_memory;
ampc_status rt_session_memory(rt_session *s, const char *graph, const rt_tensor *inputs, int n,
                              diag *d, rt_memory *out);

/* The plan as text: steps, offsets, in-place marks (expect tests; malloc'ed, freed by the caller). */
ampc_status rt_session_print_plan(rt_session *s, const char *graph, const rt_tensor *inputs, int n,
                                  diag *d, char **out);

/* Per-step timing of later runs: called after each step with the node and its nanoseconds; NULL switches off. */
typedef void rt_step_hook(void *user, const ir_node *node, int64_t start_ns, int64_t end_ns,
                          const k_args *args);
void rt_session_set_hook(rt_session *s, rt_step_hook *hook, void *user);

/* weights.c: initial bytes of a storage into dst (ir_storage_bytes of them), whatever kind its data has. */
ampc_status rt_weights_load(const ir_module *m, const ir_storage *s, const char *dir, diag *d,
                            void *dst);
/* Writes every parameter, state and constant that is neither inline nor zero into a safetensors sidecar at `path`,
 * atomically (`dir`: where its bytes are relative to now, as weights_dir above), sets
 * m->weights_path (its base name) and m->weights_hash and turns their data into IR_DATA_SIDECAR. */
ampc_status rt_weights_write(ir_module *m, const char *dir, const char *path, diag *d);

#endif
