/* checkpoint_file.h - a checkpoint that was read and verified but not loaded, for checkpoint*.c and descriptions. */
#ifndef RT_CHECKPOINT_FILE_H
#define RT_CHECKPOINT_FILE_H

#include "runtime/files/safetensors.h"
#include "runtime/train/checkpoint.h"

#define RT_CHECKPOINT_VERSION "2"
#define RT_CHECKPOINT_UNHASHED "1" /* version whose model hash is of IR text as ampc 0.1 printed it */
#define RT_CHECKPOINT_POSITION "data/position"
#define RT_CHECKPOINT_PARAM "param/"
#define RT_CHECKPOINT_CODES "codes" /* metadata: rt_session_codes */

enum { RT_CHECKPOINT_NOWHERE = -1 };

typedef struct rt_checkpoint_file {
    char *path;
    rt_safetensors *file;
    bool foreign; /* of another program: tensors are named without the prefixes of keys, and need no hashes */
    size_t count;
    void **bytes; /* [count], verified */
    int *target;  /* [count]: index of the destination storage, or RT_CHECKPOINT_NOWHERE */
    diag *d;
} rt_checkpoint_file;

/* Reads the file and verifies its hashes. A file of another program is accepted only with RT_CHECKPOINT_WEIGHTS. Fails
 * with AMPC_REJECTED if the content is invalid, AMPC_IO or
 * AMPC_NO_MEMORY if it could not be read, which may succeed later. `d` must outlive the file. */
ampc_status rt_checkpoint_file_open(const char *path, rt_checkpoint_part part, diag *d, rt_checkpoint_file **out);
/* Sends later messages to `d`. */
void rt_checkpoint_file_report_to(rt_checkpoint_file *f, diag *d);
/* Checks that all tensors fit, then copies them; never fails after copying has started. `run` may be NULL. */
ampc_status rt_checkpoint_file_load(rt_checkpoint_file *f, rt_session *s, const ir_module *m,
                                    const rt_checkpoint_how *how, rt_run_state *run);
void rt_checkpoint_file_free(rt_checkpoint_file *f); /* NULL allowed */

/* The state of the run in a file that is not of another program; fails with AMPC_REJECTED. */
ampc_status rt_checkpoint_file_run(const rt_checkpoint_file *f, rt_run_state *run);
/* The bytes of a tensor; NULL if the file has none of this name with this type and `n` elements. */
const void *rt_checkpoint_file_bytes(const rt_checkpoint_file *f, const char *name, ir_dtype dtype, size_t n);

typedef enum rt_checkpoint_fit {
    RT_FITS_MODULE,  /* the module that wrote the file */
    RT_FITS_NETWORK, /* the same network, compiled with other options */
    RT_FITS_WEIGHTS, /* of another program, with all parameters and buffers of the module */
    RT_FITS_NOTHING
} rt_checkpoint_fit;

/* What the file is to a module. Fails with AMPC_NO_MEMORY. */
ampc_status rt_checkpoint_file_fit(const rt_checkpoint_file *f, const ir_module *m, rt_checkpoint_fit *out);

#endif
