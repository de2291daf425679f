/* image_files.h - writes the images of test_sources.c: 24 PNG files of 12x10 pixels, dark ones of class a and bright ones of
 * class b, in folders and in tar archives. Header only. */
#ifndef TESTS_IMAGE_FILES_H
#define TESTS_IMAGE_FILES_H

#include "tests/unit/source_files.h"

#include <archive.h>
#include <archive_entry.h>
#include <png.h>
#include <sys/stat.h>

enum { WIDTH = 12, HEIGHT = 10 };

/* The PNG file of image i; the caller frees it. */
static inline void *image_bytes(int i, size_t *n)
{
    uint8_t pixels[HEIGHT][WIDTH][3];
    png_image image = {.version = PNG_IMAGE_VERSION, .width = WIDTH, .height = HEIGHT, .format = PNG_FORMAT_RGB};
    for (int k = 0; k < HEIGHT * WIDTH * 3; k++)
        (&pixels[0][0][0])[k] = (uint8_t)((i % 2 ? 160 : 40) + (i * 7 + k * k) % 60);
    png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
    void *bytes = malloc(size);
    assert_true(png_image_write_to_memory(&image, bytes, &size, 0, pixels, 0, NULL));
    *n = size;
    return bytes;
}

static inline void make_folders(scratch *t)
{
    mkdir(scratch_path(t, "images"), 0777);
    mkdir(scratch_path(t, "images/a"), 0777);
    mkdir(scratch_path(t, "images/b"), 0777);
}

static inline void write_images(scratch *t)
{
    make_folders(t);
    for (int i = 0; i < SAMPLES; i++) {
        size_t n;
        char name[40];
        void *bytes = image_bytes(i, &n);
        snprintf(name, sizeof name, "images/%c/%02d.%s", "ab"[i % 2], i, i % 3 ? "png" : "PNG");
        scratch_write(t, name, bytes, n);
        free(bytes);
    }
}

static inline void write_flat_images(scratch *t)
{
    write_images(t);
    for (int i = 0; i < SAMPLES; i++) {
        char from[40], to[40];
        snprintf(from, sizeof from, "images/%c/%02d.%s", "ab"[i % 2], i, i % 3 ? "png" : "PNG");
        snprintf(to, sizeof to, "images/%02d", i);
        assert_int_equal(rename(scratch_path(t, from), scratch_path(t, to)), 0);
    }
    assert_int_equal(rmdir(scratch_path(t, "images/a")), 0);
    assert_int_equal(rmdir(scratch_path(t, "images/b")), 0);
}

/* Gray images of 8x8 pixels and their classes. */
static inline void write_idx(scratch *t)
{
    uint8_t images[16 + SAMPLES * 64] = {0, 0, 8, 3, 0, 0, 0, SAMPLES, 0, 0, 0, 8, 0, 0, 0, 8};
    uint8_t labels[8 + SAMPLES] = {0, 0, 8, 1, 0, 0, 0, SAMPLES};
    for (int i = 0; i < SAMPLES * 64; i++) images[16 + i] = (uint8_t)(i * 7 % 100);
    for (int i = 0; i < SAMPLES; i++) labels[8 + i] = (uint8_t)(i % 2);
    scratch_write(t, "train-images-idx3-ubyte", images, sizeof images);
    scratch_write(t, "train-labels-idx1-ubyte", labels, sizeof labels);
}

/* The images, and a table that lists them by paths relative to it. */
static inline void write_listed(scratch *t)
{
    write_images(t);
    FILE *f = fopen(scratch_path(t, "d.csv"), "w");
    fputs("file,label\n", f);
    for (int i = 0; i < SAMPLES; i++)
        fprintf(f, "images/%c/%02d.%s,%s\n", "ab"[i % 2], i, i % 3 ? "png" : "PNG", i % 2 ? "dog" : "cat");
    assert_int_equal(fclose(f), 0);
}

static inline void write_listed_nothing(scratch *t) { write_csv_text(t, "file,label\n\"\",1\n"); }
static inline void write_listed_missing(scratch *t) { write_csv_text(t, "file,label\nx.png,1\n?,0\n"); }

static inline void cut_image(scratch *t) { assert_int_equal(truncate(scratch_path(t, "images/b/05.png"), 100), 0); }
static inline void spoil_image(scratch *t) { scratch_write(t, "images/b/05.png", "no picture", 10); }
static inline void remove_image(scratch *t) { assert_int_equal(unlink(scratch_path(t, "images/b/05.png")), 0); }

