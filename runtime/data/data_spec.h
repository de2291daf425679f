/* data_spec.h - parser for the value of --data; private to the data layer. */
#ifndef RT_DATA_SPEC_H
#define RT_DATA_SPEC_H

#include "ir/diag.h"

#include <stdint.h>

typedef enum rt_data_kind { RT_DATA_IDX, RT_DATA_NPZ, RT_DATA_NPY, RT_DATA_SYNTHETIC } rt_data_kind;

/* `path` (idx, npz) and the names and files (npy) are pointers into `text`. */
typedef struct rt_data_spec {
    rt_data_kind kind;
    char *text;
    const char *path;
    struct rt_data_file {
        const char *name, *file;
    } * files;
    size_t n_files;
    double divide, mean, std; /* idx: a pixel p is (p / divide - mean) / std */
    uint64_t rows;            /* synthetic */
    uint64_t limit;           /* 0: all */
    bool permute_labels;
    uint64_t permute_seed;
} rt_data_spec;

/* Fails with AMPC_USAGE, with the reason, or AMPC_NO_MEMORY. The caller clears `out` also on failure. */
ampc_status rt_data_spec_parse(const char *spec, diag *d, rt_data_spec *out);
void rt_data_spec_clear(rt_data_spec *s);

#endif
