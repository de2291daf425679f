/* npy.c - .npy: magic, version, header length, a Python dict literal, data.
 *
 * A scanner parses only the literals that NumPy writes in headers (strings, True, False, tuples of integers); nothing
 * is evaluated. Sizes are checked before memory is allocated. */
#include "runtime/data/npy.h"
#include "ir/base/text_buffer.h"
#include "runtime/files/io.h"
#include "runtime/backend/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PREFIX_MAX = 12, HEADER_LIMIT = 1 << 16, ALIGNMENT = 64 };

static const struct npy_type {
    const char *code; /* without byte order */
    ir_dtype dtype;
} npy_types[] = {{"f8", IR_f64}, {"f4", IR_f32},  {"f2", IR_f16}, {"i8", IR_i64}, {"i4", IR_i32},
                 {"i2", IR_i16}, {"i1", IR_i8},   {"u8", IR_u64}, {"u4", IR_u32}, {"u2", IR_u16},
                 {"u1", IR_u8},  {"b1", IR_bool}, {"u2", IR_bf16}};
enum { NPY_TYPES = sizeof npy_types / sizeof *npy_types };

/* ---- the header ---- */

typedef struct scanner {
    const char *at, *end;
    const rt_npy_source *source;
    diag *d;
    ir_dtype u2_as;
    unsigned seen; /* a bit for each key of npy_keys */
    bool fortran;  /* the first axis is contiguous */
    rt_array *out;
} scanner;

static ampc_status refuse(const scanner *s, const char *what)
{
    return diag_error(s->d, AMPC_REJECTED, s->source->loc, "bad .npy header: %s", what);
}

static void skip_blanks(scanner *s)
{
    while (s->at < s->end && strchr(" \t\r\n", *s->at)) s->at++;
}

static bool accept(scanner *s, char c)
{
    skip_blanks(s);
    if (s->at == s->end || *s->at != c) return false;
    s->at++;
    return true;
}

static bool accept_word(scanner *s, const char *word)
{
    size_t n = strlen(word);
    skip_blanks(s);
    if ((size_t)(s->end - s->at) < n || memcmp(s->at, word, n) != 0) return false;
    s->at += n;
    return true;
}

/* Parses a quoted string without escapes into dst, truncated if necessary: no valid string is that long. */
static bool read_string(scanner *s, char *dst, size_t n)
{
    skip_blanks(s);
    if (s->at == s->end || (*s->at != '\'' && *s->at != '"')) return false;
    char quote = *s->at++;
    const char *close = memchr(s->at, quote, (size_t)(s->end - s->at));
    if (!close) return false;
    snprintf(dst, n, "%.*s", (int)(close - s->at), s->at);
    s->at = close + 1;
    return true;
}

static ampc_status parse_descr(scanner *s)
{
    char descr[32];
    if (!read_string(s, descr, sizeof descr))
        return refuse(s, "'descr' is not a string (structured types are not supported)");
    if (s->source->text && strspn(descr, "<U0123456789") == strlen(descr)) {
        *s->source->text = true;
        return AMPC_OK;
    }
    bool one_byte = descr[0] && descr[1] && strcmp(descr + 2, "1") == 0;
    if (descr[0] == '>' && !one_byte) return refuse(s, "big-endian data are not supported");
    for (size_t i = 0; strchr("<|=>", descr[0]) && i < NPY_TYPES; i++)
        if (strcmp(descr + 1, npy_types[i].code) == 0 && (npy_types[i].dtype != IR_bf16 || s->u2_as == IR_bf16))
            s->out->dtype = npy_types[i].dtype;
    if (s->out->dtype != IR_NO_DTYPE) return AMPC_OK;
    return diag_error(s->d, AMPC_REJECTED, s->source->loc,
                      "element type '%s' is not supported (f8 f4 f2 i8 i4 i2 i1 u8 u4 u2 u1 b1; bf16 is stored as u2)",
                      descr);
}

static ampc_status parse_order(scanner *s)
{
    if (accept_word(s, "False")) return AMPC_OK;
    s->fortran = accept_word(s, "True");
    if (s->fortran) return AMPC_OK;
    return refuse(s, "'fortran_order' is neither True nor False");
}

static bool read_dim(scanner *s, int64_t *dim)
{
    skip_blanks(s);
    const char *start = s->at;
    for (*dim = 0; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++)
        if (__builtin_mul_overflow(*dim, 10, dim) || __builtin_add_overflow(*dim, *s->at - '0', dim)) return false;
    bool any = s->at > start;
    if (any && s->at < s->end && *s->at == 'L') s->at++; /* written by Python 2 */
    return any;
}

