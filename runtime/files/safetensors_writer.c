/* safetensors_writer.c - writing .safetensors in one pass over the data.
 *
 * The header precedes the data but contains their hashes. All hashes have 16 digits, so the header is first written
 * with zeros and rewritten with the same length after the data. Before the file replaces anything, it is read back
 * completely, and its table is compared with the one in memory. */
#include "ir/utf8.h"
#include "runtime/files/atomic_file.h"
#include "runtime/files/json.h"
#include "runtime/backend/memory.h"
#include "runtime/files/safetensors.h"
#include "runtime/files/safetensors_format.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { PIECE = 1 << 20, HEADER_ALIGNMENT = 8 };

typedef struct pending {
    const char *name; /* owned by `seen` */
    ir_dtype dtype;
    uint64_t bytes;
    const void *data; /* NULL: read from `source` */
    rt_tensor_source *source;
    void *user;
    json_t *info; /* borrowed from `seen` */
    char *hash_key;
} pending;

struct rt_safetensors_writer {
    diag *d;
    pending *items;
    size_t count, capacity;
    json_t *metadata;
    json_t *seen; /* name -> info, in the order added; the source of the sorted table */
};

void rt_safetensors_discard(rt_safetensors_writer *w)
{
    if (!w) return;
    for (size_t i = 0; i < w->count; i++) free(w->items[i].hash_key);
    free(w->items);
    json_decref(w->metadata);
    json_decref(w->seen);
    free(w);
}

ampc_status rt_safetensors_create(diag *d, rt_safetensors_writer **out)
{
    rt_safetensors_writer *w = malloc(sizeof *w);
    if (!w) return rt_no_memory(d);
    *w = (rt_safetensors_writer){.d = d, .metadata = json_object(), .seen = json_object()};
    if (w->metadata && w->seen && json_object_set_new(w->metadata, RT_ST_HASH_KEY, json_string(RT_ST_NO_HASH)) == 0) {
        *out = w;
        return AMPC_OK;
    }
    rt_safetensors_discard(w);
    return rt_no_memory(d);
}

/* ---- declaring ---- */

static ampc_status refuse(const rt_safetensors_writer *w, const char *name, const char *what)
{
    return diag_error(w->d, AMPC_REJECTED, (diag_loc){.node = name}, "%s", what);
}

/* Reports why jansson could not make a string of `text`. */
static ampc_status no_string(const rt_safetensors_writer *w, const char *name, const char *text, const char *what)
{
    uint32_t code;
    for (size_t n = strlen(text), length; n; n -= length, text += length)
        if ((length = utf8_decode(text, n, &code)) == 0) return refuse(w, name, what);
    return rt_no_memory(w->d);
}

ampc_status rt_safetensors_put_metadata(rt_safetensors_writer *w, const char *key, const char *value)
{
    assert(strncmp(key, RT_ST_HASH_KEY, sizeof RT_ST_HASH_KEY - 1) != 0); /* keys are constants in the source */
    assert(!json_object_get(w->metadata, key));                           /* keys are constants in the source */
    if (json_object_set_new(w->metadata, key, json_string(value)) == 0) return AMPC_OK;
    return no_string(w, key, value, "metadata that is not UTF-8");
}

