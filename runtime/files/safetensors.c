/* safetensors.c - reading .safetensors: the complete table is checked before any tensor can be read.
 *
 * Order of checks: length of the header; JSON without duplicate keys; each entry separately; the entries by offset
 * (the first starts at 0, each starts where the previous one ends, the last ends at the end of the file); the hash of
 * the header. That hash is computed first: if it matches, the text is ours and cannot be malformed, so a failure to
 * parse it is one of memory. The JSON value stays alive and owns all names. */
#include "runtime/files/safetensors.h"
#include "runtime/files/io.h"
#include "runtime/files/json.h"
#include "runtime/backend/memory.h"
#include "runtime/files/safetensors_format.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct rt_safetensors {
    char *path;
    diag *d;
    int fd;
    bool borrowed; /* do not close the descriptor */
    rt_verify verify;
    uint64_t file_bytes, data_start;
    json_t *root, *metadata; /* metadata: borrowed from root, NULL if absent */
    rt_tensor_entry *entries;
    size_t *by_name;     /* indices of entries, sorted by name */
    int64_t *dims;       /* of all entries */
    const char **hashes; /* recorded hash of each entry, NULL if there is none */
    size_t count;
    char hash[33];
};

void rt_safetensors_close(rt_safetensors *f)
{
    if (!f) return;
    if (f->fd >= 0 && !f->borrowed) rt_io_close(f->fd);
    json_decref(f->root);
    free(f->entries);
    free(f->by_name);
    free(f->dims);
    free(f->hashes);
    free(f->path);
    free(f);
}

static ampc_status refuse(const rt_safetensors *f, const char *tensor, const char *what)
{
    return diag_error(f->d, AMPC_REJECTED, diag_named(f->path, DIAG_TENSOR, tensor), "%s", what);
}

/* ---- one entry ---- */

static ampc_status parse_shape(rt_safetensors *f, const json_t *shape, rt_tensor_entry *e, int64_t *dims)
{
    if (!json_is_array(shape)) return refuse(f, e->name, "'shape' is missing or not an array");
    e->dims = dims;
    e->rank = (int)json_array_size(shape);
    for (int i = 0; i < e->rank; i++) {
        const json_t *dim = json_array_get(shape, (size_t)i);
        dims[i] = json_is_integer(dim) ? json_integer_value(dim) : -1;
        if (dims[i] < 0) return refuse(f, e->name, "'shape' has an entry that is not a size");
    }
    return AMPC_OK;
}

static ampc_status parse_offsets(rt_safetensors *f, const json_t *offsets, rt_tensor_entry *e)
{
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return refuse(f, e->name, "'data_offsets' is missing or not a pair of offsets");
    int64_t b = json_integer_value(begin), n = json_integer_value(end);
    if (b < 0) return refuse(f, e->name, "negative data offset");
    if (n < b) return refuse(f, e->name, "data offsets end before they begin");
    e->offset = (uint64_t)b;
    e->bytes = (uint64_t)(n - b);
    return AMPC_OK;
}

static ampc_status check_size(rt_safetensors *f, const rt_tensor_entry *e, unsigned element_bits)
{
    uint64_t bits = element_bits;
    for (int i = 0; i < e->rank; i++)
        if (__builtin_mul_overflow(bits, (uint64_t)e->dims[i], &bits)) return refuse(f, e->name, "the shape overflows");
    if (bits % 8) return refuse(f, e->name, "the tensor does not fill whole bytes");
    if (bits / 8 != e->bytes) return refuse(f, e->name, "shape and type do not match the size of the data");
    return AMPC_OK;
}

static ampc_status parse_entry(rt_safetensors *f, const char *name, const json_t *info, rt_tensor_entry *e,
                               int64_t *dims)
{
    *e = (rt_tensor_entry){.name = name};
    if (!json_is_object(info)) return refuse(f, name, "the entry of a tensor is not an object");
    e->type = json_string_value(json_object_get(info, "dtype"));
    if (!e->type) return refuse(f, name, "'dtype' is missing or not a string");
    const safetensors_type *type = safetensors_type_by_name(e->type);
    if (!type) return refuse(f, name, "unknown element type");
    e->dtype = type->dtype;
    TRY(parse_shape(f, json_object_get(info, "shape"), e, dims));
    TRY(parse_offsets(f, json_object_get(info, "data_offsets"), e));
    return check_size(f, e, type->bits);
}

