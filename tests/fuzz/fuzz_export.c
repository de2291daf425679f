/* fuzz_export.c - arbitrary bytes as a model to export. Exporting the result again must not change it. */
#include "frontend/onnx.h"
#include "tests/fuzz/memory_file.h"
#include "tests/unit/wire_writer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static ampc_status collect(void *user, onnx_part part, const void *bytes, size_t n)
{
    if (part == ONNX_PART_MODEL) wire_raw(user, bytes, n);
    return AMPC_OK;
}

static ampc_status export_bytes(const uint8_t *data, size_t size, bool untied, wire *out)
{
    memory_file file = memory_file_open(data, size);
    diag *d = diag_new(NULL, NULL);
    const onnx_export_options o = {.untied = untied, .data_name = "data", .write = collect, .user = out};
    ampc_status status = d ? onnx_export_trained(file.path, &o, d) : AMPC_NO_MEMORY;
    diag_free(d);
    memory_file_close(&file);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    wire once = {0}, twice = {0};
    if (export_bytes(data, size, true, &once) == AMPC_OK) {
        if (once.size && export_bytes(once.bytes, once.size, false, &twice) != AMPC_OK) abort();
        if (once.size != twice.size || memcmp(once.bytes, twice.bytes, once.size)) abort();
    }
    wire_free(&once);
    wire_free(&twice);
    return 0;
}
