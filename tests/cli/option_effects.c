/* option_effects.c - tries every option with every command and kind of output, in one process, and observes its effect.
 *
 * usage: option_effects TABLE [--update | OPTION]
 *
 * Runs in a folder with the inputs that tests/cli/run-options makes. TABLE has a row per option: its name, a value ('-':
 * none), further options that both runs get ('-': none; '@MODEL' is another model), a cell per column, and a reason:
 *     +  accepted: standard output, the files in out/ or the exit status differ from those of the command without the option
 *     ~  accepted: only what is printed to standard error differs
 *     =  accepted without a difference that is cheap to observe, for the reason at the end of the row
 *     x  the command fails for another reason, and not without the option
 *     .  refused with exit status 2
 * Every cell is compared with what is observed; --update writes what is observed. An option whose row in
 * ir/base/options.def names options that it needs is also tried without them, and must be refused.
 *
 * Help, manual pages and completion are also searched for what tables have, such as the kinds of losses. */
#include "ir/ops/settings.h"
#include "runtime/data/kinds.h"
#include "runtime/train/metrics.h"
#include "runtime/train/schedule.h"
#include "tools/help.h"
#include "tools/options.h"
#include "tools/tool.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The simplest form of each command; M is the model. */
typedef struct column {
    const char *name, *line;
} column;
static const column columns[] = {
    {"ampc", "ampc M --loss=ce:s --dump-after=all --dump-dir=out/dumps"},
    {"ampc-", "ampc M --loss=ce:s --weights=reference -o -"},
    {"ampc.ir", "ampc M --loss=ce:s -o out/m.ir"},
    {"ampc.onnx", "ampc M -o out/m.onnx"},
    {"ampc.dot", "ampc M -o out/m.dot"},
    {"ampc.json", "ampc M -o out/m.json"},
    {"ampc.step", "ampc M --loss=ce:s --emit=onnx-train -o out/m.onnx"},
    {"opt", "ampc-opt F --pass=PASSES --loss=ce:s"},
    {"opt.ir", "ampc-opt F --pass=PASSES --loss=ce:s -o out/m.ir"},
    {"infer", "ampc-run infer M --inputs=batch.npz"},
    {"infer.npz", "ampc-run infer M --inputs=batch.npz -o out/r.npz"},
    {"grad", "ampc-run grad M --loss=ce:s --inputs=batch.npz"},
    {"grad.st", "ampc-run grad M --loss=ce:s --inputs=batch.npz -o out/r.safetensors"},
    {"train", "ampc-run train M --loss=ce:s --data=npz:data.npz --batch=8 --steps=2 --log=out/log"},
    {"lr-find", "ampc-run lr-find M --loss=ce:s --data=npz:data.npz --batch=8 --steps=6 --json --plot=out/rates"},
    {"eval", "ampc-run eval M --loss=ce:s --data=npz:data.npz --batch=8 --json"},
    {"predict.npz", "ampc-run predict M --data=npz:data.npz --batch=8 -o out/r.npz"},
    {"predict.csv", "ampc-run predict M --data=npz:data.npz --batch=8 -o out/r.csv"},
    {"bench", "ampc-run bench M --loss=ce:s --batch=8 --iterations=1 --warmup=0 --trace=out/trace"},
    {"plan", "ampc-run plan M --loss=ce:s --batch=8"},
    {"info", "ampc-run info M --loss=ce:s --batch=8"},
    {"check", "ampc-run check M --loss=ce:s --data=npz:data.npz --batch=8 --entry=grad --nan-inf=all"},
    {"compare", "ampc-run compare M --loss=ce:s --data=npz:data.npz --batch=8 --entry=grad --csv=out/base.csv"},
    {"calibrate", "ampc-run calibrate M --loss=ce:s --data=npz:data.npz --batch=8 -o out/c.amplist"},
    {"tune", "ampc-run tune M --data=npz:data.npz --batch=8 --budget=error<=0.01 --json"},
    {"export.onnx", "ampc-run export M --checkpoint=CK -o out/e.onnx"},
    {"export.st", "ampc-run export M --checkpoint=CK -o out/e.safetensors"},
    {"run.ir", "ampc-run infer below/tiny.ir --inputs=batch.npz"},
};
enum { COLUMNS = sizeof columns / sizeof *columns, WORDS = 40, TEXT = 1 << 20 };

typedef struct row {
    char name[40], value[80], more[160], cells[COLUMNS + 1], reason[200];
} row;

static int failed, passed;