static ampc_status parse_shape(scanner *s)
{
    rt_array *a = s->out;
    if (!accept(s, '(')) return refuse(s, "'shape' is not a tuple");
    while (!accept(s, ')')) {
        if (a->rank == RT_ARRAY_MAX_RANK) return refuse(s, "more than 32 dimensions");
        if (!read_dim(s, &a->dims[a->rank++])) return refuse(s, "'shape' has an invalid size");
        if (accept(s, ',')) continue;
        if (!accept(s, ')')) return refuse(s, "'shape' is not closed");
        break;
    }
    return AMPC_OK;
}

static const struct {
    const char *name;
    ampc_status (*parse)(scanner *s);
} npy_keys[] = {{"descr", parse_descr}, {"fortran_order", parse_order}, {"shape", parse_shape}};
enum { NPY_KEYS = sizeof npy_keys / sizeof *npy_keys };

static ampc_status parse_item(scanner *s)
{
    char key[32];
    if (!read_string(s, key, sizeof key) || !accept(s, ':')) return refuse(s, "not a dictionary");
    for (unsigned i = 0; i < NPY_KEYS; i++) {
        if (strcmp(key, npy_keys[i].name) != 0) continue;
        if (s->seen & 1u << i) return refuse(s, "duplicate key");
        s->seen |= 1u << i;
        return npy_keys[i].parse(s);
    }
    return refuse(s, "unknown key");
}

static ampc_status parse_header(scanner *s)
{
    if (!accept(s, '{')) return refuse(s, "not a dictionary");
    while (!accept(s, '}')) {
        TRY(parse_item(s));
        if (accept(s, ',')) continue;
        if (!accept(s, '}')) return refuse(s, "the dictionary is not closed");
        break;
    }
    skip_blanks(s);
    if (s->at != s->end) return refuse(s, "text after the dictionary");
    if (s->seen != (1u << NPY_KEYS) - 1) return refuse(s, "'descr', 'fortran_order' or 'shape' is missing");
    return AMPC_OK;
}

/* ---- reading ---- */

static ampc_status reject(const rt_npy_source *src, diag *d, const char *what)
{
    return diag_error(d, AMPC_REJECTED, src->loc, "%s", what);
}

/* Reads the bytes before the header; sets the header's length and the number of bytes read. */
static ampc_status load_prefix(const rt_npy_source *src, diag *d, uint32_t *length, size_t *used)
{
    unsigned char b[PREFIX_MAX];
    if (src->size < 10) return reject(src, d, "too short for a .npy file");
    TRY(src->read(src->user, b, 10));
    if (memcmp(b, "\x93NUMPY", 6) != 0) return reject(src, d, "not a .npy file (wrong magic bytes)");
    if (b[6] < 1 || b[6] > 3) return reject(src, d, "unknown .npy version");
    *used = b[6] == 1 ? 10 : 12;
    if (src->size < *used) return reject(src, d, "too short for a .npy file");
    if (*used == 12) TRY(src->read(src->user, b + 10, 2));
    *length = (uint32_t)b[8] | (uint32_t)b[9] << 8;
    if (*used == 12) *length |= (uint32_t)b[10] << 16 | (uint32_t)b[11] << 24;
    if (*length > HEADER_LIMIT) return reject(src, d, "the .npy header is longer than 64 KiB");
    if (*length > src->size - *used) return reject(src, d, "the .npy header extends past the end");
    return AMPC_OK;
}

static ampc_status load_header(const rt_npy_source *src, ir_dtype u2_as, diag *d, rt_array *a, size_t *used,
                               bool *fortran)
{
    uint32_t length = 0;
    TRY(load_prefix(src, d, &length, used));
    char *text = malloc(length + 1u);
    if (!text) return rt_no_memory(d);
    ampc_status status = src->read(src->user, text, length);
    scanner s = {.at = text, .end = text + length, .source = src, .d = d, .u2_as = u2_as, .out = a};
    if (status == AMPC_OK) status = parse_header(&s);
    free(text);
    *fortran = s.fortran;
    *used += length;
    return status;
}

/* Any nonzero byte is true in the file, but a C bool must be 0 or 1. */
static void normalise_bools(rt_array *a)
{
    unsigned char *b = a->data;
    for (size_t i = 0; i < a->bytes; i++) b[i] = b[i] != 0;
}

