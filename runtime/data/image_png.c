/* image_png.c - decodes PNG with libpng.
 *
 * libpng leaves a failed call with longjmp, so everything that must survive is in the png_decoder. */
#include "runtime/backend/memory.h"
#include "runtime/data/image_codec.h"

#include <limits.h>
#include <png.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CHUNK_BYTES = 1 << 24, MAX_CHUNKS = 1000 };

typedef struct png_decoder {
    const image_source *source;
    size_t at; /* next byte */
    rt_image *out;
    png_structp png;
    png_infop info;
    ampc_status status;
    bool no_memory; /* libpng reports this as any other error */
    jmp_buf failed;
} png_decoder;

static void fail(png_structp png, png_const_charp what)
{
    png_decoder *p = png_get_error_ptr(png);
    p->status = p->no_memory ? rt_no_memory(p->source->d)
                             : diag_error(p->source->d, AMPC_REJECTED, p->source->where, "damaged PNG: %s", what);
    longjmp(p->failed, 1);
}

static void ignore_warning(png_structp png, png_const_charp what) { (void)png, (void)what; }

static png_voidp allocate(png_structp png, png_alloc_size_t n)
{
    png_decoder *p = png_get_mem_ptr(png);
    void *memory = malloc(n);
    if (!memory) p->no_memory = true;
    return memory;
}

static void release(png_structp png, png_voidp memory)
{
    (void)png;
    free(memory);
}

static void deliver(png_structp png, png_bytep dst, size_t n)
{
    png_decoder *p = png_get_io_ptr(png);
    if (n > p->source->size - p->at) png_error(png, "the file ends too early");
    memcpy(dst, p->source->bytes + p->at, n);
    p->at += n;
}

/* Requests 8-bit samples of gray or RGB for each form of PNG; for class numbers, unchanged ones. */
static void set_transforms(png_decoder *p)
{
    png_byte type = png_get_color_type(p->png, p->info);
    if (p->source->classes) {
        png_set_packing(p->png);
        return;
    }
    png_set_strip_16(p->png);
    if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(p->png); /* adds alpha if the palette has any */
    else if (type == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(p->png);
    png_set_strip_alpha(p->png);
}

/* Class numbers are the samples of an image that has one of at most 8 bits per pixel. */
static ampc_status check_classes(const png_decoder *p)
{
    const png_byte type = png_get_color_type(p->png, p->info);
    const char *form = type == PNG_COLOR_TYPE_GRAY_ALPHA               ? "gray with alpha"
                       : type == PNG_COLOR_TYPE_RGB_ALPHA              ? "RGB with alpha"
                       : type == PNG_COLOR_TYPE_RGB                    ? "RGB"
                       : png_get_bit_depth(p->png, p->info) > CHAR_BIT ? "16-bit gray"
                                                                       : NULL;
    if (!form) return AMPC_OK;
    return diag_error(p->source->d, AMPC_REJECTED, p->source->where,
                      "the mask is %s; its pixels must be class numbers: palette or gray of at most 8 bits", form);
}

static ampc_status read_header(png_decoder *p)
{
    png_read_info(p->png, p->info);
    uint32_t width = png_get_image_width(p->png, p->info), height = png_get_image_height(p->png, p->info);
    bool gray = !(png_get_color_type(p->png, p->info) & PNG_COLOR_MASK_COLOR) || p->source->classes;
    if (p->source->classes) TRY(check_classes(p));
    return rt_image_alloc(p->source, width, height, gray ? 1 : 3, p->out);
}

static void read_rows(png_decoder *p)
{
    const size_t stride = (size_t)p->out->width * (size_t)p->out->channels;
    int passes = png_set_interlace_handling(p->png);
    png_read_update_info(p->png, p->info);
    if (png_get_rowbytes(p->png, p->info) != stride) png_error(p->png, "unexpected form of samples");
    for (int pass = 0; pass < passes; pass++)
        for (int y = 0; y < p->out->height; y++) png_read_row(p->png, p->out->pixels + (size_t)y * stride, NULL);
    png_read_end(p->png, NULL);
}

/* Returns also after a longjmp; p->status tells. */
static void decode(png_decoder *p)
{
    if (setjmp(p->failed)) return;
    p->png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, p, fail, ignore_warning, p, allocate, release);
    if (p->png) p->info = png_create_info_struct(p->png);
    if (!p->info) {
        p->status = rt_no_memory(p->source->d);
        return;
    }
    png_set_read_fn(p->png, p, deliver);
    png_set_user_limits(p->png, RT_IMAGE_MAX_SIDE, RT_IMAGE_MAX_SIDE);
    png_set_chunk_malloc_max(p->png, MAX_CHUNK_BYTES);
    png_set_chunk_cache_max(p->png, MAX_CHUNKS);
    p->status = read_header(p);
    if (p->status != AMPC_OK || p->source->size_only) return;
    set_transforms(p);
    read_rows(p);
}

ampc_status rt_image_decode_png(const image_source *source, rt_image *out)
{
    png_decoder p = {.source = source, .out = out};
    decode(&p);
    png_destroy_read_struct(&p.png, &p.info, NULL);
    return p.status;
}