static void fail(const char *name, const char *where, const char *what)
{
    failed++;
    printf("FAIL --%s, %s: %s\n", name, where, what);
}

/* ---- command lines --------------------------------------------------------------------------------- */

typedef struct line {
    char *word[WORDS];
    int n;
} line;

static void add(line *l, const char *text, size_t n)
{
    if (l->n == WORDS - 1) abort();
    l->word[l->n++] = strndup(text, n);
}

static void add_words(line *l, const char *text)
{
    for (size_t n; *text; text += n + (text[n] == ' ')) {
        n = strcspn(text, " ");
        add(l, text, n);
    }
}

static void clear(line *l)
{
    while (l->n) free(l->word[--l->n]);
}

static bool is_use(const char *word, const char *of)
{
    const size_t n = strlen(of);
    if (strcmp(of, "output") == 0 && strcmp(word, "-o") == 0) return true;
    return strncmp(word, "--", 2) == 0 && strncmp(word + 2, of, n) == 0 && (!word[2 + n] || word[2 + n] == '=');
}

/* Removes uses of the option, with the value of -o. */
static void drop(line *l, const char *of)
{
    int kept = 0;
    for (int i = 0; i < l->n; i++) {
        const bool out = is_use(l->word[i], of), pair = out && strcmp(l->word[i], "-o") == 0;
        if (!out) {
            l->word[kept++] = l->word[i];
            continue;
        }
        free(l->word[i]);
        if (pair) free(l->word[++i]);
    }
    l->n = kept;
}

/* What else a command must not have when it is tried with the option. */
static const char *const conflicts[][2] = {
    {"input", "inputs"}, {"input", "data"},       {"inputs", "data"}, {"epochs", "steps"},     {"dim", "batch"},
    {"stats", "stats"},  {"loss-output", "loss"}, {"model", "loss"},  {"early-stop", "steps"},
};

static unsigned bits_of(const line *l)
{
    for (const program *p = program_table; p->name; p++)
        for (int i = 0; i < p->count && strcmp(p->name, l->word[0]) == 0; i++) {
            const char *verb = command_verb(&p->commands[i]);
            if (!verb || strcmp(verb, l->word[1]) == 0) return p->commands[i].bit;
        }
    return 0;
}

static const option *find(const char *name)
{
    for (const option *o = option_table; o->name; o++)
        if (strcmp(o->name, name) == 0) return o;
    return NULL;
}

static bool has(const line *l, const char *name)
{
    for (int i = 0; i < l->n; i++)
        if (is_use(l->word[i], name)) return true;
    return false;
}

/* Adds the words that are options of the command; '&' adds any. A loss replaces that of the command, if it has one. */
static void add_further(line *l, const char *text)
{
    const unsigned bits = bits_of(l);
    line further = {.n = 0};
    const bool trains = has(l, "loss");
    add_words(&further, text);
    if (strstr(text, "--loss")) drop(l, "loss");
    for (int i = 0; i < further.n; i++) {
        const char *word = further.word[i];
        char name[80] = "";
        sscanf(word, "--%79[^=]", name);
        const option *o = find(name);
        const bool loss = strncmp(name, "loss", 4) == 0 && strncmp(name, "loss-scale", 10) != 0;
        if (*word == '&') add_words(l, word + 1);
        else if (o && option_applies(o, bits) && (!loss || trains)) add_words(l, word);
    }
    clear(&further);
}

static const char *all_passes(void)
{
    static char text[600];
    strcpy(text, "--pass=");
    for (const pass_info *p = pass_table; p->name; p++) strcat(strcat(text, p->name), p[1].name ? "," : "");
    return text;
}

