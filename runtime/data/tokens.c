/* tokens.c - text and files of token numbers for language models.
 *
 * The file stays on the disk: sample i is the window of `context` tokens from token i * stride on, and its labels are
 * the tokens that follow each of them. */
#include "runtime/backend/memory.h"
#include "runtime/data/data.h"
#include "runtime/data/kinds.h"
#include "runtime/files/io.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct token_file {
    char *path;
    int fd;
    uint64_t size;
    int64_t context, stride;
    int64_t bound; /* one more than the largest token that the model knows; 0: unknown */
} token_file;

static void close_file(token_file *f)
{
    if (f->fd >= 0) rt_io_close(f->fd);
    free(f->path);
    free(f);
}

/* ---- reading ---- */

static ampc_status read_bytes(const token_file *f, uint64_t at, void *dst, size_t n, diag *d)
{
    if (rt_io_pread(f->fd, dst, n, at)) return AMPC_OK;
    if (errno != ENODATA) return diag_errno(d, DIAG_FILE(f->path), "cannot read");
    return diag_error(d, AMPC_REJECTED, DIAG_FILE(f->path),
                      "the file became shorter after it was opened: there are no %zu bytes at byte %" PRIu64, n, at);
}

/* Widens unsigned little-endian numbers, from the last one on, because both arrays begin at the same address. */
static void widen(int64_t *tokens, size_t n, size_t size)
{
    const unsigned char *bytes = (const unsigned char *)tokens;
    for (size_t i = n; i-- > 0;) {
        int64_t token = 0;
        for (size_t k = size; k-- > 0;) token = token << 8 | bytes[i * size + k];
        tokens[i] = token;
    }
}

static ampc_status check_tokens(const token_file *f, int64_t first, const int64_t *tokens, diag *d)
{
    for (int64_t i = 0; f->bound && i < f->context; i++)
        if (tokens[i] >= f->bound)
            return diag_error(d, AMPC_REJECTED, DIAG_FILE(f->path),
                              "token %" PRId64 " is %" PRId64 ", but the model knows tokens below %" PRId64, first + i,
                              tokens[i], f->bound);
    return AMPC_OK;
}

/* Reads the window that begins `shift` tokens after that of the sample. */
static ampc_status read_window(const rt_column *c, int64_t row, int64_t shift, void *dst, ir_dtype dtype, diag *d)
{
    const token_file *f = c->state;
    const size_t size = ir_dtype_size(c->field.dtype), n = (size_t)f->context;
    const int64_t first = row * f->stride + shift;
    int64_t *tokens = malloc(n * sizeof *tokens);
    if (!tokens) return rt_no_memory(d);
    ampc_status s = read_bytes(f, (uint64_t)first * size, tokens, n * size, d);
    if (s == AMPC_OK) {
        widen(tokens, n, size);
        s = check_tokens(f, first, tokens, d);
    }
    if (s == AMPC_OK) ir_convert(dtype, dst, IR_i64, tokens, n);
    free(tokens);
    return s;
}

static ampc_status read_tokens(const rt_column *c, int64_t row, const rt_draw *draw, void *dst, ir_dtype dtype, diag *d)
{
    (void)draw;
    return read_window(c, row, 0, dst, dtype, d);
}

static ampc_status read_labels(const rt_column *c, int64_t row, const rt_draw *draw, void *dst, ir_dtype dtype, diag *d)
{
    (void)draw;
    return read_window(c, row, 1, dst, dtype, d);
}

static void close_column(rt_column *c) { close_file(c->state); }

/* ---- opening ---- */

/* The first integer input of the model, whose tokens this data set provides. */
static const rt_field *token_input(const rt_dataset_options *o)
{
    for (size_t i = 0; i < o->n_fields; i++)
        if (ir_dtype_is_int(o->fields[i].dtype) && !o->fields[i].whole) return &o->fields[i];
    return NULL;
}

/* The length of a window for a description without a model. */
static int64_t describe_window(int64_t tokens, diag *d)
{
    enum { USUAL = 128 };
    const int64_t n = tokens > USUAL ? USUAL : tokens > 2 ? tokens - 1 : 1;
    diag_note(d, DIAG_NOWHERE, "the model or context=N determines the length of a sample; here it is %" PRId64, n);
    return n;
}

