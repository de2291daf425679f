/* test_svg.c - plots are well-formed XML for all data, and the step log tolerates truncated lines. */
#include "runtime/train/log.h"
#include "tools/svg_plot.h"
#include "tests/unit/scratch.h"

#include <math.h>

/* Tags balance, attributes are quoted, no bare '&', no control bytes, no malformed numbers. */
static void expect_well_formed(const char *s)
{
    int depth = 0;
    assert_null(strstr(s, "nan"));
    assert_null(strstr(s, "inf"));
    for (; *s; s++) {
        assert_true((unsigned char)*s >= 0x20 || *s == '\n');
        if (*s == '&') assert_non_null(memchr(s, ';', 7));
        if (*s != '<') continue;
        depth += s[1] == '/' ? -1 : 1;
        for (bool quoted = false; quoted || *s != '>'; s++) {
            assert_int_not_equal(*s, 0);
            if (*s == '"') quoted = !quoted;
            else if (!quoted && s[0] == '/' && s[1] == '>') depth--;
        }
        assert_true(depth >= 0);
    }
    assert_int_equal(depth, 0);
}

static rt_step_record *make_run(size_t n, double noise)
{
    rt_step_record *s = calloc(n + 1, sizeof *s);
    for (size_t i = 0; i < n; i++) {
        double jitter = noise * ((double)(i * 7919 % 1000) / 1000 - 0.5);
        s[i] = (rt_step_record){.step = i + 1,
                                .loss = 0.25 + 2 * exp(-(double)i / 150) + jitter,
                                .scale = i < 40      ? 65536
                                         : i < n / 2 ? 32768
                                                     : 65536,
                                .skipped = i >= 40,
                                .lr = 1e-3,
                                .grad_norm = NAN,
                                .t = (double)i};
    }
    return s;
}

static void render(const char *title, const plot_run *runs, size_t count)
{
    char *svg = plot_render(title, runs, count);
    assert_non_null(svg);
    expect_well_formed(svg);
    free(svg);
}

TEST(test_degenerate_data)
{
    rt_step_record odd[5] = {{.step = 3, .loss = NAN, .scale = 0},
                             {.step = 4, .loss = INFINITY, .scale = INFINITY},
                             {.step = 5, .loss = -1e300, .scale = 1e-320},
                             {.step = 6, .loss = 1e300, .scale = 65536},
                             {.step = UINT64_MAX, .loss = 0, .scale = NAN}};
    render("no runs", NULL, 0);
    render("empty run", &(plot_run){"r", NULL, 0}, 1);
    for (size_t n = 1; n <= 5; n++) render("odd", &(plot_run){"r", odd, n}, 1);
    for (size_t n = 0; n < 5; n++) render("one", &(plot_run){"r", odd + n, 1}, 1);
}

TEST(test_names_are_escaped)
{
    rt_step_record *s = make_run(3, 0);
    plot_run run = {"<a href=\"x\">&\x01\xff\xc3\xa4\xe2\x82", s, 3};
    render("</title><script>", &run, 1);
    char *svg = plot_render("t", &run, 1);
    assert_non_null(strstr(svg, "&lt;a href=&quot;x&quot;&gt;&amp;??\xc3\xa4??"));
    free(svg);
    free(s);
}

TEST_SCRATCH(test_long_runs_stay_small)
{
    size_t n, counts[3] = {200000, 4690, 60};
    plot_run runs[3];
    for (int i = 0; i < 3; i++) runs[i] = (plot_run){"run", make_run(counts[i], 0.3), counts[i]};
    assert_int_equal(plot_write(scratch_path(t, "p.svg"), "three runs", runs, 3, t->d), AMPC_OK);
    char *svg = scratch_read(t, "p.svg", &n);
    expect_well_formed(svg);
    assert_true(n < 200000);
    free(svg);
    for (int i = 0; i < 3; i++) free((void *)runs[i].steps);
}

TEST(test_no_scale_panel_without_scaling)
{
    rt_step_record s[2] = {{.step = 1, .loss = 2, .scale = 1}, {.step = 2, .loss = 1, .scale = 1}};
    char *svg = plot_render("fp32", &(plot_run){"fp32", s, 2}, 1);
    assert_null(strstr(svg, "loss scale"));
    free(svg);
}

/* ---- step log ---- */

