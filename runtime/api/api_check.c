/* api_check.c - argument checks that every call of the public API makes before doing anything. */
#include "runtime/api/api.h"

#include "ir/base/limits.h"

#include <limits.h>
#include <math.h>
#include <string.h>

/* ---- messages ---- */

/* The member that is the option. A batch that a model fixes is changed where the model is imported; some are
 * options of several calls. */
static const char *member_name(option_id option)
{
    static const char *const members[] = {
#define COMPILE(name, field, member, ...) [OPTION_##member] = "ampc_compile_options." #member,
#define TRAIN(name, member, ...) [OPTION_##member] = "ampc_train_options." #member,
#define SESSION(name, member, ...) [OPTION_##member] = "ampc_session_options." #member,
#define IMPORT(name, member, ...) [OPTION_##member] = "ampc_import_options." #member,
#define LOAD(name, member, ...) [OPTION_##member] = "ampc_load_options." #member,
#include "ir/base/options.def"
        [OPTION_COUNT] = NULL};
    switch ((int)option) {
    case OPTION_batch: return "ampc_import_options.batch";
    case OPTION_metrics: return "metrics";
    case OPTION_reset_optimizer: return "reset_optimizer";
    default: return members[option];
    }
}

const diag_words api_words = {.name = member_name};

/* ---- handles ---- */

ampc_status api_enter(ampc_context *c, diag **d)
{
    if (!c || api_is_calling(c)) return AMPC_USAGE;
    diag_clear(c->d);
    *d = c->d;
    return AMPC_OK;
}

ampc_status api_enter_module(const ampc_module *m, diag **d) { return m ? api_enter(m->context, d) : AMPC_USAGE; }

ampc_status api_enter_session(const ampc_session *s, diag **d) { return s ? api_enter(s->context, d) : AMPC_USAGE; }

ampc_status api_enter_idle(const ampc_session *s, diag **d)
{
    TRY(api_enter_session(s, d));
    return s->trains ? diag_error(*d, AMPC_USAGE, DIAG_NOWHERE, "not possible while ampc_train runs on this session")
                     : AMPC_OK;
}

/* ---- arguments ---- */

ampc_status api_null(diag *d, const char *function, const char *argument)
{
    return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "%s: %s is NULL", function, argument);
}

ampc_status api_items(diag *d, const char *function, const char *argument, const void *const *items, size_t n)
{
    if (n > INT_MAX) return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "%s: too many %s", function, argument);
    if (n && !items) return api_null(d, function, argument);
    for (size_t i = 0; i < n; i++)
        if (!items[i]) return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "%s: %s[%zu] is NULL", function, argument, i);
    return AMPC_OK;
}

ampc_status api_dims(diag *d, const char *function, const ampc_dim *dims, size_t n)
{
    if (n > INT_MAX) return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "%s: too many dims", function);
    if (n && !dims) return api_null(d, function, "dims");
    for (size_t i = 0; i < n; i++) {
        if (!dims[i].name) return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "%s: dims[%zu] has no name", function, i);
        if (dims[i].size < 0)
            return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "dimension '%s' cannot be negative", dims[i].name);
    }
    return AMPC_OK;
}

ampc_status api_number(diag *d, const char *what, double v, double low, double high)
{
    if (is_within(v, low, high)) return AMPC_OK;
    return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "%s: %.17g is not between %g and %g", what, v, low, high);
}

/* ---- options ---- */

/* An array has its size in the next member. */
static ampc_status check_array(diag *d, const api_option *row, const void *at)
{
    size_t n;
    memcpy(&n, (const char *)at + sizeof(const char *const *), sizeof n);
    return api_items(d, "options", row->name, *(const void *const *const *)at, n);
}

static ampc_status check_word(diag *d, const api_option *row, const char *word)
{
    int value;
    if (!word || pass_find_word(row->words, word, &value)) return AMPC_OK;
    return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "unknown %s '%s'", row->name, word);
}

static ampc_status check_number(diag *d, const api_option *row, double v)
{
    return v == 0 ? AMPC_OK : api_number(d, row->name, v, row->limits[0], row->limits[1]);
}

ampc_status api_check_options(diag *d, const void *options, const api_option *rows)
{
    for (const api_option *r = rows; r->name; r++) {
        const void *at = (const char *)options + r->at;
        if (r->kind == OPTION_REAL) TRY(check_number(d, r, *(const double *)at));
        else if (r->kind == OPTION_INT)
            TRY(check_number(d, r, r->is_int ? *(const int *)at : (double)*(const int64_t *)at));
        else if (r->kind == OPTION_WORD) TRY(check_word(d, r, *(const char *const *)at));
        else if (r->kind == OPTION_ARRAY) TRY(check_array(d, r, at));
    }
    return AMPC_OK;
}

/* No version of any struct is larger; a larger size means that struct_size was not set. */
enum { STRUCT_LIMIT = 1 << 12 };

bool api_sized(const void *to)
{
    size_t caller_size = 0;
    memcpy(&caller_size, to, sizeof caller_size);
    return caller_size >= sizeof caller_size && caller_size <= STRUCT_LIMIT;
}

static ampc_status check_size(const void *to, const char *what, diag *d)
{
    if (!to || api_sized(to)) return AMPC_OK;
    return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "struct_size of the %s is not set", what);
}

ampc_status api_options(const void *from, void *to, size_t size, diag *d)
{
    size_t caller_size = 0;
    memset(to, 0, size);
    if (!from) return AMPC_OK;
    TRY(check_size(from, "options", d));
    memcpy(&caller_size, from, sizeof caller_size);
    for (size_t i = size; i < caller_size; i++)
        if (((const char *)from)[i])
            return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "options of a newer version than this library (%s)",
                              AMPC_VERSION);
    memcpy(to, from, caller_size < size ? caller_size : size);
    return AMPC_OK;
}

ampc_status api_result_check(const void *to, diag *d) { return check_size(to, "result", d); }

void api_result(const void *from, void *to, size_t size)
{
    size_t caller_size = 0;
    if (!to) return;
    memcpy(&caller_size, to, sizeof caller_size);
    size_t n = caller_size < size ? caller_size : size;
    memcpy((char *)to + sizeof caller_size, (const char *)from + sizeof caller_size, n - sizeof caller_size);
}

/* ---- state ---- */

/* State values with which training can continue. Weights may have any value. */
static const struct {
    double low, high;
} state_limits[IR_STATE_ROLE_COUNT] = {
    [IR_STATE_lr] = {LIMITS_RATE},
    [IR_STATE_loss_scale] = {LIMITS_LOSS_SCALE},
    [IR_STATE_step] = {0, LIMITS_MOST_STEPS},
    [IR_STATE_good_steps] = {-1, 1e9}, /* -1: off */
    [IR_STATE_bad_steps] = {0, 1e9},
    [IR_STATE_micro_batches] = {0, LIMITS_MOST_STEPS},
    [IR_STATE_unscaled] = {0, 1},
    [IR_STATE_overflow] = {0, 1},
};

ampc_status api_state(diag *d, const ir_storage *s, const char *key, double v)
{
    const bool limited = s->kind == IR_STATE && state_limits[s->role].high > 0;
    if (limited) TRY(api_number(d, key, v, state_limits[s->role].low, state_limits[s->role].high));
    if (ir_dtype_is_float(s->type.dtype) || v == floor(v)) return AMPC_OK;
    return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "%s: %.17g is not an integer", key, v);
}
