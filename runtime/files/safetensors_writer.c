/* safetensors_writer.c - writing .safetensors in one pass over the data.
 *
 * The header precedes the data but contains their hashes. All hashes have 16 digits, so the header is first written
 * with zeros and rewritten with the same length after the data. Before the file replaces anything, it is read back
 * completely, and its header and data are compared with what was written by their hashes. */
#include "ir/base/json_writer.h"
#include "ir/base/utf8.h"
#include "runtime/backend/memory.h"
#include "runtime/files/atomic_file.h"
#include "runtime/files/safetensors.h"
#include "runtime/files/safetensors_format.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { CHUNK_BYTES = 1 << 20, HEADER_ALIGNMENT = 8, HASH_BYTES = 33 };

/* An entry of the metadata; the header contains its own hash and one for each tensor besides. */
typedef struct metadata {
    const char *key; /* a constant of the source */
    char *value;
} metadata;

typedef struct pending {
    char *hash_key;   /* RT_ST_HASH_PREFIX and the name */
    const char *name; /* in `hash_key` */
    ir_dtype dtype;
    int rank;
    int64_t *dims;
    uint64_t bytes;
    const void *data; /* NULL: read from `source` */
    rt_tensor_source *source;
    void *user;
    char hash[RT_ST_HASH_DIGITS + 1];
} pending;

struct rt_safetensors_writer {
    diag *d;
    metadata *metadata;
    pending *items;
    size_t n_metadata, count, capacity;
    char hash[HASH_BYTES]; /* of the finished header */
};

void rt_safetensors_discard(rt_safetensors_writer *w)
{
    if (!w) return;
    for (size_t i = 0; i < w->n_metadata; i++) free(w->metadata[i].value);
    for (size_t i = 0; i < w->count; i++) {
        free(w->items[i].hash_key);
        free(w->items[i].dims);
    }
    free(w->metadata);
    free(w->items);
    free(w);
}

ampc_status rt_safetensors_create(diag *d, rt_safetensors_writer **out)
{
    rt_safetensors_writer *w = calloc(1, sizeof *w);
    if (!w) return rt_no_memory(d);
    w->d = d;
    *out = w;
    return AMPC_OK;
}

/* ---- declaring ---- */

static ampc_status refuse(const rt_safetensors_writer *w, const char *name, const char *what)
{
    return diag_error(w->d, AMPC_REJECTED, diag_named(NULL, DIAG_TENSOR, name), "%s", what);
}

ampc_status rt_safetensors_put_metadata(rt_safetensors_writer *w, const char *key, const char *value)
{
    assert(strncmp(key, RT_ST_HASH_KEY, sizeof RT_ST_HASH_KEY - 1) != 0); /* keys are constants in the source */
    if (!utf8_is_valid(value))
        return diag_error(w->d, AMPC_REJECTED, diag_named(NULL, DIAG_METADATA, key), "the value is not UTF-8");
    metadata *list = realloc(w->metadata, (w->n_metadata + 1) * sizeof *list);
    if (!list) return rt_no_memory(w->d);
    w->metadata = list;
    list[w->n_metadata] = (metadata){key, strdup(value)};
    if (!list[w->n_metadata].value) return rt_no_memory(w->d);
    w->n_metadata++;
    return AMPC_OK;
}

static ampc_status byte_count(const rt_safetensors_writer *w, const char *name, ir_dtype dtype, int rank,
                              const int64_t *dims, uint64_t *bytes)
{
    *bytes = ir_dtype_size(dtype);
    for (int i = 0; i < rank; i++)
        if (dims[i] < 0 || __builtin_mul_overflow(*bytes, (uint64_t)dims[i], bytes) || *bytes > INT64_MAX / 8)
            return refuse(w, name, "the tensor is too large for a .safetensors file");
    return AMPC_OK;
}

static bool grow(rt_safetensors_writer *w)
{
    if (w->count < w->capacity) return true;
    size_t capacity = w->capacity ? 2 * w->capacity : 64;
    pending *items = realloc(w->items, capacity * sizeof *items);
    if (!items) return false;
    w->items = items;
    w->capacity = capacity;
    return true;
}

