/* The reader of KEY=VALUE,.. by a table, and the tables of all options. */
#include "ir/ops/settings.h"
#include "passes/passes.h"
#include "passes/train/loss.h"
#include "runtime/data/data_spec.h"
#include "runtime/data/kinds.h"
#include "runtime/train/monitor.h"
#include "runtime/train/schedule.h"
#include "tests/unit/scratch.h"

typedef struct values {
    double real, whole;
    int64_t count, size[2];
    uint64_t seed;
    const char *reals, *text;
    int word;
    bool flag;
} values;

static const setting keys[] = {
    SETTING(values, "real", real, REAL, "a", SETTING_ABOVE_0, SETTING_BELOW_1),
    SETTING(values, "whole", whole, WHOLE, "b", -5, 5),
    SETTING(values, "count", count, COUNT, "c", 0, 9),
    SETTING_OTHER(values, "seed", seed, SEED, "d"),
    SETTING(values, "reals", reals, REALS, "e", 0, 1),
    SETTING_OTHER(values, "size", size, SIZE, "f"),
    SETTING_WORDS(values, "word", word, "no|yes", "g"),
    SETTING_OTHER(values, "text", text, TEXT, "h"),
    SETTING_OTHER(values, "flag", flag, FLAG, "i"),
};

/* The message; NULL: the text is read. */
static const struct row {
    const char *text, *message;
} rows[] = {
    {"real=0.5,whole=-5,count=9,seed=18446744073709551615,reals=0/.5/1,size=3x4,word=yes,text=a=b,flag", NULL},
    {"", "a key is missing at a comma"},
    {"flag,", "a key is missing at a comma"},
    {",flag", "a key is missing at a comma"},
    {"=1", "a key is missing before '='"},
    {"wrod=no",
     "unknown key 'wrod' of kind: expected real, whole, count, seed, reals, size, word, text or flag; did you "
     "mean word?"},
    {"flag=1", "flag has no value"},
    {"flag,flag", "flag is given twice"},
    {"real", "real needs a value: a number above 0 and below 1"},
    {"real=", "real needs a value: a number above 0 and below 1"},
    {"real=0", "real must be a number above 0 and below 1, not '0'"},
    {"real=1", "not '1'"},
    {"real=nan", "not 'nan'"},
    {"real= 0.5", "not ' 0.5'"},
    {"whole=0.5", "whole must be an integer from -5 to 5, not '0.5'"},
    {"whole=6", "not '6'"},
    {"count=1.0", "count must be an integer from 0 to 9, not '1.0'"},
    {"count=-1", "not '-1'"},
    {"seed=18446744073709551616", "seed must be an integer from 0 to 18446744073709551615"},
    {"seed=-1", "not '-1'"},
    {"reals=0//1", "reals must be a number from 0 to 1, or several as A/B/.., not '0//1'"},
    {"reals=0/2", "not '0/2'"},
    {"size=3", "size must be HEIGHTxWIDTH, not '3'"},
    {"size=0x4", "not '0x4'"},
    {"word=y", "word must be no or yes, not 'y'"},
    {"text=", "text needs a value: a text"},
};

TEST_SCRATCH(test_reading)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        values v = {0};
        settings s = {.what = "it", .rows = keys, .count = sizeof keys / sizeof *keys, .of = "kind"};
        char *text = strdup(rows[i].text);
        assert_int_equal(settings_read(&s, text, &v, t->d), rows[i].message ? AMPC_USAGE : AMPC_OK);
        if (rows[i].message) scratch_expect(t, rows[i].message);
        else {
            double numbers[3];
            assert_true(v.real == 0.5 && v.whole == -5 && v.count == 9 && v.seed == UINT64_MAX && v.word == 1 &&
                        v.flag);
            assert_true(v.size[0] == 3 && v.size[1] == 4);
            assert_string_equal(v.text, "a=b");
            assert_int_equal(settings_numbers(v.reals, numbers, 3), 3);
            assert_true(numbers[0] == 0 && numbers[1] == 0.5 && numbers[2] == 1);
        }
        free(text);
    }
}

/* The line of a file; a count that may be a word; what is printed is read again. */
TEST_SCRATCH(test_values)
{
    static const setting count = {"count", offsetof(values, count), SETTING_COUNT, 1, DBL_MAX, "off", NULL, NULL};
    const settings s = {.line = {.file = "f", .line = 3}};
    values v = {.real = 0.1, .word = 1, .text = "t"};
    char text[SETTING_TEXT_SIZE];
    assert_int_equal(settings_value(&s, &count, "0", &v.count, t->d), AMPC_REJECTED);
    scratch_expect(t, "count must be an integer of at least 1 or off, not '0'");
    v.count = 5;
    assert_string_equal(setting_print(&count, &v, text), "5");
    assert_int_equal(settings_value(&s, &count, "off", &v.count, t->d), AMPC_OK);
    assert_int_equal(v.count, 0);
    assert_string_equal(setting_print(&count, &v, text), "off");
    assert_string_equal(setting_print(&keys[0], &v, text), "0.10000000000000001");
    assert_string_equal(setting_print(&keys[6], &v, text), "yes");
    assert_string_equal(setting_print(&keys[7], &v, text), "t");
}

static void check_keys(const char *names, const setting *(*keys_of)(int))
{
    char *list = strdup(names), *rest = list;
    for (char *key; *list && (key = strsep(&rest, " "));) {
        int k = 0;
        while (keys_of(k) && strcmp(keys_of(k)->key, key) != 0) k++;
        if (!keys_of(k)) fail_msg("no table has key '%s'", key);
    }
    free(list);
}

/* Every row has what help needs, and keys are found. */
TEST_SCRATCH(test_tables)
{
    static const setting *(*const tables[])(int) = {
        pass_loss_key,   pass_optimizer_key, pass_group_key, pass_penalty_key,    pass_normalize_key,
        rt_schedule_key, rt_data_key,        rt_monitor_key, rt_monitor_stop_key,
    };
    const settings s = {.what = "table"};
    int64_t member[2];
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        int n = 0;
        for (const setting *row; (row = tables[i](n)); n++) {
            char text[SETTING_TEXT_SIZE];
            assert_true(*row->help && strlen(setting_expected(row, text)) < SETTING_TEXT_SIZE - 1);
            assert_true(row->kind != SETTING_WORD || *row->words);
            if (row->initial) assert_int_equal(settings_value(&s, row, row->initial, &member, t->d), AMPC_OK);
            for (int k = 0; k < n; k++) assert_string_not_equal(row->key, tables[i](k)->key);
        }
        assert_true(n > 0 && n <= 64);
    }
}

/* The keys that a kind names exist. */
TEST_SCRATCH(test_kinds)
{
    for (int i = 0; i < loss_kind_count; i++) check_keys(loss_kinds[i].keys, pass_loss_key);
    for (int i = 0; rt_kinds_keys(i); i++) check_keys(rt_kinds_keys(i), rt_data_key);
    for (int i = 0; rt_schedule_keys(i); i++) check_keys(rt_schedule_keys(i), rt_schedule_key);
}
