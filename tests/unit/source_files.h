/* source_files.h - writes the files of test_sources.c: 24 samples with features (i / 100, i % 2 ? 1 : -1, 1/2) and label i % 2,
 * and text of which each byte follows from the one before. Header only. */
#ifndef TESTS_SOURCE_FILES_H
#define TESTS_SOURCE_FILES_H

#include "runtime/data/npz.h"
#include "tests/data.h"
#include "tests/unit/scratch.h"

#include <math.h>

enum { SAMPLES = 24, TEXT = 200 };

static inline void write_nothing(scratch *t) { (void)t; }
static inline void no_damage(scratch *t) { (void)t; }
static inline void write_empty(scratch *t) { scratch_write(t, "empty", "", 0); }

/* ---- arrays ---- */

static inline void write_arrays_with(scratch *t, bool npz, int huge)
{
    float x[SAMPLES][3];
    int64_t y[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        x[i][0] = (float)i / 100;
        x[i][1] = i % 2 ? 1 : -1;
        x[i][2] = 0.5f;
        y[i] = i % 2;
    }
    if (huge >= 0) x[huge][0] = INFINITY;
    const rt_array a[2] = {
        {.name = (char[]){"x"}, .dtype = IR_f32, .rank = 2, .dims = {SAMPLES, 3}, .bytes = sizeof x, .data = x},
        {.name = (char[]){"label"}, .dtype = IR_i64, .rank = 1, .dims = {SAMPLES}, .bytes = sizeof y, .data = y}};
    if (npz) {
        assert_int_equal(rt_npz_write(scratch_path(t, "d.npz"), a, 2, t->d), AMPC_OK);
        return;
    }
    assert_int_equal(npy_write(scratch_path(t, "x.npy"), &a[0], t->d), AMPC_OK);
    assert_int_equal(npy_write(scratch_path(t, "y.npy"), &a[1], t->d), AMPC_OK);
}

static inline void write_arrays(scratch *t, bool npz) { write_arrays_with(t, npz, -1); }
static inline void write_npz_huge(scratch *t) { write_arrays_with(t, true, 9); }
static inline void write_npz(scratch *t) { write_arrays(t, true); }
static inline void write_npy(scratch *t) { write_arrays(t, false); }

static inline void write_npz_cut(scratch *t)
{
    write_npz(t);
    assert_int_equal(truncate(scratch_path(t, "d.npz"), 300), 0);
}

/* ---- CSV ---- */

/* One line per sample in this format, with its number, its second feature, and the text of its label. */
static inline void write_lines(scratch *t, const char *header, const char *format, const char *even, const char *odd)
{
    FILE *f = fopen(scratch_path(t, "d.csv"), "w");
    assert_non_null(f);
    fputs(header, f);
    for (int i = 0; i < SAMPLES; i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        fprintf(f, format, i, i % 2 ? "1" : "-1", i % 2 ? odd : even);
#pragma GCC diagnostic pop
    }
    assert_int_equal(fclose(f), 0);
}

static inline void write_csv(scratch *t) { write_lines(t, "a,b,c,label\n", "0.%02d,%s,0.5,%s\n", "0", "1"); }

/* With a mark of the encoding, quotes, spaces, ends of lines as on Windows, and a column that is not used. */
static inline void write_wide_csv(scratch *t)
{
    write_lines(t, "\xef\xbb\xbf\"a\"; name;b;c;kind\r\n", "0.%02d;\"x\ny; \"\"z\"\"\"; %s ;5e-1;%s\r\n", "cat", "dog");
}

static inline void write_bare_csv(scratch *t) { write_lines(t, "", "0.%02d\t%s\t.5\t%s\n\n", "0", "1"); }

static inline void write_categories(scratch *t) { write_lines(t, "a,b,label\n", "0.%02d,color%s,%s\n", "cat", "dog"); }

/* Missing values in several spellings: in every eighth line of a and c, and in a column of texts. */
static inline void write_missing(scratch *t)
{
    static const char *const words[] = {"", "NA", "nan", "?", "N/A", "NULL"};
    FILE *f = fopen(scratch_path(t, "d.csv"), "w");
    fputs("a,b,c,kind,label\n", f);
    for (int i = 0; i < SAMPLES; i++) {
        const char *word = words[i % 6];
        if (i % 8 == 3) fprintf(f, "%s,%d,0.5,red,%d\n", word, i % 2 ? 1 : -1, i % 2);
        else if (i % 8 == 4) fprintf(f, "0.%02d,%d,%s,,%d\n", i, i % 2 ? 1 : -1, word, i % 2);
        else fprintf(f, "0.%02d,%d,0.5,blue,%d\n", i, i % 2 ? 1 : -1, i % 2);
    }
    assert_int_equal(fclose(f), 0);
}

/* Line 4 has a missing value, line 17 one that f32 does not have. */
static inline void write_csv_huge(scratch *t)
{
    FILE *f = fopen(scratch_path(t, "d.csv"), "w");
    fputs("a,b,c,label\n", f);
    for (int i = 0; i < SAMPLES; i++)
        fprintf(f, "%s,%d,0.5,%d\n", i == 2 ? "" : i == 15 ? "1e39" : "0.1", i % 2 ? 1 : -1, i % 2);
    assert_int_equal(fclose(f), 0);
}

static inline void write_csv_text(scratch *t, const char *text) { scratch_write(t, "d.csv", text, strlen(text)); }

/* ---- text and tokens ---- */

static inline int byte_of_text(int i) { return "abcdefgh"[i % 8]; }

static inline void write_text(scratch *t)
{
    char text[TEXT];
    for (int i = 0; i < TEXT; i++) text[i] = (char)byte_of_text(i);
    scratch_write(t, "d.txt", text, sizeof text);
}

static inline void cut_text(scratch *t) { assert_int_equal(truncate(scratch_path(t, "d.txt"), TEXT / 2), 0); }

static inline void write_tokens(scratch *t)
{
    uint16_t small[TEXT + 1];
    uint32_t large[TEXT];
    for (int i = 0; i < TEXT; i++) small[i] = (uint16_t)(large[i] = (uint32_t)byte_of_text(i));
    small[TEXT] = 0;
    scratch_write(t, "d.u16", small, sizeof small - 2);
    scratch_write(t, "cut.u16", small, sizeof small - 1);
    scratch_write(t, "d.u32", large, sizeof large);
    small[20] = 999;
    scratch_write(t, "large.u16", small, sizeof small - 2);
}

#endif