static bool copy_name_and_dims(pending *item, const char *name, const int64_t *dims)
{
    const size_t n = strlen(name) + 1, prefix = sizeof RT_ST_HASH_PREFIX - 1, rank = (size_t)item->rank;
    item->hash_key = malloc(prefix + n);
    item->dims = calloc(rank + 1, sizeof *item->dims);
    if (!item->hash_key || !item->dims) return false;
    memcpy(item->hash_key, RT_ST_HASH_PREFIX, prefix);
    item->name = memcpy(item->hash_key + prefix, name, n);
    if (rank) memcpy(item->dims, dims, rank * sizeof *dims);
    return true;
}

static ampc_status add(rt_safetensors_writer *w, const char *name, const int64_t *dims, pending item)
{
    if (!utf8_is_valid(name)) return refuse(w, name, "the tensor name is not UTF-8");
    if (strcmp(name, RT_ST_METADATA) == 0) return refuse(w, name, "a tensor cannot have this name");
    TRY(byte_count(w, name, item.dtype, item.rank, dims, &item.bytes));
    if (!grow(w)) return rt_no_memory(w->d);
    const bool copied = copy_name_and_dims(&item, name, dims);
    w->items[w->count++] = item; /* discarded with the writer, also if it is incomplete */
    return copied ? AMPC_OK : rt_no_memory(w->d);
}

ampc_status rt_safetensors_add(rt_safetensors_writer *w, const char *name, ir_dtype dtype, int rank,
                               const int64_t *dims, const void *data)
{
    return add(w, name, dims, (pending){.dtype = dtype, .rank = rank, .data = data, .hash = RT_ST_NO_HASH});
}

ampc_status rt_safetensors_add_source(rt_safetensors_writer *w, const char *name, ir_dtype dtype, int rank,
                                      const int64_t *dims, rt_tensor_source *source, void *user)
{
    return add(w, name, dims,
               (pending){.dtype = dtype, .rank = rank, .source = source, .user = user, .hash = RT_ST_NO_HASH});
}

/* ---- committing ---- */