static void write_log(scratch *t, uint64_t from, uint64_t to)
{
    const rt_log_field fields[] = {
        {"model", "m \"q\".ir", 0}, {"seed", NULL, 7}, {"lr", NULL, 0.5}, {"bad", NULL, NAN}};
    rt_log *log;
    assert_int_equal(rt_log_open(scratch_path(t, "log"), fields, 4, NULL, t->d, &log), AMPC_OK);
    for (uint64_t i = from; i <= to; i++)
        assert_int_equal(rt_log_step(log, &(rt_step_record){.step = i,
                                                            .loss = i == 2 ? NAN : 0.1 * (double)i,
                                                            .scale = 0x1p-149,
                                                            .skipped = i,
                                                            .lr = 1e-3}),
                         AMPC_OK);
    assert_int_equal(rt_log_close(log), AMPC_OK);
}

static void append(scratch *t, const char *text)
{
    FILE *f = fopen(scratch_path(t, "log"), "ab");
    fputs(text, f);
    fclose(f);
}

TEST_SCRATCH(test_log_round_trip)
{
    rt_step_record *s;
    size_t n;
    write_log(t, 1, 3);
    char *text = scratch_read(t, "log", &n);
    const char *start = "{\"run\":{\"model\":\"m \\\"q\\\".ir\",\"seed\":7,\"lr\":0.5,\"bad\":null}}\n"
                        "{\"step\":1,\"epoch\":0,\"loss\":0.1";
    assert_memory_equal(text, start, strlen(start));
    assert_non_null(strstr(text, "\"loss\":null"));
    free(text);
    assert_int_equal(rt_log_read(scratch_path(t, "log"), t->d, &s, &n), AMPC_OK);
    assert_int_equal(n, 3);
    assert_true(isnan(s[1].loss));
    assert_true(s[2].scale == 0x1p-149);
    assert_int_equal(s[2].skipped, 3);
    free(s);
}

TEST_SCRATCH(test_resumed_log_rewinds)
{
    rt_step_record *s;
    size_t n;
    write_log(t, 1, 7);
    append(t, "{\"step\":8,\"lo"); /* killed here */
    assert_int_equal(rt_log_read(scratch_path(t, "log"), t->d, &s, &n), AMPC_OK);
    assert_int_equal(n, 7);
    free(s);
    write_log(t, 5, 6);
    assert_int_equal(rt_log_read(scratch_path(t, "log"), t->d, &s, &n), AMPC_OK);
    assert_int_equal(n, 6);
    for (size_t i = 0; i < n; i++) assert_int_equal(s[i].step, i + 1);
    free(s);
}

TEST_SCRATCH(test_bad_logs)
{
    rt_step_record *s;
    size_t n;
    assert_int_equal(rt_log_read(scratch_path(t, "absent"), t->d, &s, &n), AMPC_IO);
    scratch_expect(t, "cannot open");
    write_log(t, 1, 2);
    append(t, "nonsense\n{\"step\":3}\n");
    assert_int_equal(rt_log_read(scratch_path(t, "log"), t->d, &s, &n), AMPC_REJECTED);
    scratch_expect(t, "log:4: error: not a line");
    scratch_write(t, "log", "\x89PNG", 4);
    assert_int_equal(rt_log_read(scratch_path(t, "log"), t->d, &s, &n), AMPC_REJECTED);
    scratch_expect(t, "not a step log");
}

TEST_SCRATCH(test_unwritable_log)
{
    rt_log *log;
    assert_int_equal(rt_log_open(t->folder, NULL, 0, NULL, t->d, &log), AMPC_IO);
    assert_int_equal(rt_log_open("/dev/full", NULL, 0, NULL, t->d, &log), AMPC_IO);
    assert_int_equal(rt_log_open("/dev/null", NULL, 0, NULL, t->d, &log), AMPC_OK);
    rt_log_close(log);
    rt_log_close(NULL);
}

/* ---- progress ---- */

TEST(test_progress_line)
{
    char line[400];
    rt_progress p = {
        .now = {.step = 412, .epoch = 2.3, .loss = 0.24171, .scale = 65536, .skipped = 2, .samples_s = 18432},
        .steps = 824,
        .epochs = 3,
        .seconds_left = 63};
    rt_progress_format(line, sizeof line, &p, RT_PROGRESS_LINE, 0);
    assert_string_equal(line, "epoch 3/3  412/824  loss 0.2417  scale 65536  skipped 2  18.4k/s  1:03 left");
    rt_progress_format(line, sizeof line, &p, RT_PROGRESS_BAR, 90);
    assert_string_equal(line, "epoch 3/3 [=====>     ] 412/824  loss 0.2417  scale 65536  skipped 2  "
                              "18.4k/s  1:03 left");
    for (size_t columns = 1; columns < 140; columns++)
        assert_true(rt_progress_format(line, sizeof line, &p, RT_PROGRESS_BAR, columns) <= (columns < 9 ? 9 : columns));
    for (size_t n = 0; n < 60; n++) rt_progress_format(line, n, &p, RT_PROGRESS_FINE, 100);
}