/* The command of the column without what the option sets, with the further options of the row. */
static line base_line(const column *c, const row *r)
{
    line l = {.n = 0};
    const bool other = r->more[0] == '@';
    char model[40] = "tiny.onnx", checkpoint[40] = "--checkpoint=ck", forward[40] = "forward/tiny.ir";
    if (other) {
        snprintf(model, sizeof model, "%.*s", (int)strcspn(r->more + 1, " "), r->more + 1);
        snprintf(checkpoint, sizeof checkpoint, "--checkpoint=%.*s", (int)strcspn(model, "."), model);
        snprintf(forward, sizeof forward, "forward/%.*s.ir", (int)strcspn(model, "."), model);
    }
    add_words(&l, c->line);
    for (int i = 0; i < l.n; i++) {
        const char *as = strcmp(l.word[i], "M") == 0                 ? model
                         : strcmp(l.word[i], "F") == 0               ? forward
                         : strcmp(l.word[i], "--checkpoint=CK") == 0 ? checkpoint
                         : strcmp(l.word[i], "--pass=PASSES") == 0   ? all_passes()
                                                                     : NULL;
        if (!as) continue;
        free(l.word[i]);
        l.word[i] = strdup(as);
    }
    drop(&l, r->name);
    for (size_t i = 0; i < sizeof conflicts / sizeof *conflicts; i++)
        if (strcmp(conflicts[i][0], r->name) == 0) drop(&l, conflicts[i][1]);
    const option *dtype = find("dtype");
    if (option_applies(dtype, bits_of(&l)) && strstr(c->line, " M") && !strstr(r->more, "--amp"))
        add_words(&l, "--dtype=fp16"); /* also on processors for which ampc-run chooses another one */
    const char *more = other ? r->more + 1 + strcspn(r->more + 1, " ") : r->more;
    while (*more == ' ') more++;
    if (strcmp(more, "-") != 0) add_further(&l, more);
    return l;
}

static void add_option(line *l, const row *r, const column *c)
{
    const char *out = strstr(c->line, "-o ");
    if (strcmp(r->name, "output") == 0) {
        if (out) add_words(l, out);
        else add_words(l, "-o out/x");
        return;
    }
    char text[200];
    snprintf(text, sizeof text, strcmp(r->value, "-") == 0 ? "--%s" : "--%s=%s", r->name, r->value);
    add_words(l, text);
}

/* ---- a run ----------------------------------------------------------------------------------------- */

typedef struct outcome {
    int status;
    char *text; /* standard output and the files, without times */
    size_t n;
    char *messages; /* standard error, likewise */
} outcome;

static void append_file(outcome *o, const char *path, const char *name)
{
    const int fd = open(path, O_RDONLY);
    char *to = o->text + o->n;
    const int head = sprintf(to, "\n== %s\n", name);
    const ssize_t n = fd < 0 ? 0 : read(fd, to + head, TEXT / 8);
    if (fd >= 0) close(fd);
    for (ssize_t i = 0; i < n; i++)
        if (!to[head + i]) to[head + i] = '\1';
    o->n += (size_t)head + (size_t)n;
    o->text[o->n] = '\0';
}

static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

/* Appends the files below out/, and removes them. */
static void take_files(outcome *o, const char *folder)
{
    struct dirent **entry;
    const int n = scandir(folder, &entry, NULL, by_name);
    for (int i = 0; i < n; i++) {
        char path[300];
        struct stat facts;
        snprintf(path, sizeof path, "%s/%s", folder, entry[i]->d_name);
        if (strspn(entry[i]->d_name, ".") < strlen(entry[i]->d_name) && lstat(path, &facts) == 0) {
            if (S_ISDIR(facts.st_mode)) take_files(o, path);
            else if (o->n < TEXT / 2) append_file(o, path, path);
            remove(path);
        }
        free(entry[i]);
    }
    if (n >= 0) free(entry);
}

/* Replaces times, and names that contain one, by '#'. */
static void normalize(char *text)
{
    static const char *const patterns[] = {
        "[^\n]*(matrix products in|computed in fp32)[^\n]*\n", /* on some processors: removed */
        " *[0-9.e+-]+ +(ms|s|samples/s|MiB|KiB)([^a-z]|$)",
        "\"([a-z_]*_)?(ms|seconds|samples_s|seconds_per_epoch|ts|dur|time|t)\": *[^,}]*",
        " *samples/s +[0-9][^\n]*",
        "[0-9.]+[kM]?/s",
        "[0-9]+:[0-9]+ left",
        "events.out[^ \n]*",
        "train/samples_s[^\n]*",
    };
    static regex_t compiled[sizeof patterns / sizeof *patterns];
    static bool ready;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        regmatch_t m;
        if (!ready && regcomp(&compiled[i], patterns[i], REG_EXTENDED) != 0) abort();
        for (char *at = text; regexec(&compiled[i], at, 1, &m, 0) == 0;) {
            at += m.rm_so;
            if (i > 0) *at++ = '#';
            const char *rest = at - (i > 0) + (m.rm_eo - m.rm_so);
            memmove(at, rest, strlen(rest) + 1);
        }
    }
    ready = true;
}

static void make_room(const line *l)
{
    mkdir("out", 0777);
    mkdir("out/dumps", 0777);
    if (has(l, "resume") && system("cp -r ck out/ck") != 0) abort();
}