static int compare_names(const void *a, const void *b)
{
    const pending *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static int compare_pending(const void *a, const void *b)
{
    const pending *x = a, *y = b;
    size_t nx = ir_dtype_size(x->dtype), ny = ir_dtype_size(y->dtype);
    return nx != ny ? (nx < ny ? 1 : -1) : compare_names(a, b);
}

/* Sorts the tensors in the order of their data. */
static ampc_status sort(rt_safetensors_writer *w)
{
    if (!w->count) return AMPC_OK;
    qsort(w->items, w->count, sizeof *w->items, compare_names);
    for (size_t i = 1; i < w->count; i++)
        if (strcmp(w->items[i - 1].name, w->items[i].name) == 0)
            return refuse(w, w->items[i].name, "two tensors have this name");
    qsort(w->items, w->count, sizeof *w->items, compare_pending);
    return AMPC_OK;
}

static void write_metadata(json_writer *j, const rt_safetensors_writer *w)
{
    json_begin(j, RT_ST_METADATA, '{');
    json_write_string(j, RT_ST_HASH_KEY, RT_ST_NO_HASH);
    for (size_t i = 0; i < w->n_metadata; i++) json_write_string(j, w->metadata[i].key, w->metadata[i].value);
    for (size_t i = 0; i < w->count; i++) json_write_string(j, w->items[i].hash_key, w->items[i].hash);
    json_end(j, '}');
}

static void write_entry(json_writer *j, const pending *t, int64_t offset)
{
    json_begin(j, t->name, '{');
    json_write_string(j, "dtype", safetensors_type_by_dtype(t->dtype)->name);
    json_begin(j, "shape", '[');
    for (int i = 0; i < t->rank; i++) json_write_integer(j, NULL, t->dims[i]);
    json_end(j, ']');
    json_begin(j, "data_offsets", '[');
    json_write_integer(j, NULL, offset);
    json_write_integer(j, NULL, offset + (int64_t)t->bytes);
    json_end(j, ']');
    json_end(j, '}');
}

/* The header with padding and without its own hash; NULL if memory is exhausted. */
static char *make_header(const rt_safetensors_writer *w, size_t *n)
{
    json_writer j;
    int64_t offset = 0;
    if (!json_open_text(&j)) return NULL;
    json_begin(&j, NULL, '{');
    write_metadata(&j, w);
    for (size_t i = 0; i < w->count; offset += (int64_t)w->items[i++].bytes) write_entry(&j, &w->items[i], offset);
    json_end(&j, '}');
    while (!j.failed && ftell(j.file) % HEADER_ALIGNMENT) json_write_blank(&j, ' ');
    return json_close_text(&j, n);
}

static ampc_status write_header(rt_safetensors_writer *w, rt_atomic_file *f)
{
    unsigned char length[RT_ST_LENGTH_BYTES];
    size_t n;
    char *text = make_header(w, &n);
    if (!text) return rt_no_memory(w->d);
    for (int i = 0; i < RT_ST_LENGTH_BYTES; i++) length[i] = (unsigned char)((uint64_t)n >> 8 * i);
    ampc_status s = n > RT_ST_HEADER_LIMIT ? refuse(w, NULL, "too many tensors for a .safetensors file")
                                           : rt_atomic_write(f, length, sizeof length);
    if (s == AMPC_OK) s = rt_atomic_write(f, text, n);
    free(text);
    return s;
}

/* Rewrites the header with all hashes, including its own. */
static ampc_status complete_header(rt_safetensors_writer *w, rt_atomic_file *f)
{
    char digits[RT_ST_HASH_DIGITS + 1];
    size_t n;
    char *text = make_header(w, &n);
    if (!text) return rt_no_memory(w->d);
    safetensors_hash64(XXH3_64bits(text, n), digits);
    memcpy(safetensors_header_hash(text, n), digits, RT_ST_HASH_DIGITS);
    safetensors_hash128(text, n, w->hash);
    ampc_status s = rt_atomic_rewrite(f, RT_ST_LENGTH_BYTES, text, n);
    free(text);
    return s;
}

static ampc_status stream(rt_atomic_file *f, const pending *t, unsigned char *chunk, XXH3_state_t *state)
{
    for (uint64_t at = 0; at < t->bytes;) {
        size_t n = t->bytes - at < CHUNK_BYTES ? (size_t)(t->bytes - at) : CHUNK_BYTES;
        const unsigned char *src = chunk;
        if (t->data) src = (const unsigned char *)t->data + at;
        else TRY(t->source(t->user, at, chunk, n));
        XXH3_64bits_update(state, src, n);
        TRY(rt_atomic_write(f, src, n));
        at += n;
    }
    return AMPC_OK;
}

static ampc_status write_tensors(rt_safetensors_writer *w, rt_atomic_file *f)
{
    ampc_status s = AMPC_OK;
    unsigned char *chunk = malloc(CHUNK_BYTES);
    XXH3_state_t *state = XXH3_createState();
    if (!chunk || !state) s = rt_no_memory(w->d);
    for (size_t i = 0; s == AMPC_OK && i < w->count; i++) {
        XXH3_64bits_reset(state);
        s = stream(f, &w->items[i], chunk, state);
        safetensors_hash64(XXH3_64bits_digest(state), w->items[i].hash);
    }
    XXH3_freeState(state);
    free(chunk);
    return s;
}

static ampc_status check_file(void *hash, int fd, const char *path, diag *d)
{
    return safetensors_check(fd, path, hash, d);
}

static ampc_status write_file(rt_safetensors_writer *w, rt_atomic_file *f)
{
    rt_atomic_check_with(f, check_file, w->hash);
    TRY(write_header(w, f));
    TRY(write_tensors(w, f));
    TRY(complete_header(w, f));
    return rt_atomic_prepare(f);
}

ampc_status rt_safetensors_write(rt_safetensors_writer *w, const char *path, char *hash, rt_atomic_file **out)
{
    rt_atomic_file *f = NULL;
    ampc_status s = sort(w);
    if (s == AMPC_OK) s = rt_atomic_open(path, w->d, &f);
    if (s == AMPC_OK) s = write_file(w, f);
    if (s == AMPC_OK) *out = f;
    else rt_atomic_abort(f);
    if (s == AMPC_OK && hash) memcpy(hash, w->hash, sizeof w->hash);
    rt_safetensors_discard(w);
    return s;
}

ampc_status rt_safetensors_commit(rt_safetensors_writer *w, const char *path, char *hash)
{
    rt_atomic_file *f;
    TRY(rt_safetensors_write(w, path, hash, &f));
    return rt_atomic_commit(f);
}
