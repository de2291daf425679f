/* decode.c - opens, reads, pre-scans and parses a model file.
 *
 * The stripped copy is allocated in a scratch arena that is freed after parsing. The parser's allocator returns
 * zeroed arena memory with one spare byte, which terminates every string and bytes field. Freeing the arena frees the
 * message, so it is never traversed again. */
#include "frontend/read/decode.h"
#include "ir/text/file_kind.h"
#include "ir/base/input_file.h"

#include "frontend/read/external.h"

#include <string.h>
#include <unistd.h>

enum { READ_AT_ONCE = 1 << 20 };      /* bytes; smaller files are read as a whole, larger ones on demand */
#define ARENA_LIMIT ((size_t)2 << 30) /* decoded bytes of a model, regardless of its size */

/* ---- bytes -> message ------------------------------------------------------------------------ */

static void *parser_alloc(void *a, size_t size) { return size < SIZE_MAX ? arena_alloc(a, size + 1) : NULL; }

static void parser_free(void *a, void *p)
{
    (void)a;
    (void)p;
}

static ampc_status check_size(size_t size, const char *what, diag *d)
{
    if (size <= ONNX_FILE_MAX) return AMPC_OK;
    return diag_error(d, AMPC_REJECTED, DIAG_FILE(what),
                      "model files are limited to 2 GiB (weights can be in external data files)");
}

static ampc_status prescan_and_parse(arena *scratch, arena *a, const ProtobufCMessageDescriptor *root, onnx_bytes in,
                                     const char *what, diag *d, ProtobufCMessage **out)
{
    onnx_stripped stripped;
    TRY(check_size(in.size, what, d));
    TRY(onnx_prescan(scratch, root, in, what, d, &stripped));
    ProtobufCAllocator allocator = {parser_alloc, parser_free, a};
    *out = protobuf_c_message_unpack(root, &allocator, stripped.size, stripped.bytes);
    if (!*out) return diag_error(d, AMPC_REJECTED, DIAG_FILE(what), "not a valid %s", root->short_name);
    return AMPC_OK;
}

ampc_status onnx_decode(arena *a, const ProtobufCMessageDescriptor *root, onnx_bytes in, const char *what, diag *d,
                        ProtobufCMessage **out)
{
    jmp_buf guard;
    arena *volatile scratch = NULL;
    jmp_buf *before = arena_set_guard(a, &guard);
    ampc_status status;
    if (setjmp(guard)) {
        status = diag_error(d, AMPC_NO_MEMORY, DIAG_FILE(what), "out of memory while decoding it");
    } else {
        scratch = arena_new_guarded(a);
        status = prescan_and_parse(scratch, a, root, in, what, d, out);
    }
    arena_set_guard(a, before);
    arena_free(scratch);
    return status;
}

const char *onnx_bytes_text(ProtobufCBinaryData b)
{
    if (!b.len) return "";
    return memchr(b.data, 0, b.len) ? NULL : (const char *)b.data;
}

/* ---- file -> bytes --------------------------------------------------------------------------- */

static ampc_status read_all(arena *a, int fd, const char *path, diag *d, onnx_bytes *out)
{
    void *buffer = arena_alloc(a, out->size);
    out->data = buffer;
    return onnx_read(fd, path, 0, out->size, d, buffer);
}

ampc_status onnx_bytes_load(arena *a, const char *path, bool in_parts, diag *d, onnx_bytes *out)
{
    *out = (onnx_bytes){0};
    int fd;
    uint64_t size;
    TRY(input_open(path, d, &fd, &size));
    out->size = (size_t)size;
    ampc_status status = size ? check_size((size_t)size, path, d)
                              : diag_error(d, AMPC_REJECTED, DIAG_FILE(path), "the file is empty");
    if (status == AMPC_OK && in_parts && out->size > READ_AT_ONCE) return onnx_image_open(fd, path, out->size, d, out);
    jmp_buf guard;
    jmp_buf *before = arena_set_guard(a, &guard);
    if (setjmp(guard)) status = diag_error(d, AMPC_NO_MEMORY, DIAG_FILE(path), "out of memory while reading it");
    else if (status == AMPC_OK) status = read_all(a, fd, path, d, out);
    arena_set_guard(a, before);
    close(fd);
    return status;
}

/* ---- the model file -------------------------------------------------------------------------- */

/* Allocates an empty file struct in an arena of its own; NULL on failure. */
static onnx_file *file_new(const char *path)
{
    arena *a = arena_new(ARENA_LIMIT);
    if (!a) return NULL;
    jmp_buf guard;
    if (setjmp(guard)) {
        arena_free(a);
        return NULL;
    }
    arena_set_guard(a, &guard);
    onnx_file *f = arena_alloc(a, sizeof *f);
    f->path = arena_strdup(a, path);
    f->arena = a;
    arena_set_guard(a, NULL);
    return f;
}

/* Names a file of another kind, instead of the first byte that is not as in a model. */
static ampc_status check_kind(const onnx_file *f, diag *d)
{
    enum { FIRST = 512 };
    const size_t n = f->bytes.size < FIRST ? f->bytes.size : FIRST;
    TRY(onnx_bytes_need(&f->bytes, f->bytes.data, n, d));
    const char *kind = ir_file_kind(f->bytes.data, n, "onnx");
    return kind ? diag_error(d, AMPC_REJECTED, DIAG_FILE(f->path), "not an ONNX model, but %s", kind) : AMPC_OK;
}

/* Decodes the bytes of `f`; on success returns it in *out, on failure closes it. */
static ampc_status file_finish(onnx_file *f, ampc_status status, diag *d, onnx_file **out)
{
    ProtobufCMessage *model = NULL;
    if (status == AMPC_OK) status = check_kind(f, d);
    if (status == AMPC_OK) status = onnx_decode(f->arena, &onnx__model_proto__descriptor, f->bytes, f->path, d, &model);
    if (status != AMPC_OK) {
        onnx_file_close(f);
        return status;
    }
    f->model = (const Onnx__ModelProto *)model;
    *out = f;
    return AMPC_OK;
}

ampc_status onnx_file_open(const char *path, diag *d, onnx_file **out)
{
    *out = NULL;
    onnx_file *f = file_new(path);
    if (!f) return diag_error(d, AMPC_NO_MEMORY, DIAG_FILE(path), "out of memory while opening it");
    ampc_status status = onnx_bytes_load(f->arena, path, true, d, &f->bytes);
    return file_finish(f, status, d, out);
}

ampc_status onnx_file_wrap(const void *data, size_t size, const char *name, diag *d, onnx_file **out)
{
    *out = NULL;
    onnx_file *f = file_new(name);
    if (!f) return diag_error(d, AMPC_NO_MEMORY, DIAG_FILE(name), "out of memory while opening it");
    f->bytes = (onnx_bytes){.data = data, .size = size};
    f->in_memory = true;
    return file_finish(f, AMPC_OK, d, out);
}

void onnx_file_close(onnx_file *f)
{
    if (!f) return;
    onnx_external_close(f);
    onnx_image_close(&f->bytes);
    arena_free(f->arena);
}
