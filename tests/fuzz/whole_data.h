/* whole_data.h - opens a data set over a fuzzer's bytes, reads all of it, and describes it. */
#ifndef TESTS_WHOLE_DATA_H
#define TESTS_WHOLE_DATA_H

#include "runtime/data/data_summary.h"
#include "tests/fuzz/memory_file.h"

static inline void whole_data_describe(const char *spec)
{
    diag *d = diag_new(NULL, NULL), *reading = diag_new(NULL, NULL);
    rt_dataset *ds = NULL;
    ampc_status s = rt_dataset_open(spec, &(rt_dataset_options){.split = RT_TRAIN, .describes = true}, d, &ds);
    if ((s == AMPC_OK) != (diag_count(d, DIAG_ERROR) == 0)) abort();
    for (size_t i = 0; s == AMPC_OK && i < rt_dataset_field_count(ds); i++) {
        rt_field_summary f;
        s = rt_dataset_summarize(ds, i, 0.01, reading, &f);
        rt_field_summary_clear(&f);
        if (s != AMPC_OK && s != AMPC_NO_MEMORY) abort();
    }
    rt_dataset_close(ds);
    diag_free(reading);
    diag_free(d);
}

/* `spec` has one %s for the path. An error must be reported, and a data set that opens must be readable. */
static inline void whole_data_read(const char *spec, const uint8_t *data, size_t size)
{
    memory_file file = memory_file_open(data, size);
    diag *d = diag_new(NULL, NULL);
    char text[256];
    rt_dataset *ds = NULL;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(text, sizeof text, spec, file.path);
#pragma GCC diagnostic pop
    ampc_status s = rt_dataset_open(text, &(rt_dataset_options){.split = RT_TRAIN}, d, &ds);
    if ((s == AMPC_OK) != (diag_count(d, DIAG_ERROR) == 0)) abort();
    for (size_t i = 0; s == AMPC_OK && i < rt_dataset_field_count(ds); i++) {
        const size_t n = (size_t)rt_field_elements(rt_dataset_field(ds, i));
        double *row = calloc(n + 1, sizeof *row);
        for (int64_t k = 0; k < rt_dataset_rows(ds); k++)
            if (rt_dataset_slice(ds, k, 1, i, row, IR_f64, d) != AMPC_OK) abort();
        free(row);
    }
    rt_dataset_close(ds);
    diag_free(d);
    whole_data_describe(text);
    memory_file_close(&file);
}

#endif
