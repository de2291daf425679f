/* links.c - reads descriptions of links, and predicts the time of a reduction; docs/distributed.md has the formula. */
#include "passes/train/links.h"

#include "ir/base/input_file.h"
#include "ir/ops/number.h"
#include "ir/ops/settings.h"

#include <stdlib.h>
#include <string.h>

/* ---- the file ---------------------------------------------------------------------------------- */

enum { LONGEST = 1 << 20 };

/* What the keys set; links and switch are read from their words afterwards. */
typedef struct described {
    int64_t host;
    const char *inside, *between;
    int overlap;
    double seconds[IR_PHASE_COUNT];
} described;

static const setting keys[] = {
    SETTING_FROM(described, "host", host, COUNT, "8", "ranks of a host", 1, 65536),
    {.key = "inside", .at = offsetof(described, inside), .kind = SETTING_TEXT, .initial = "200 GB/s 5 us"},
    {.key = "between", .at = offsetof(described, between), .kind = SETTING_TEXT, .initial = "25 GB/s 10 us"},
    SETTING_WORDS_FROM(described, "overlap", overlap, "no|yes", "yes", "whether reductions run during the backward"),
    SETTING(described, "forward", seconds[IR_FORWARD], REAL, "seconds of one rank", 0, 1e6),
    SETTING(described, "backward", seconds[IR_BACKWARD], REAL, "seconds of one rank", 0, 1e6),
    SETTING(described, "update", seconds[IR_UPDATE], REAL, "seconds of one rank", 0, 1e6),
};
enum { KEYS = sizeof keys / sizeof *keys };

typedef struct unit {
    const char *name;
    double factor;
} unit;

static const unit speeds[] = {{"MB/s", 1e6},       {"GB/s", 1e9},        {"TB/s", 1e12}, {"Mbit/s", 1e6 / 8},
                              {"Gbit/s", 1e9 / 8}, {"Tbit/s", 1e12 / 8}, {NULL, 0}};
static const unit times[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {NULL, 0}};

static char *trim(char *text)
{
    text += strspn(text, " \t\r");
    size_t n = strlen(text);
    while (n && strchr(" \t\r", text[n - 1])) text[--n] = '\0';
    return text;
}

/* Reads "NUMBER UNIT" from the start of the text. */
static bool read_quantity(const char **text, const unit *units, double *out)
{
    char number[32], name[16];
    const size_t n = strspn(*text, "0123456789.e+-"), blanks = strspn(*text + n, " \t");
    const char *at = *text + n + blanks;
    const size_t length = strcspn(at, " \t");
    if (n >= sizeof number || length >= sizeof name) return false;
    memcpy(number, *text, n);
    memcpy(name, at, length);
    number[n] = name[length] = '\0';
    while (units->name && strcmp(units->name, name) != 0) units++;
    if (!units->name || !ir_float_parse(number, out) || !(*out >= 0 && *out <= 1e9)) return false;
    *out *= units->factor;
    *text = at + length + strspn(at + length, " \t");
    return true;
}

static bool read_link(const char *text, link_speed *out)
{
    link_speed l;
    if (!read_quantity(&text, speeds, &l.bandwidth) || l.bandwidth <= 0) return false;
    if (!read_quantity(&text, times, &l.latency) || *text) return false;
    *out = l;
    return true;
}

static ampc_status use_link(const char *key, const char *text, diag_loc loc, diag *d, link_speed *out)
{
    if (read_link(text, out)) return AMPC_OK;
    return diag_error(d, AMPC_REJECTED, loc,
                      "%s must be a bandwidth and a latency, such as '450 GB/s 5 us', not '%s': units are MB/s, GB/s, "
                      "TB/s, Mbit/s, Gbit/s, Tbit/s, ns, us, ms and s",
                      key, text);
}

/* Stores what has been read; texts are only valid now. */
static ampc_status use(const described *r, diag_loc loc, diag *d, link_model *l)
{
    l->host = r->host;
    l->overlap = r->overlap;
    memcpy(l->seconds, r->seconds, sizeof l->seconds);
    if (r->inside) TRY(use_link("inside", r->inside, loc, d, &l->inside));
    return r->between ? use_link("between", r->between, loc, d, &l->between) : AMPC_OK;
}

static ampc_status read_line(settings *s, char *line, described *r, diag *d, link_model *l)
{
    line[strcspn(line, "#")] = '\0';
    char *item = trim(line), *equals = strchr(item, '=');
    if (!*item) return AMPC_OK;
    if (!equals) return diag_error(d, AMPC_REJECTED, s->line, "expected 'KEY = VALUE', found '%s'", item);
    char *value = trim(equals + 1);
    *equals = '\0';
    const char *key = trim(item);
    const size_t length = strlen(key), size = length + strlen(value) + 2;
    char *joined = malloc(size);
    if (!joined) return diag_error(d, AMPC_NO_MEMORY, s->line, "out of memory");
    memcpy(joined, key, length);
    joined[length] = '=';
    memcpy(joined + length + 1, value, strlen(value) + 1);
    r->inside = r->between = NULL;
    ampc_status status = settings_set(s, joined, r, d);
    if (status == AMPC_OK) status = use(r, s->line, d, l);
    free(joined);
    return status;
}

ampc_status links_load(const char *path, diag *d, link_model *out)
{
    char *text, *rest, *line;
    size_t length;
    described r = {0};
    settings_defaults(keys, KEYS, &r);
    TRY(use(&r, DIAG_NOWHERE, d, out));
    if (!path) return AMPC_OK;
    TRY(input_read(path, LONGEST, "not a description of links: 1 MiB or more", d, &text, &length));
    settings s = {.rows = keys, .count = KEYS, .of = "a description of links"};
    ampc_status status = AMPC_OK;
    rest = text;
    for (int number = 1; (line = strsep(&rest, "\n")); number++) {
        s.line = (diag_loc){.file = path, .line = number, .column = 1};
        const ampc_status read = read_line(&s, line, &r, d, out);
        if (status == AMPC_OK) status = read;
    }
    free(text);
    return status;
}

/* ---- the formula ------------------------------------------------------------------------------- */

int64_t links_hosts(const link_model *l, int64_t ranks) { return (ranks + l->host - 1) / l->host; }

double links_sent(int64_t ranks, double bytes) { return 2 * bytes * (double)(ranks - 1) / (double)ranks; }

static int levels(int64_t members)
{
    int n = 0;
    while (((int64_t)1 << n) < members) n++;
    return n;
}

/* One link: the ring moves fewer bytes, the tree sends fewer messages one after the other. */
static double reduce(const link_speed *l, int64_t members, double bytes)
{
    if (members <= 1) return 0;
    const double ring = links_sent(members, bytes) / l->bandwidth + 2 * (double)(members - 1) * l->latency;
    const double tree = 2 * bytes / l->bandwidth + 2 * levels(members) * l->latency;
    return ring < tree ? ring : tree;
}

double links_all_reduce(const link_model *l, int64_t ranks, double bytes)
{
    const int64_t inside = ranks < l->host ? ranks : l->host;
    return reduce(&l->inside, inside, bytes) + reduce(&l->between, links_hosts(l, ranks), bytes);
}
