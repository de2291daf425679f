/* settings.c - the reader of KEY=VALUE,.. and its messages. */
#include "ir/ops/settings.h"

#include "ir/base/limits.h"
#include "ir/base/suggest.h"
#include "ir/base/text_buffer.h"
#include "ir/ops/number.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool settings_listed(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = list, *end; *at; at = end + (*end != 0)) {
        end = at + strcspn(at, " |");
        if ((size_t)(end - at) == n && memcmp(at, word, n) == 0) return true;
    }
    return false;
}

static bool accepts(const settings *s, const setting *row) { return !s->keys || settings_listed(s->keys, row->key); }

const setting *settings_find(const settings *s, const char *key)
{
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->rows[i].key, key) == 0 && accepts(s, &s->rows[i])) return &s->rows[i];
    return NULL;
}

/* ---- values ---------------------------------------------------------------------------------- */

static bool parse_seed(const char *text, uint64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && !errno;
}

static bool parse_real(const setting *row, const char *text, double *out)
{
    if (row->words && strcmp(text, row->words) == 0) return *out = 0, true;
    return ir_float_parse(text, out) && is_within(*out, row->low, row->high) &&
           (row->kind != SETTING_WHOLE || *out == floor(*out));
}

static bool parse_count(const setting *row, const char *text, int64_t *out)
{
    if (row->words && strcmp(text, row->words) == 0) return *out = 0, true;
    return ir_int_parse(text, out) && is_within((double)*out, row->low, row->high);
}

/* One number after the other; they end with the text. */
static bool next_number(const char **text, double *out)
{
    char item[64];
    const size_t n = strcspn(*text, "/");
    if (n >= sizeof item) return false;
    memcpy(item, *text, n);
    item[n] = 0;
    *text = (*text)[n] ? *text + n + 1 : NULL;
    return ir_float_parse(item, out);
}

static bool check_reals(const setting *row, const char *text)
{
    double v;
    while (text)
        if (!next_number(&text, &v) || !is_within(v, row->low, row->high)) return false;
    return true;
}

size_t settings_numbers(const char *text, double *out, size_t most)
{
    size_t n = 0;
    for (double v; text && next_number(&text, &v); n++)
        if (n < most) out[n] = v;
    return n;
}

static bool parse_size(const char *text, int64_t out[2])
{
    const setting side = {.low = 1, .high = INT32_MAX};
    char first[24];
    const size_t n = strcspn(text, "x");
    if (!text[n] || n >= sizeof first) return false;
    memcpy(first, text, n);
    first[n] = 0;
    return parse_count(&side, first, &out[0]) && parse_count(&side, text + n + 1, &out[1]);
}

static bool parse_word(const setting *row, const char *text, int *out)
{
    *out = 0;
    for (const char *at = row->words, *end; *at; at = end + (*end != 0), ++*out) {
        end = at + strcspn(at, "|");
        if (strlen(text) == (size_t)(end - at) && memcmp(at, text, (size_t)(end - at)) == 0) return true;
    }
    return false;
}

/* False: the row does not allow the value. */
static bool store(const setting *row, const char *text, void *member)
{
    switch (row->kind) {
    case SETTING_REAL:
    case SETTING_WHOLE: return parse_real(row, text, member);
    case SETTING_COUNT: return parse_count(row, text, member);
    case SETTING_SEED: return parse_seed(text, member);
    case SETTING_SIZE: return parse_size(text, member);
    case SETTING_WORD: return parse_word(row, text, member);
    case SETTING_REALS: *(const char **)member = text; return check_reals(row, text);
    case SETTING_TEXT: *(const char **)member = text; return true;
    case SETTING_FLAG: break;
    }
    return false;
}

/* ---- what a value is ------------------------------------------------------------------------- */