static inline void write_empty_class(scratch *t)
{
    write_images(t);
    mkdir(scratch_path(t, "images/c"), 0777);
    scratch_write(t, "images/c/notes.txt", "x", 1);
}

/* Images with other names, and files of file managers and editors. */
static inline void write_other_files(scratch *t)
{
    write_images(t);
    assert_int_equal(rename(scratch_path(t, "images/b/05.png"), scratch_path(t, "images/b/05.bin")), 0);
    assert_int_equal(rename(scratch_path(t, "images/b/07.png"), scratch_path(t, "images/b/07")), 0);
    scratch_write(t, "images/a/Thumbs.db", "thumbnails", 10);
    scratch_write(t, "images/b/notes.txt", "x", 1);
    scratch_write(t, "images/b/empty", "", 0);
    scratch_write(t, "images/b/.DS_Store", "hidden", 6);
}

static inline void write_nested_folder(scratch *t)
{
    write_images(t);
    mkdir(scratch_path(t, "images/b/more"), 0777);
}

static inline void write_no_classes(scratch *t) { mkdir(scratch_path(t, "images"), 0777); }

/* The same classes in images/train; images/test has one that training does not know. */
static inline void write_unknown_class(scratch *t)
{
    write_images(t);
    mkdir(scratch_path(t, "parts"), 0777);
    mkdir(scratch_path(t, "parts/test"), 0777);
    mkdir(scratch_path(t, "parts/test/z"), 0777);
    assert_int_equal(rename(scratch_path(t, "images"), scratch_path(t, "parts/train")), 0);
}

/* ---- masks ---- */

/* Where pixel (x, y) of image i is bright, its class is 1. */
static inline int class_at(int i, int x, int y) { return ((x * 2 < WIDTH) + (y * 2 < HEIGHT) + i) % 2; }

static inline void write_png(scratch *t, const char *name, uint32_t format, const void *pixels, const void *palette)
{
    png_image image = {.version = PNG_IMAGE_VERSION, .width = WIDTH, .height = HEIGHT, .format = format};
    image.colormap_entries = palette ? 3 : 0;
    assert_true(png_image_write_to_file(&image, scratch_path(t, name), 0, pixels, 0, palette));
}

/* 24 images, the last ones in a subfolder, and their masks, of which every other one has a palette. The border of each mask
 * has the number `border`. */
static inline void write_masks_with(scratch *t, int border)
{
    static const uint8_t palette[3][3] = {{9, 9, 9}, {200, 0, 0}, {0, 0, 200}};
    static const char *const folders[] = {"images", "masks", "images/more", "masks/more"};
    for (int i = 0; i < 4; i++) mkdir(scratch_path(t, folders[i]), 0777);
    for (int i = 0; i < SAMPLES; i++) {
        uint8_t pixels[HEIGHT][WIDTH][3], mask[HEIGHT][WIDTH];
        char name[40];
        for (int k = 0; k < HEIGHT * WIDTH; k++) {
            const int x = k % WIDTH, y = k / WIDTH, number = class_at(i, x, y);
            memset(pixels[y][x], (number ? 160 : 40) + (i * 7 + k * k) % 60, 3);
            mask[y][x] = (uint8_t)(border >= 0 && (x == 0 || x == WIDTH - 1) ? border : number);
        }
        snprintf(name, sizeof name, "images/%s%02d.png", i < 20 ? "" : "more/", i);
        write_png(t, name, PNG_FORMAT_RGB, pixels, NULL);
        snprintf(name, sizeof name, "masks/%s%02d.PNG", i < 20 ? "" : "more/", i);
        const bool indexed = i % 2 && border < 3;
        write_png(t, name, indexed ? PNG_FORMAT_RGB_COLORMAP : PNG_FORMAT_GRAY, mask, indexed ? palette : NULL);
    }
}

static inline void write_masks(scratch *t) { write_masks_with(t, -1); }
static inline void write_ignored_masks(scratch *t) { write_masks_with(t, 255); }
static inline void write_high_masks(scratch *t) { write_masks_with(t, 2); }

static inline void write_listed_masks(scratch *t)
{
    write_masks(t);
    FILE *f = fopen(scratch_path(t, "d.csv"), "w");
    fputs("file,label,mask\n", f);
    for (int i = 0; i < 20; i++) fprintf(f, "images/%02d.png,%d,masks/%02d.PNG\n", i, i % 2, i);
    assert_int_equal(fclose(f), 0);
}