/* Sets the window: by the options, else by the length of the model's sequences, which is 1 if the model accepts any. */
static ampc_status set_window(token_file *f, size_t token_size, const rt_data_spec *spec, const rt_dataset_options *o,
                              diag *d)
{
    const rt_field *input = token_input(o);
    const int64_t length = input ? rt_field_elements(input) : 1;
    if (input) f->bound = input->bound;
    f->context = spec->o.context ? spec->o.context : length > 1 ? length : 0;
    if (!f->context && o->describes) f->context = describe_window((int64_t)(f->size / token_size), d);
    if (f->context < 1 || f->context > INT32_MAX)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE,
                          "data '%s': context=N is missing: the model accepts sequences of any length", spec->spec);
    f->stride = spec->o.stride ? spec->o.stride : f->context;
    return AMPC_OK;
}

static ampc_status count_rows(const token_file *f, size_t token_size, diag *d, int64_t *rows)
{
    const int64_t tokens = (int64_t)(f->size / token_size);
    if (f->size % token_size)
        return diag_error(d, AMPC_REJECTED, DIAG_FILE(f->path),
                          "%" PRIu64 " bytes are not a whole number of tokens of %zu bytes", f->size, token_size);
    if (tokens <= f->context)
        return diag_error(d, AMPC_REJECTED, DIAG_FILE(f->path),
                          "%" PRId64 " tokens are too few for a sample of %" PRId64 " and its labels", tokens,
                          f->context);
    *rows = (tokens - 1 - f->context) / f->stride + 1;
    if (*rows <= INT32_MAX) return AMPC_OK;
    return diag_error(d, AMPC_REJECTED, DIAG_FILE(f->path),
                      "%" PRId64 " samples (the maximum is 2147483647); choose a larger stride", *rows);
}

static ampc_status open_file(const char *path, diag *d, token_file **out)
{
    token_file *f = calloc(1, sizeof *f);
    if (!f || !(f->path = strdup(path))) {
        free(f);
        return rt_no_memory(d);
    }
    const ampc_status s = rt_io_open_input(path, d, &f->fd, &f->size);
    if (s == AMPC_OK) *out = f;
    else close_file(f);
    return s;
}

/* Adds the columns "tokens" and "labels"; the first one owns the file. */
static ampc_status add_columns(rt_columns *out, token_file *f, ir_dtype dtype, diag *d)
{
    rt_column tokens = {.field = {.name = "tokens", .dtype = dtype, .rank = 1, .dims = {f->context}},
                        .read = read_tokens,
                        .close = close_column,
                        .state = f};
    rt_column labels = tokens;
    labels.field.name = "labels";
    labels.read = read_labels;
    labels.close = NULL;
    ampc_status s = rt_columns_add(out, &tokens, d);
    if (s != AMPC_OK) close_file(f);
    return s == AMPC_OK ? rt_columns_add(out, &labels, d) : s;
}

static ampc_status open_tokens(const rt_data_spec *spec, const rt_dataset_options *o, ir_dtype dtype, diag *d,
                               rt_columns *out)
{
    token_file *f = NULL;
    TRY(open_file(spec->path, d, &f));
    ampc_status s = set_window(f, ir_dtype_size(dtype), spec, o, d);
    if (s == AMPC_OK) s = count_rows(f, ir_dtype_size(dtype), d, &out->rows);
    if (s != AMPC_OK) {
        close_file(f);
        return s;
    }
    out->overlap = f->stride < f->context ? f->context / f->stride : 0; /* with the labels, context + 1 tokens */
    out->reading = RT_DECODED;
    return add_columns(out, f, dtype, d);
}

ampc_status rt_open_text(const rt_data_spec *spec, const rt_dataset_options *o, diag *d, rt_columns *out)
{
    return open_tokens(spec, o, IR_u8, d, out);
}

ampc_status rt_open_tokens(const rt_data_spec *spec, const rt_dataset_options *o, diag *d, rt_columns *out)
{
    if (spec->o.dtype == RT_DTYPE_NONE)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "data '%s': dtype=u16 or dtype=u32 is missing", spec->spec);
    return open_tokens(spec, o, spec->o.dtype == RT_DTYPE_U16 ? IR_u16 : IR_u32, d, out);
}