/* " from 0 to 1", without a bound that is only that of a type. */
static void add_range(text_buffer *t, const setting *row)
{
    const bool open = row->low > 0 && row->low <= FLT_TRUE_MIN, low = !open && fabs(row->low) < FLT_MAX;
    const bool high = fabs(row->high) < FLT_MAX;
    char bound[IR_NUMBER_SIZE];
    ir_float_print(bound, IR_f64, row->low);
    if (open) text_put(t, " above 0");
    else if (low) text_add(t, high ? " from %s" : " of at least %s", bound);
    ir_float_print(bound, IR_f64, row->high);
    if (row->high == SETTING_BELOW_1) text_put(t, " and below 1");
    else if (row->high == FLT_MAX) text_put(t, " in f32");
    else if (high) text_add(t, open ? " and at most %s" : " to %s", bound);
}

/* "a, b or c" of a list of words. */
static void add_words(text_buffer *t, const char *words, const char *separators)
{
    for (const char *at = words; *at;) {
        const size_t n = strcspn(at, separators);
        const char *next = at + n + (at[n] != 0);
        if (at != words) text_put(t, *next ? ", " : " or ");
        text_add_bytes(t, at, n);
        at = next;
    }
}

const char *setting_expected(const setting *row, char text[SETTING_TEXT_SIZE])
{
    static const char *const nouns[] = {
        [SETTING_REAL] = "a number",   [SETTING_WHOLE] = "an integer", [SETTING_COUNT] = "an integer",
        [SETTING_SEED] = "an integer", [SETTING_REALS] = "a number",   [SETTING_SIZE] = "HEIGHTxWIDTH",
        [SETTING_WORD] = "",           [SETTING_TEXT] = "a text",      [SETTING_FLAG] = ""};
    text_buffer t = text_in(text, SETTING_TEXT_SIZE);
    text_put(&t, nouns[row->kind]);
    if (row->kind == SETTING_SEED) text_put(&t, " from 0 to 18446744073709551615");
    else if (row->kind <= SETTING_REALS) add_range(&t, row);
    if (row->kind == SETTING_REALS) text_put(&t, ", or several as A/B/..");
    if (row->kind == SETTING_WORD) add_words(&t, row->words, "|");
    else if (row->words) text_add(&t, " or %s", row->words);
    return text;
}

const char *setting_print(const setting *row, const void *of, char text[SETTING_TEXT_SIZE])
{
    const void *at = (const char *)of + row->at;
    text_buffer t = text_in(text, SETTING_TEXT_SIZE);
    if (row->kind == SETTING_TEXT || row->kind == SETTING_REALS) return *(const char *const *)at;
    if (row->kind == SETTING_WORD) {
        const char *word = row->words;
        for (int i = *(const int *)at; i > 0; i--) word += strcspn(word, "|") + 1;
        text_add_bytes(&t, word, strcspn(word, "|"));
    } else if (row->words && memcmp(at, &(int64_t){0}, sizeof(int64_t)) == 0) text_put(&t, row->words);
    else if (row->kind != SETTING_COUNT) text_add(&t, "%.17g", *(const double *)at);
    else text_add(&t, "%lld", (long long)*(const int64_t *)at);
    return text;
}

const char *setting_form(const setting *row, char text[SETTING_TEXT_SIZE])
{
    static const char *const forms[] = {
        [SETTING_REAL] = "=X", [SETTING_WHOLE] = "=N",      [SETTING_COUNT] = "=N",
        [SETTING_SEED] = "=N", [SETTING_REALS] = "=A/B/..", [SETTING_SIZE] = "=HEIGHTxWIDTH",
        [SETTING_WORD] = "=",  [SETTING_TEXT] = "=TEXT",    [SETTING_FLAG] = ""};
    text_buffer t = text_in(text, SETTING_TEXT_SIZE);
    text_add(&t, "%s%s%s", row->key, forms[row->kind], row->kind == SETTING_WORD ? row->words : "");
    return text;
}

const char *setting_notes(const setting *row, char text[SETTING_TEXT_SIZE])
{
    const bool has_range = row->kind <= SETTING_REALS && row->kind != SETTING_SEED;
    char range[SETTING_TEXT_SIZE];
    text_buffer t = text_in(text, SETTING_TEXT_SIZE);
    if (has_range) text_put(&t, setting_expected(row, range));
    if (row->initial) text_add(&t, "%sdefault: %s", has_range ? "; " : "", row->initial);
    return text;
}

/* ---- reading --------------------------------------------------------------------------------- */

