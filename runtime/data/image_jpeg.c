/* image_jpeg.c - decodes JPEG with libjpeg-turbo.
 *
 * Its libjpeg interface is used because it has numbers for errors and warnings, where that of TurboJPEG has only text:
 * exhausted memory must not look like a damaged file, and harmless warnings must not look like damage. A failed call
 * leaves with longjmp, so everything that must survive is in the jpeg_decoder. */
#include "runtime/backend/memory.h"
#include "runtime/data/image_codec.h"

#include <setjmp.h>
#include <stdio.h> /* before jpeglib.h, which uses FILE */
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

/* Each scan of a progressive file costs time like a whole image. */
enum { MAX_SCANS = 200 };

typedef struct jpeg_decoder {
    struct jpeg_decompress_struct codec;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    const image_source *source;
    rt_image *out;
    ampc_status status;
    jmp_buf failed;
} jpeg_decoder;

static jpeg_decoder *decoder_of(j_common_ptr codec) { return codec->client_data; }

static void fail(j_common_ptr codec)
{
    jpeg_decoder *j = decoder_of(codec);
    char text[JMSG_LENGTH_MAX];
    j->errors.format_message(codec, text);
    j->status = j->errors.msg_code == JERR_OUT_OF_MEMORY
                    ? rt_no_memory(j->source->d)
                    : diag_error(j->source->d, AMPC_REJECTED, j->source->where, "damaged JPEG: %s", text);
    longjmp(j->failed, 1);
}

/* Warnings after which pixels are invented. Others, such as surplus bytes between segments, occur in good files. */
static bool is_damage(int code)
{
    switch (code) {
    case JWRN_JPEG_EOF:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_MUST_RESYNC: return true;
    default: return false;
    }
}

static void on_message(j_common_ptr codec, int level)
{
    if (level < 0 && is_damage(decoder_of(codec)->errors.msg_code)) fail(codec);
}

static void check_scans(j_common_ptr codec)
{
    jpeg_decoder *j = decoder_of(codec);
    if (j->codec.input_scan_number <= MAX_SCANS) return;
    j->status = diag_error(j->source->d, AMPC_REJECTED, j->source->where, "a JPEG of more than %d scans", MAX_SCANS);
    longjmp(j->failed, 1);
}

static ampc_status read_header(jpeg_decoder *j)
{
    struct jpeg_decompress_struct *codec = &j->codec;
    jpeg_mem_src(codec, j->source->bytes, j->source->size);
    jpeg_read_header(codec, TRUE);
    if (codec->jpeg_color_space == JCS_CMYK || codec->jpeg_color_space == JCS_YCCK)
        return diag_error(j->source->d, AMPC_REJECTED, j->source->where,
                          "a JPEG in CMYK is not supported (convert it to RGB)");
    bool gray = codec->jpeg_color_space == JCS_GRAYSCALE;
    codec->out_color_space = gray ? JCS_GRAYSCALE : JCS_RGB;
    codec->dct_method = JDCT_ISLOW;
    return rt_image_alloc(j->source, codec->image_width, codec->image_height, gray ? 1 : 3, j->out);
}

/* Returns also after a longjmp; j->status tells. */
static void decode(jpeg_decoder *j)
{
    if (setjmp(j->failed)) return;
    jpeg_create_decompress(&j->codec);
    j->codec.client_data = j;
    j->codec.progress = &j->progress;
    j->status = read_header(j);
    if (j->status != AMPC_OK || j->source->size_only) return;
    const size_t stride = (size_t)j->out->width * (size_t)j->out->channels;
    jpeg_start_decompress(&j->codec);
    while (j->codec.output_scanline < j->codec.output_height) {
        JSAMPROW row = j->out->pixels + j->codec.output_scanline * stride;
        jpeg_read_scanlines(&j->codec, &row, 1);
    }
    jpeg_finish_decompress(&j->codec);
}

ampc_status rt_image_decode_jpeg(const image_source *source, rt_image *out)
{
    jpeg_decoder j = {.source = source, .out = out};
    j.codec.err = jpeg_std_error(&j.errors);
    j.codec.client_data = &j; /* errors of jpeg_create_decompress need it too */
    j.errors.error_exit = fail;
    j.errors.emit_message = on_message;
    j.progress.progress_monitor = check_scans;
    decode(&j);
    jpeg_destroy_decompress(&j.codec);
    return j.status;
}