static void redirect(int fd, const char *path)
{
    const int to = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
    if (to < 0 || dup2(to, fd) < 0) abort();
    close(to);
}

static outcome run(const line *l)
{
    outcome o = {.text = calloc(1, TEXT)}, messages = {.text = calloc(1, TEXT)};
    const int saved[2] = {dup(1), dup(2)};
    char *argv[WORDS];
    if (!o.text || !messages.text) abort();
    make_room(l);
    fflush(stdout);
    redirect(1, "printed");
    redirect(2, "messages");
    for (int i = 0; i <= l->n; i++) argv[i] = i < l->n ? l->word[i] : NULL;
    o.status = program_main(argv[0], l->n, argv);
    fflush(stdout);
    for (int i = 0; i < 2; i++) {
        dup2(saved[i], i + 1);
        close(saved[i]);
    }
    append_file(&o, "printed", "printed");
    append_file(&messages, "messages", "messages");
    take_files(&o, "out");
    normalize(o.text);
    normalize(messages.text);
    o.n = strlen(o.text);
    o.messages = messages.text;
    return o;
}

static void forget(outcome *o)
{
    free(o->text);
    free(o->messages);
}

/* The outcomes of commands without the option, which many rows share. */
static const outcome *run_base(const line *l)
{
    static struct {
        char key[1000];
        outcome o;
    } * known;
    static size_t count;
    char key[1000] = "";
    for (int i = 0; i < l->n; i++) strncat(strcat(key, " "), l->word[i], 200);
    for (size_t i = 0; i < count; i++)
        if (strcmp(known[i].key, key) == 0) return &known[i].o;
    known = realloc(known, (count + 1) * sizeof *known);
    if (!known) abort();
    strcpy(known[count].key, key);
    known[count].o = run(l);
    known[count].o.text = realloc(known[count].o.text, known[count].o.n + 1);
    known[count].o.messages = realloc(known[count].o.messages, strlen(known[count].o.messages) + 1);
    outcome again = run(l);
    if (strcmp(again.text, known[count].o.text) != 0 || strcmp(again.messages, known[count].o.messages) != 0) {
        fail("", key, "two runs of the command differ");
    }
    forget(&again);
    return &known[count++].o;
}

static void show(const outcome *o, const line *l)
{
    printf("   ");
    for (int i = 0; i < l->n; i++) printf(" %s", l->word[i]);
    printf("\n    exit status %d\n%.600s\n%.600s\n", o->status, o->text, o->messages);
}

static char try_cell(const column *c, const row *r)
{
    line l = base_line(c, r);
    char cell = '.';
    outcome with;
    line plain = base_line(c, r);
    add_option(&l, r, c);
    with = run(&l);
    const outcome *without = with.status == 2 ? NULL : run_base(&plain);
    if (with.status == 0) {
        cell = with.status != without->status || strcmp(with.text, without->text) != 0 ? '+'
               : strcmp(with.messages, without->messages) != 0                         ? '~'
                                                                                       : '=';
    } else if (with.status != 2) {
        cell = with.status != without->status ? 'x' : '!';
        if (cell == '!') fail(r->name, c->name, "the command fails");
        if (cell == '!') show(&with, &l);
    }
    if (strchr("=~", cell) && !r->reason[0]) {
        fail(r->name, c->name, "accepted, but without an effect");
        show(&with, &l);
    }
    forget(&with);
    clear(&l);
    clear(&plain);
    return cell;
}

/* ---- needs ----------------------------------------------------------------------------------------- */

/* Removes from the command what the option needs. */
static void remove_need(line *l, const char *what)
{
    char name[80];
    const char *differs = strstr(what, "!=");
    if (*what == '!') snprintf(name, sizeof name, "--%s", what + 1);
    else if (differs) snprintf(name, sizeof name, "--%.*s=%s", (int)(differs - what), what, differs + 2);
    else if (strcmp(what, "scaling") == 0) snprintf(name, sizeof name, "--loss-scale=off");
    else name[0] = '\0';
    if (name[0]) {
        add_words(l, name);
        return;
    }
    if (strcmp(what, "loss") == 0) drop(l, "loss-output");
    for (size_t n; *what; what += n + (what[n] == '|')) {
        n = strcspn(what, "|");
        snprintf(name, sizeof name, "%.*s", (int)strcspn(what, "|="), what);
        drop(l, name);
    }
}