void settings_defaults(const setting *rows, size_t count, void *into)
{
    for (size_t i = 0; i < count; i++)
        if (rows[i].initial) (void)store(&rows[i], rows[i].initial, (char *)into + rows[i].at);
}

static ampc_status refuse(const settings *s, const char *message, diag *d)
{
    const bool quotes = s->text != NULL;
    if (s->line.file) return diag_error(d, s->line.line ? AMPC_REJECTED : AMPC_USAGE, s->line, "%s", message);
    if (s->option) return diag_error(d, AMPC_USAGE, diag_about(DIAG_NOWHERE, s->option), "%s", message);
    return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "%s%s%s%s: %s", s->what, quotes ? " '" : "", quotes ? s->text : "",
                      quotes ? "'" : "", message);
}

enum { MESSAGE = 1024 };

static ampc_status refuse_key(const settings *s, const char *key, diag *d)
{
    char known[MESSAGE] = "", message[MESSAGE];
    suggestion near = suggest_for(key);
    text_buffer k = TEXT_IN(known), t = TEXT_IN(message);
    for (size_t i = 0; i < s->count; i++) {
        if (!accepts(s, &s->rows[i])) continue;
        text_add_item(&k, " ", s->rows[i].key);
        suggest_candidate(&near, s->rows[i].key);
    }
    text_add(&t, "unknown key '%s'%s%s: expected ", key, s->of ? " of " : "", s->of ? s->of : "");
    add_words(&t, known, " ");
    if (near.best) text_add(&t, "; did you mean %s?", near.best);
    return refuse(s, message, d);
}

ampc_status settings_key(const settings *s, const char *key, diag *d, const setting **row)
{
    *row = settings_find(s, key);
    return *row ? AMPC_OK : refuse_key(s, key, d);
}

ampc_status settings_value(const settings *s, const setting *row, const char *value, void *member, diag *d)
{
    char message[MESSAGE], expected[SETTING_TEXT_SIZE];
    text_buffer t = TEXT_IN(message);
    if (value && *value && store(row, value, member)) return AMPC_OK;
    setting_expected(row, expected);
    if (!value || !*value) text_add(&t, "%s needs a value: %s", row->key, expected);
    else text_add(&t, "%s must be %s, not '%s'", row->key, expected, value);
    return refuse(s, message, d);
}

ampc_status settings_set(settings *s, char *item, void *into, diag *d)
{
    char message[MESSAGE];
    char *value = strchr(item, '=');
    if (value) *value++ = 0;
    if (!*item) return refuse(s, value ? "a key is missing before '='" : "a key is missing at a comma", d);
    const setting *row;
    TRY(settings_key(s, item, d, &row));
    const uint64_t bit = UINT64_C(1) << (row - s->rows);
    text_buffer t = TEXT_IN(message);
    if (s->given & bit) text_add(&t, "%s is given twice", item);
    else if (row->kind == SETTING_FLAG && value) text_add(&t, "%s has no value", item);
    if (t.length) return refuse(s, message, d);
    s->given |= bit;
    void *member = (char *)into + row->at;
    if (row->kind != SETTING_FLAG) return settings_value(s, row, value, member, d);
    *(bool *)member = true;
    return AMPC_OK;
}

ampc_status settings_read(settings *s, char *text, void *into, diag *d)
{
    for (char *item; (item = strsep(&text, ","));) TRY(settings_set(s, item, into, d));
    return AMPC_OK;
}

ampc_status settings_unknown(option_id option, const char *what, const char *name, const char *(*names)(int index),
                             const char *hint, diag *d)
{
    char known[MESSAGE];
    suggestion near = suggest_for(name);
    text_buffer t = TEXT_IN(known);
    for (int i = 0; names(i); i++) {
        if (i) text_put(&t, names(i + 1) ? ", " : " or ");
        text_put(&t, names(i));
        suggest_candidate(&near, names(i));
    }
    if (!hint && near.best) text_add(&t, "; did you mean %s?", near.best);
    return diag_error(d, AMPC_USAGE, diag_about(DIAG_NOWHERE, option), "unknown %s '%s': expected %s%s%s", what, name,
                      known, hint ? "; here it is " : "", hint ? hint : "");
}