static char *hash_key(const char *name)
{
    size_t n = strlen(name) + sizeof RT_ST_HASH_PREFIX;
    char *key = malloc(n);
    if (!key) return NULL;
    memcpy(key, RT_ST_HASH_PREFIX, sizeof RT_ST_HASH_PREFIX - 1);
    memcpy(key + sizeof RT_ST_HASH_PREFIX - 1, name, strlen(name) + 1);
    return key;
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

static json_t *shape_of(int rank, const int64_t *dims)
{
    json_t *shape = json_array();
    for (int i = 0; shape && i < rank; i++)
        if (json_array_append_new(shape, json_integer(dims[i])) != 0) {
            json_decref(shape);
            return NULL;
        }
    return shape;
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

/* Returns the name as stored in the writer's own table. */
static const char *add_info(rt_safetensors_writer *w, const char *name, ir_dtype dtype, int rank, const int64_t *dims)
{
    json_t *info = json_pack("{s:s, s:o*}", "dtype", safetensors_type_by_dtype(dtype)->name, "shape",
                             shape_of(rank, dims));
    if (!json_object_get(info, "shape")) {
        json_decref(info);
        return NULL;
    }
    if (json_object_set_new(w->seen, name, info) != 0) return NULL;
    return json_object_iter_key(json_object_iter_at(w->seen, name));
}

static ampc_status add(rt_safetensors_writer *w, const char *name, int rank, const int64_t *dims, pending item)
{
    json_t *text = json_string(name);
    if (!text) return no_string(w, name, name, "a tensor name that is not UTF-8");
    json_decref(text);
    if (json_object_get(w->seen, name) || strcmp(name, RT_ST_METADATA) == 0)
        return refuse(w, name, "a tensor of this name is already there");
    TRY(byte_count(w, name, item.dtype, rank, dims, &item.bytes));
    if (!grow(w)) return rt_no_memory(w->d);
    item.name = add_info(w, name, item.dtype, rank, dims);
    if (!item.name) return rt_no_memory(w->d);
    item.info = json_object_get(w->seen, name);
    item.hash_key = hash_key(name);
    if (!item.hash_key) return rt_no_memory(w->d);
    w->items[w->count++] = item;
    return AMPC_OK;
}

ampc_status rt_safetensors_add(rt_safetensors_writer *w, const char *name, ir_dtype dtype, int rank,
                               const int64_t *dims, const void *data)
{
    return add(w, name, rank, dims, (pending){.dtype = dtype, .data = data});
}

ampc_status rt_safetensors_add_source(rt_safetensors_writer *w, const char *name, ir_dtype dtype, int rank,
                                      const int64_t *dims, rt_tensor_source *source, void *user)
{
    return add(w, name, rank, dims, (pending){.dtype = dtype, .source = source, .user = user});
}

/* ---- committing ---- */

static int compare_pending(const void *a, const void *b)
{
    const pending *x = a, *y = b;
    size_t nx = ir_dtype_size(x->dtype), ny = ir_dtype_size(y->dtype);
    return nx != ny ? (nx < ny ? 1 : -1) : strcmp(x->name, y->name);
}

static bool set_hash(rt_safetensors_writer *w, const char *key, const char *digits)
{
    return json_object_set_new(w->metadata, key, json_string(digits)) == 0;
}

/* Sorts the tensors, assigns their offsets and returns the table. NULL if memory is exhausted. */
static json_t *make_table(rt_safetensors_writer *w)
{
    int64_t at = 0;
    json_t *root = json_object();
    if (w->count) qsort(w->items, w->count, sizeof *w->items, compare_pending);
    bool ok = root && json_object_set(root, RT_ST_METADATA, w->metadata) == 0;
    for (size_t i = 0; ok && i < w->count; i++) {
        pending *t = &w->items[i];
        int64_t end = at + (int64_t)t->bytes;
        json_t *offsets = json_pack("[I, I]", (json_int_t)at, (json_int_t)end);
        ok = json_object_set_new(t->info, "data_offsets", offsets) == 0 &&
             json_object_set(root, t->name, t->info) == 0 && set_hash(w, t->hash_key, RT_ST_NO_HASH);
        at = end;
    }
    if (ok) return root;
    json_decref(root);
    return NULL;
}

/* The header's text with padding; NULL if memory is exhausted. */
static char *make_text(const json_t *table, size_t *n)
{
    size_t length;
    char *text = rt_json_text(table, HEADER_ALIGNMENT, &length);
    if (!text) return NULL;
    *n = (length + HEADER_ALIGNMENT - 1) / HEADER_ALIGNMENT * HEADER_ALIGNMENT;
    memset(text + length, ' ', *n - length);
    return text;
}

static ampc_status write_header(rt_safetensors_writer *w, rt_atomic_file *f, const json_t *table)
{
    unsigned char length[RT_ST_LENGTH_BYTES];
    size_t n;
    char *text = make_text(table, &n);
    if (!text) return rt_no_memory(w->d);
    for (int i = 0; i < RT_ST_LENGTH_BYTES; i++) length[i] = (unsigned char)((uint64_t)n >> 8 * i);
    ampc_status s = n > RT_ST_HEADER_LIMIT ? refuse(w, NULL, "too many tensors for a .safetensors file")
                                           : rt_atomic_write(f, length, sizeof length);
    if (s == AMPC_OK) s = rt_atomic_write(f, text, n);
    free(text);
    return s;
}

/* Computes the header's hash and stores it in the text and the table. */
static ampc_status complete_header(rt_safetensors_writer *w, rt_atomic_file *f, const json_t *table, char *hash)
{
    char digits[17];
    size_t n;
    char *text = make_text(table, &n);
    if (!text) return rt_no_memory(w->d);
    rt_st_hash64(XXH3_64bits(text, n), digits);
    memcpy(rt_st_header_hash(text, n), digits, RT_ST_HASH_DIGITS);
    if (hash) rt_st_hash128(text, n, hash);
    ampc_status s = set_hash(w, RT_ST_HASH_KEY, digits) ? rt_atomic_rewrite(f, RT_ST_LENGTH_BYTES, text, n)
                                                        : rt_no_memory(w->d);
    free(text);
    return s;
}

static ampc_status stream(rt_atomic_file *f, const pending *t, unsigned char *piece, XXH3_state_t *state)
{
    for (uint64_t at = 0; at < t->bytes;) {
        size_t n = t->bytes - at < PIECE ? (size_t)(t->bytes - at) : PIECE;
        const unsigned char *src = piece;
        if (t->data) src = (const unsigned char *)t->data + at;
        else TRY(t->source(t->user, at, piece, n));
        XXH3_64bits_update(state, src, n);
        TRY(rt_atomic_write(f, src, n));
        at += n;
    }
    return AMPC_OK;
}

static ampc_status write_tensors(rt_safetensors_writer *w, rt_atomic_file *f)
{
    char digits[17];
    ampc_status s = AMPC_OK;
    unsigned char *piece = malloc(PIECE);
    XXH3_state_t *state = XXH3_createState();
    if (!piece || !state) s = rt_no_memory(w->d);
    for (size_t i = 0; s == AMPC_OK && i < w->count; i++) {
        XXH3_64bits_reset(state);
        s = stream(f, &w->items[i], piece, state);
        if (s != AMPC_OK) break;
        rt_st_hash64(XXH3_64bits_digest(state), digits);
        if (!set_hash(w, w->items[i].hash_key, digits)) s = rt_no_memory(w->d);
    }
    XXH3_freeState(state);
    free(piece);
    return s;
}

static ampc_status write_file(rt_safetensors_writer *w, rt_atomic_file *f, const json_t *table, char *hash)
{
    TRY(write_header(w, f, table));
    TRY(write_tensors(w, f));
    return complete_header(w, f, table, hash);
}

static ampc_status check_file(void *table, int fd, const char *path, diag *d)
{
    return safetensors_check(fd, path, table, d);
}

static ampc_status write_and_prepare(rt_safetensors_writer *w, rt_atomic_file *f, json_t *table, char *hash)
{
    rt_atomic_check_with(f, check_file, table);
    TRY(write_file(w, f, table, hash));
    return rt_atomic_prepare(f);
}

ampc_status rt_safetensors_write(rt_safetensors_writer *w, const char *path, char *hash, rt_atomic_file **out)
{
    rt_atomic_file *f = NULL;
    json_t *table = make_table(w);
    ampc_status s = table ? rt_atomic_open(path, w->d, &f) : rt_no_memory(w->d);
    if (s == AMPC_OK) s = write_and_prepare(w, f, table, hash);
    if (s == AMPC_OK) *out = f;
    else rt_atomic_abort(f);
    json_decref(table);
    rt_safetensors_discard(w);
    return s;
}

ampc_status rt_safetensors_commit(rt_safetensors_writer *w, const char *path, char *hash)
{
    rt_atomic_file *f;
    TRY(rt_safetensors_write(w, path, hash, &f));
    return rt_atomic_commit(f);
}
