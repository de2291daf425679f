/* written_parts.h - collects in memory what an emitter or exporter writes. */
#ifndef TESTS_WRITTEN_PARTS_H
#define TESTS_WRITTEN_PARTS_H

#include "frontend/onnx.h"
#include "tests/unit/wire_writer.h"

/* By onnx_part: the model and its external data. */
typedef struct parts {
    wire part[2];
} parts;

static inline ampc_status collect(void *user, onnx_part part, const void *bytes, size_t n)
{
    parts *p = user;
    wire_raw(&p->part[part], bytes, n);
    return AMPC_OK;
}

#endif