/* The option must be refused where something that it needs is missing. */
static void try_needs(const column *c, const row *r)
{
    const option *o = find(r->name);
    for (size_t i = 0; i < sizeof o->needs / sizeof *o->needs && o->needs[i].what; i++) {
        const char *what = o->needs[i].what;
        line l = base_line(c, r);
        const bool of_module = strcmp(what, "loss") == 0 || strcmp(what, "scaling") == 0;
        const unsigned bits = bits_of(&l) & (of_module ? ~(unsigned)COMMAND_OPT : ~0u); /* which has parts of modules */
        const bool due = bits && (!o->needs[i].commands || (o->needs[i].commands & bits));
        const bool own_loss = r->more[0] == '@' && strncmp(r->more, "@frozen", 7) == 0 && strcmp(what, "loss") == 0;
        if (due && *what != '.' && !own_loss) {
            add_option(&l, r, c);
            remove_need(&l, what);
            outcome without = run(&l);
            if (without.status == 2) passed++;
            else {
                fail(r->name, c->name, "not refused although it needs what follows:");
                puts(what);
                show(&without, &l);
            }
            forget(&without);
        }
        clear(&l);
    }
}

/* ---- kinds ----------------------------------------------------------------------------------------- */

/* Tables, and the options and pages that must name all that they have. */
static const struct table {
    const char *option, *(*kind)(int index), *page;
} tables[] = {
    {"loss", pass_loss_name, "docs/training.md"},          {"optimizer", pass_optimizer_name, "docs/optimizers.md"},
    {"lr-schedule", rt_schedule_name, "docs/training.md"}, {"metric", rt_metric_listed, "docs/training.md"},
    {"metric", rt_metric_listed, "runtime/api/ampc.h"},    {"data", rt_kinds_text, "docs/data.md"},
};

/* Between which texts --help=FORM describes an option, without backslashes. */
static const struct form {
    const char *name, *begin, *end;
} forms[] = {
    {"all", "\n  --%s=", "\n  -"}, {"man", "fB--%sfP=", "\n.TP"}, {"bash", "--%s=)", "\n"}, {"zsh", "--%s=[", "\n"}};

/* What a command prints, without backslashes. */
static char *printed_by(const char *of, const char *form)
{
    line l = {.n = 0};
    char text[60], *to;
    snprintf(text, sizeof text, "%s --help=%s", of, form);
    add_words(&l, text);
    outcome o = run(&l);
    clear(&l);
    free(o.messages);
    to = o.text;
    for (const char *at = o.text; *at; at++)
        if (*at != '\\') *to++ = *at;
    *to = '\0';
    return o.text;
}

/* Whether the text has the kind, such as "idx:DIR" or "topK", as a word: idx, top5. */
static bool has_word(const char *text, const char *kind)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz_-0123456789";
    char word[40];
    snprintf(word, sizeof word, "%.*s", (int)strspn(kind, letters), kind);
    for (const char *at = text; (at = strstr(at, word)); at++) {
        const char *after = at + strlen(word);
        if ((at == text || !strchr(letters, at[-1])) && !islower((unsigned char)*after) &&
            !strchr("_-", *after ? *after : ' '))
            return true;
    }
    return false;
}

/* The kinds that the text lacks between `begin` and `end` fail. */
static void try_names(const struct table *table, const char *text, const char *begin, const char *end,
                      const char *where)
{
    const char *from = strstr(text, begin), *to = from ? strstr(from + strlen(begin), end) : NULL;
    char *part = from ? strndup(from, to ? (size_t)(to - from) : strlen(from)) : strdup("");
    for (int i = 0; table->kind(i); i++) {
        if (has_word(part, table->kind(i))) passed++;
        else fail(table->option, where, table->kind(i));
    }
    free(part);
}

/* The page of a table has the keys of its option, too. */
static void try_keys(const struct table *table, const char *page)
{
    const option *option_of = option_find(table->option, ~0u);
    const setting *key;
    for (int i = 0; option_of->keys && (key = option_of->keys(i)); i++) {
        if (has_word(page, key->key)) passed++;
        else fail(table->option, table->page, key->key);
    }
}

static void try_kinds(void)
{
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        char *text = printed_by("ampc-run train", forms[f].name), begin[40];
        for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
            snprintf(begin, sizeof begin, forms[f].begin, tables[i].option);
            try_names(&tables[i], text, begin, forms[f].end, forms[f].name);
        }
        free(text);
    }
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        outcome page = {.text = calloc(1, TEXT)};
        char path[200];
        snprintf(path, sizeof path, "%s/%s", AMPC_SOURCE_DIR, tables[i].page);
        append_file(&page, path, path);
        try_names(&tables[i], page.text, "", "\1", tables[i].page);
        try_keys(&tables[i], page.text);
        free(page.text);
    }
}