static inline void write_lost_mask(scratch *t)
{
    write_masks(t);
    assert_int_equal(unlink(scratch_path(t, "masks/more/21.PNG")), 0);
}

static inline void write_no_masks(scratch *t)
{
    write_images(t);
    mkdir(scratch_path(t, "masks"), 0777);
}

static inline void write_second_mask(scratch *t)
{
    write_masks(t);
    scratch_write(t, "masks/05.jpg", "x", 1);
}

static inline void spoil_mask(scratch *t) { scratch_write(t, "masks/05.PNG", "no picture", 10); }
static inline void cut_mask(scratch *t) { assert_int_equal(truncate(scratch_path(t, "masks/05.PNG"), 50), 0); }

static inline void colour_mask(scratch *t)
{
    static const uint8_t pixels[HEIGHT][WIDTH][3];
    write_png(t, "masks/05.PNG", PNG_FORMAT_RGB, pixels, NULL);
}

static inline void shrink_mask(scratch *t)
{
    static const uint8_t pixels[16];
    png_image image = {.version = PNG_IMAGE_VERSION, .width = 4, .height = 4, .format = PNG_FORMAT_GRAY};
    assert_true(png_image_write_to_file(&image, scratch_path(t, "masks/05.PNG"), 0, pixels, 0, NULL));
}

/* ---- tar ---- */

static inline void add_entry(struct archive *a, const char *name, const void *bytes, size_t n)
{
    struct archive_entry *e = archive_entry_new();
    archive_entry_set_pathname(e, name);
    archive_entry_set_size(e, (la_int64_t)n);
    archive_entry_set_filetype(e, AE_IFREG);
    archive_entry_set_perm(e, 0644);
    assert_int_equal(archive_write_header(a, e), ARCHIVE_OK);
    assert_int_equal(archive_write_data(a, bytes, n), n);
    archive_entry_free(e);
}

/* Samples first .. end-1; sample `odd` lacks the entry `lacking`, or its class is not a number if that is NULL. */
static inline void write_shard(scratch *t, const char *file, int first, int end, int odd, const char *lacking)
{
    struct archive *a = archive_write_new();
    archive_write_set_format_ustar(a);
    assert_int_equal(archive_write_open_filename(a, scratch_path(t, file)), ARCHIVE_OK);
    for (int i = first; i < end; i++) {
        size_t n;
        char key[40], name[48];
        void *bytes = image_bytes(i, &n);
        snprintf(key, sizeof key, "v1.0/%03d", i);
        snprintf(name, sizeof name, "%s.json", key);
        add_entry(a, name, "{}", 2);
        snprintf(name, sizeof name, "%s.cls", key);
        if (i != odd || !lacking) add_entry(a, name, i == odd ? "b\n" : i % 2 ? "1\n" : "0", i % 2 ? 2 : 1);
        else if (strcmp(lacking, "cls") != 0) add_entry(a, name, "1", 1);
        snprintf(name, sizeof name, "%s.png", key);
        if (i != odd || !lacking || strcmp(lacking, "png") != 0) add_entry(a, name, bytes, n);
        free(bytes);
    }
    assert_int_equal(archive_write_close(a), ARCHIVE_OK);
    archive_write_free(a);
}

static inline void write_tar(scratch *t) { write_shard(t, "d.tar", 0, SAMPLES, -1, NULL); }

static inline void write_shards(scratch *t)
{
    write_shard(t, "s-08.tar", 0, 9, -1, NULL);
    write_shard(t, "s-09.tar", 9, 14, -1, NULL);
    write_shard(t, "s-10.tar", 14, SAMPLES, -1, NULL);
}

static inline void write_tar_no_class(scratch *t) { write_shard(t, "d.tar", 0, SAMPLES, 5, "cls"); }
static inline void write_tar_no_image(scratch *t) { write_shard(t, "d.tar", 0, SAMPLES, 5, "png"); }
static inline void write_tar_bad_class(scratch *t) { write_shard(t, "d.tar", 0, SAMPLES, 5, NULL); }
static inline void cut_tar(scratch *t) { assert_int_equal(truncate(scratch_path(t, "d.tar"), 12345), 0); }

static inline void write_tar_cut(scratch *t)
{
    write_tar(t);
    cut_tar(t);
}

#endif