/* Copies elements whose first axis is contiguous to `to`, whose last axis is. */
static void reorder(const rt_array *a, const char *from, char *to)
{
    const size_t size = ir_dtype_size(a->dtype), count = a->bytes / size;
    int64_t index[RT_ARRAY_MAX_RANK] = {0};
    size_t stride[RT_ARRAY_MAX_RANK] = {0}, at = 0, step = 1;
    for (int k = 0; k < a->rank; k++, step *= (size_t)a->dims[k - 1]) stride[k] = step;
    for (size_t i = 0; i < count; i++) {
        memcpy(to + i * size, from + at * size, size);
        for (int k = a->rank - 1; k >= 0; k--) {
            at += stride[k];
            if (++index[k] < a->dims[k]) break;
            at -= stride[k] * (size_t)a->dims[k];
            index[k] = 0;
        }
    }
}

/* Makes the last axis contiguous. */
static ampc_status make_row_major(rt_array *a, diag *d)
{
    if (a->rank < 2 || !a->bytes) return AMPC_OK;
    char *rows = malloc(a->bytes);
    if (!rows) return rt_no_memory(d);
    reorder(a, a->data, rows);
    free(a->data);
    a->data = rows;
    return AMPC_OK;
}

static ampc_status load_data(const rt_npy_source *src, size_t used, diag *d, rt_array *a)
{
    if (!rt_array_bytes(a->dtype, a->rank, a->dims, &a->bytes))
        return reject(src, d, "the shape in the .npy header is too large");
    if (a->bytes != src->size - used)
        return diag_error(d, AMPC_REJECTED, src->loc,
                          "the .npy header specifies %zu bytes of data, but the file has %llu", a->bytes,
                          (unsigned long long)(src->size - used));
    a->data = malloc(a->bytes ? a->bytes : 1);
    if (!a->data) return rt_no_memory(d);
    TRY(src->read(src->user, a->data, a->bytes));
    if (a->dtype == IR_bool) normalise_bools(a);
    return AMPC_OK;
}

ampc_status rt_npy_load(const rt_npy_source *source, ir_dtype u2_as, diag *d, rt_array *out)
{
    rt_array a = {0};
    size_t used = 0;
    bool fortran = false;
    ampc_status s = load_header(source, u2_as, d, &a, &used, &fortran);
    if (s == AMPC_OK && source->text && *source->text) return s;
    if (s == AMPC_OK) s = load_data(source, used, d, &a);
    if (s == AMPC_OK && fortran) s = make_row_major(&a, d);
    if (s == AMPC_OK) *out = a;
    else rt_array_clear(&a);
    return s;
}

typedef struct npy_file {
    const char *path;
    diag *d;
    int fd;
    uint64_t offset;
} npy_file;

static ampc_status read_file(void *user, void *dst, size_t n)
{
    npy_file *f = user;
    if (!rt_io_pread(f->fd, dst, n, f->offset)) return diag_errno(f->d, DIAG_FILE(f->path), "cannot read");
    f->offset += n;
    return AMPC_OK;
}

ampc_status rt_npy_read(const char *path, ir_dtype u2_as, diag *d, rt_array *out)
{
    npy_file f = {.path = path, .d = d};
    rt_npy_source source = {.loc = DIAG_FILE(path), .read = read_file, .user = &f};
    TRY(rt_io_open_input(path, d, &f.fd, &source.size));
    const ampc_status s = rt_npy_load(&source, u2_as, d, out);
    rt_io_close(f.fd);
    return s;
}

/* ---- writing ---- */

static const char *type_code(ir_dtype dtype)
{
    for (size_t i = 0; i < NPY_TYPES; i++)
        if (npy_types[i].dtype == dtype) return npy_types[i].code;
    return "V1";
}

size_t rt_npy_header(const rt_array *a, unsigned char *dst)
{
    char *text = (char *)dst + 10, length[24];
    text_buffer t = text_in(text, RT_NPY_HEADER_MAX - 10);
    const int rank = a->rank - a->text;
    snprintf(length, sizeof length, "U%lld", a->text ? (long long)a->dims[rank] : 0);
    text_add(&t, "{'descr': '%c%s', 'fortran_order': False, 'shape': (", ir_dtype_size(a->dtype) == 1 ? '|' : '<',
             a->text ? length : type_code(a->dtype));
    for (int i = 0; i < rank; i++)
        text_add(&t, "%s%lld%s", i ? " " : "", (long long)a->dims[i], i + 1 < rank || rank == 1 ? "," : "");
    text_put(&t, "), }");
    size_t padded = (10 + t.length + 1 + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT - 10;
    memset(text + t.length, ' ', padded - t.length);
    text[padded - 1] = '\n';
    memcpy(dst, "\x93NUMPY\x01\x00", 8);
    dst[8] = (unsigned char)padded;
    dst[9] = (unsigned char)(padded >> 8);
    return 10 + padded;
}
