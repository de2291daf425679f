/* fuzz_prescan.c - arbitrary bytes as a model and as a bare tensor, up to the description of every tensor. */
#include "frontend/read/tensor.h"

#include <setjmp.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void describe_all(arena *a, onnx_file *f, diag *d)
{
    const Onnx__GraphProto *graph = f->model->graph;
    for (size_t i = 0; graph && i < graph->n_initializer; i++) {
        onnx_tensor t;
        if (onnx_tensor_describe(a, f, graph->initializer[i], d, &t) == AMPC_OK) (void)onnx_tensor_load(a, f, &t, d);
    }
}

static void describe_bare(arena *a, const uint8_t *data, size_t size, diag *d)
{
    onnx_file f = {.path = "fuzz.pb", .bytes = {data, size, false}, .in_memory = true};
    ProtobufCMessage *t;
    onnx_tensor out;
    if (onnx_decode(a, &onnx__tensor_proto__descriptor, f.bytes, f.path, d, &t) == AMPC_OK)
        (void)onnx_tensor_describe(a, &f, (const Onnx__TensorProto *)t, d, &out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    arena *volatile a = arena_new((size_t)512 << 20);
    diag *volatile d = diag_new(NULL, NULL);
    onnx_file *volatile f = NULL;
    jmp_buf guard;
    if (a && d && !setjmp(guard)) {
        onnx_file *opened = NULL;
        arena_set_guard(a, &guard);
        if (onnx_file_wrap(data, size, "fuzz.onnx", d, &opened) == AMPC_OK) {
            f = opened;
            describe_all(a, opened, d);
        }
        describe_bare(a, data, size, d);
    }
    onnx_file_close(f);
    diag_free(d);
    arena_free(a);
    return 0;
}