/* ---- the table ---- */

static int compare_offset(const void *a, const void *b)
{
    const rt_tensor_entry *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int compare_name(const void *a, const void *b, void *entries)
{
    const rt_tensor_entry *e = entries;
    return strcmp(e[*(const size_t *)a].name, e[*(const size_t *)b].name);
}

/* Also makes the offsets absolute. */
static ampc_status check_layout(rt_safetensors *f)
{
    uint64_t at = 0;
    for (size_t i = 0; i < f->count; i++) {
        rt_tensor_entry *e = &f->entries[i];
        if (e->offset > at)
            return refuse(f, e->name,
                          i ? "a gap in the data before this tensor"
                            : "the data of the first tensor do not begin at 0");
        if (e->offset < at) return refuse(f, e->name, "the data overlap those of another tensor");
        at += e->bytes; /* cannot overflow: offsets are below 2^63 */
        e->offset += f->data_start;
    }
    if (at > f->file_bytes - f->data_start) return refuse(f, NULL, "truncated: tensor data are missing");
    if (at < f->file_bytes - f->data_start) return refuse(f, NULL, "bytes after the last tensor");
    return AMPC_OK;
}

static ampc_status check_metadata(rt_safetensors *f)
{
    const char *key;
    json_t *value;
    f->metadata = json_object_get(f->root, RT_ST_METADATA);
    if (!f->metadata) return AMPC_OK;
    if (!json_is_object(f->metadata)) return refuse(f, NULL, "'" RT_ST_METADATA "' is not an object");
    json_object_foreach(f->metadata, key, value) if (!json_is_string(value)) return diag_error(
        f->d, AMPC_REJECTED, diag_named(f->path, DIAG_METADATA, key), "the value is not a string");
    return AMPC_OK;
}

static bool allocate_table(rt_safetensors *f)
{
    const char *key;
    json_t *info;
    size_t dims = 0;
    json_object_foreach(f->root, key, info) dims += json_array_size(json_object_get(info, "shape"));
    f->count = json_object_size(f->root) - (f->metadata != NULL);
    f->entries = calloc(f->count + 1, sizeof *f->entries);
    f->by_name = calloc(f->count + 1, sizeof *f->by_name);
    f->dims = calloc(dims + 1, sizeof *f->dims);
    f->hashes = calloc(f->count + 1, sizeof *f->hashes);
    return f->entries && f->by_name && f->dims && f->hashes;
}

static ampc_status parse_table(rt_safetensors *f)
{
    const char *name;
    json_t *info;
    int64_t *dims;
    size_t n = 0;
    TRY(check_metadata(f));
    if (!allocate_table(f)) return rt_no_memory(f->d);
    dims = f->dims;
    json_object_foreach(f->root, name, info)
    {
        if (info == f->metadata) continue;
        TRY(parse_entry(f, name, info, &f->entries[n], dims));
        dims += f->entries[n++].rank;
    }
    qsort(f->entries, n, sizeof *f->entries, compare_offset);
    for (size_t i = 0; i < n; i++) f->by_name[i] = i;
    qsort_r(f->by_name, n, sizeof *f->by_name, compare_name, f->entries);
    return check_layout(f);
}

/* ---- hashes ---- */

static void collect_hashes(rt_safetensors *f)
{
    const char *key;
    json_t *value;
    size_t prefix = sizeof RT_ST_HASH_PREFIX - 1;
    json_object_foreach(f->metadata, key, value)
    {
        if (strncmp(key, RT_ST_HASH_PREFIX, prefix) != 0) continue;
        const rt_tensor_entry *e = rt_safetensors_find(f, key + prefix);
        if (e) f->hashes[e - f->entries] = json_string_value(value);
    }
}

typedef enum header_hash { NOT_RECORDED, WRONG, RIGHT } header_hash;

/* Leaves the text unchanged. */
static header_hash compare_header_hash(char *text, size_t n)
{
    char recorded[17] = "", actual[17];
    char *at = safetensors_header_hash(text, n);
    if (!at) return NOT_RECORDED;
    memcpy(recorded, at, RT_ST_HASH_DIGITS);
    memcpy(at, RT_ST_NO_HASH, RT_ST_HASH_DIGITS);
    safetensors_hash64(XXH3_64bits(text, n), actual);
    memcpy(at, recorded, RT_ST_HASH_DIGITS);
    return strcmp(recorded, actual) == 0 ? RIGHT : WRONG;
}

static ampc_status check_header_hash(const rt_safetensors *f, header_hash hash)
{
    bool claimed = rt_safetensors_metadata(f, RT_ST_HASH_KEY) != NULL;
    if (f->verify == RT_VERIFY_NONE || (f->verify == RT_VERIFY_RECORDED && !claimed)) return AMPC_OK;
    if (!claimed || hash == NOT_RECORDED) return refuse(f, NULL, "no hash of the header is recorded");
    return hash == RIGHT ? AMPC_OK : refuse(f, NULL, "damaged: the header's hash is wrong");
}

static ampc_status check_all_hashed(const rt_safetensors *f)
{
    if (f->verify != RT_VERIFY_ALL) return AMPC_OK;
    for (size_t i = 0; i < f->count; i++)
        if (!f->hashes[i]) return refuse(f, f->entries[i].name, "no hash of this tensor is recorded");
    return AMPC_OK;
}

/* ---- opening ---- */

static ampc_status parse_text(rt_safetensors *f, char *text, size_t n)
{
    json_error_t e;
    if (text[0] != '{') return refuse(f, NULL, "the header does not begin with '{'");
    const header_hash hash = compare_header_hash(text, n);
    ampc_status s = rt_json_parse(text, n, hash == RIGHT, &e, &f->root);
    if (s == AMPC_REJECTED)
        return diag_error(f->d, s, DIAG_FILE(f->path), "bad header at byte %d: %s", e.position, e.text);
    if (s != AMPC_OK) return rt_no_memory(f->d);
    TRY(parse_table(f));
    safetensors_hash128(text, n, f->hash);
    collect_hashes(f);
    TRY(check_header_hash(f, hash));
    return check_all_hashed(f);
}

static ampc_status load_header(rt_safetensors *f)
{
    unsigned char b[RT_ST_LENGTH_BYTES];
    uint64_t n = 0;
    if (!rt_io_size(f->fd, &f->file_bytes)) return diag_errno(f->d, DIAG_FILE(f->path), "cannot read");
    if (f->file_bytes < sizeof b) return refuse(f, NULL, "too short for a .safetensors file");
    if (!rt_io_pread(f->fd, b, sizeof b, 0)) return diag_errno(f->d, DIAG_FILE(f->path), "cannot read");
    for (int i = 7; i >= 0; i--) n = n << 8 | b[i];
    if (n > RT_ST_HEADER_LIMIT) return refuse(f, NULL, "the header is longer than 100 MB");
    if (n > f->file_bytes - sizeof b) return refuse(f, NULL, "truncated: the header extends past the end");
    if (n == 0) return refuse(f, NULL, "the header is empty");
    f->data_start = sizeof b + n;
    char *text = malloc(n);
    if (!text) return rt_no_memory(f->d);
    ampc_status s = rt_io_pread(f->fd, text, n, sizeof b) ? parse_text(f, text, n)
                                                          : diag_errno(f->d, DIAG_FILE(f->path), "cannot read");
    free(text);
    return s;
}

/* fd -1, with errno set: opening failed. */
static ampc_status open_reader(int fd, bool borrowed, const char *path, rt_verify verify, diag *d, rt_safetensors **out)
{
    const int error = errno;
    rt_safetensors *f = malloc(sizeof *f);
    if (!f) {
        if (fd >= 0 && !borrowed) rt_io_close(fd);
        return rt_no_memory(d);
    }
    *f = (rt_safetensors){.path = strdup(path), .d = d, .fd = fd, .borrowed = borrowed, .verify = verify};
    errno = error;
    ampc_status s = !f->path ? rt_no_memory(d)
                    : fd < 0 ? diag_errno(d, DIAG_FILE(f->path), "cannot open")
                             : load_header(f);
    if (s == AMPC_OK) *out = f;
    else rt_safetensors_close(f);
    return s;
}

ampc_status rt_safetensors_adopt(int fd, const char *path, rt_verify verify, diag *d, rt_safetensors **out)
{
    return open_reader(fd, false, path, verify, d, out);
}

ampc_status rt_safetensors_open(const char *path, rt_verify verify, diag *d, rt_safetensors **out)
{
    int fd;
    uint64_t size;
    TRY(rt_io_open_input(path, d, &fd, &size));
    return rt_safetensors_adopt(fd, path, verify, d, out);
}

/* ---- access ---- */

size_t rt_safetensors_count(const rt_safetensors *f) { return f->count; }

const rt_tensor_entry *rt_safetensors_entry(const rt_safetensors *f, size_t index) { return &f->entries[index]; }

const rt_tensor_entry *rt_safetensors_find(const rt_safetensors *f, const char *name)
{
    size_t low = 0, high = f->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const rt_tensor_entry *e = &f->entries[f->by_name[middle]];
        int order = strcmp(name, e->name);
        if (order == 0) return e;
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    return NULL;
}

const char *rt_safetensors_metadata(const rt_safetensors *f, const char *key)
{
    return json_string_value(json_object_get(f->metadata, key));
}

const char *rt_safetensors_hash(const rt_safetensors *f) { return f->hash; }

void rt_safetensors_report_to(rt_safetensors *f, diag *d) { f->d = d; }

ampc_status rt_safetensors_read(const rt_safetensors *f, const rt_tensor_entry *e, void *dst)
{
    char actual[17];
    if (!rt_io_pread(f->fd, dst, e->bytes, e->offset)) return diag_errno(f->d, DIAG_FILE(f->path), "cannot read");
    const char *recorded = f->verify == RT_VERIFY_NONE ? NULL : f->hashes[e - f->entries];
    if (!recorded) return AMPC_OK;
    safetensors_hash64(XXH3_64bits(dst, e->bytes), actual);
    return strcmp(recorded, actual) == 0 ? AMPC_OK : refuse(f, e->name, "damaged: the tensor's hash is wrong");
}

/* ---- checking a file ---- */

enum { CHUNK_BYTES = 1 << 20 };

static ampc_status check_tensor(const rt_safetensors *f, const rt_tensor_entry *e, void *chunk, XXH3_state_t *state)
{
    char actual[17];
    XXH3_64bits_reset(state);
    for (uint64_t at = 0, n; at < e->bytes; at += n) {
        n = e->bytes - at < CHUNK_BYTES ? e->bytes - at : CHUNK_BYTES;
        if (!rt_io_pread(f->fd, chunk, n, e->offset + at)) return diag_errno(f->d, DIAG_FILE(f->path), "cannot read");
        XXH3_64bits_update(state, chunk, n);
    }
    safetensors_hash64(XXH3_64bits_digest(state), actual);
    return strcmp(f->hashes[e - f->entries], actual) == 0 ? AMPC_OK
                                                          : refuse(f, e->name, "damaged: the tensor's hash is wrong");
}

/* Checks entries [first, end), which have hashes. */
static ampc_status check_tensors(const rt_safetensors *f, size_t first, size_t end)
{
    void *chunk = malloc(CHUNK_BYTES);
    XXH3_state_t *state = XXH3_createState();
    ampc_status s = chunk && state ? AMPC_OK : rt_no_memory(f->d);
    for (size_t i = first; s == AMPC_OK && i < end; i++) s = check_tensor(f, &f->entries[i], chunk, state);
    XXH3_freeState(state);
    free(chunk);
    return s;
}

ampc_status rt_safetensors_verify(const rt_safetensors *f, const rt_tensor_entry *e)
{
    const size_t i = (size_t)(e - f->entries);
    return f->verify == RT_VERIFY_NONE || !f->hashes[i] ? AMPC_OK : check_tensors(f, i, i + 1);
}

ampc_status safetensors_check(int fd, const char *path, const char *hash, diag *d)
{
    rt_safetensors *f = NULL;
    TRY(open_reader(fd, true, path, RT_VERIFY_ALL, d, &f));
    ampc_status s = strcmp(f->hash, hash) == 0 ? check_tensors(f, 0, f->count)
                                               : refuse(f, NULL, "the header differs from the one written");
    rt_safetensors_close(f);
    return s;
}