/* The page of a program names the suffixes of the files that each of its commands writes. */
static void try_suffixes(const program *p)
{
    char *text = printed_by(p->name, "man"), begin[40], suffix[20];
    for (int i = 0; i < p->count; i++) {
        const char *verb = command_verb(&p->commands[i]);
        snprintf(begin, sizeof begin, verb ? "\n.B %s " : "\n.SH DESCRIPTION", verb);
        const char *from = strstr(text, begin), *to = from ? strstr(from, verb ? "\n.TP" : "\n.SH OPTIONS") : NULL;
        for (const pass_word *w = output_kinds; w->word; w++) {
            if (!(p->commands[i].outputs & (unsigned)w->value)) continue;
            snprintf(suffix, sizeof suffix, ".%s", w->word);
            const char *at = from ? strstr(from, suffix) : NULL;
            if (at && to && at < to) passed++;
            else fail(p->commands[i].name, "the page lacks", suffix);
        }
    }
    free(text);
}

/* ---- the table ------------------------------------------------------------------------------------- */

static bool read_row(char *text, row *r)
{
    *r = (row){.name = ""};
    text[strcspn(text, "\n")] = '\0';
    if (!text[0] || text[0] == '#') return false;
    char *reason = strstr(text, "  # ");
    if (reason) {
        snprintf(r->reason, sizeof r->reason, "%s", reason + 4);
        *reason = '\0';
    }
    int used = 0;
    if (sscanf(text, "%39s %79s %40s %n", r->name, r->value, r->cells, &used) < 3) {
        fail(text, "table", "not a row");
        return false;
    }
    snprintf(r->more, sizeof r->more, "%s", text[used] ? text + used : "-");
    for (size_t n = strlen(r->more); n && r->more[n - 1] == ' ';) r->more[--n] = '\0';
    return true;
}

static void write_row(FILE *f, const row *r)
{
    char text[500];
    int n = snprintf(text, sizeof text, "%-23s %-22s %s  %s%s%s", r->name, r->value, r->cells,
                     strcmp(r->more, "-") == 0 ? "" : r->more, r->reason[0] ? "  # " : "", r->reason);
    while (n && text[n - 1] == ' ') text[--n] = '\0';
    fprintf(f, "%s\n", text);
}

int main(int argc, char **argv)
{
    enum { ROWS = 200 };
    static row rows[ROWS];
    static char comment[ROWS][600];
    int n = 0, comments = 0;
    char text[600];
    const bool update = argc > 2 && strcmp(argv[2], "--update") == 0;
    const char *only = argc > 2 && !update ? argv[2] : NULL;
    FILE *f = fopen(argv[1], "r");
    if (!f) return 1;
    while (fgets(text, sizeof text, f)) {
        if (text[0] == '#') snprintf(comment[comments++], sizeof *comment, "%s", text);
        n += read_row(text, &rows[n]);
    }
    fclose(f);
    for (const option *o = option_table; o->name; o++) {
        int i = 0;
        while (i < n && strcmp(rows[i].name, o->name) != 0) i++;
        if (i == n) fail(o->name, "table", "no row");
    }
    for (int i = 0; i < n; i++) {
        char cells[COLUMNS + 1] = "";
        if (!find(rows[i].name)) fail(rows[i].name, "table", "there is no such option");
        if (only && strcmp(only, rows[i].name) != 0) continue;
        for (int c = 0; c < COLUMNS; c++) {
            cells[c] = try_cell(&columns[c], &rows[i]);
            if (strchr("+~=", cells[c])) try_needs(&columns[c], &rows[i]);
        }
        if (!strpbrk(cells, "+~=")) fail(rows[i].name, "cells", "refused everywhere");
        if (strcmp(cells, rows[i].cells) == 0) passed++;
        else if (!update) {
            snprintf(text, sizeof text, "is %s, not %s as in the table", cells, rows[i].cells);
            fail(rows[i].name, "cells", text);
        }
        memcpy(rows[i].cells, cells, sizeof cells);
    }
    try_kinds();
    for (const program *p = program_table; p->name; p++) try_suffixes(p);
    if (update && (f = fopen(argv[1], "w"))) {
        for (int i = 0; i < comments; i++) fputs(comment[i], f);
        for (int i = 0; i < n; i++) write_row(f, &rows[i]);
        fclose(f);
    }
    printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    return failed > 0;
}
