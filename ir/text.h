/* text.h - what the printer, the parser and the verifier share about the textual form (docs/ir.md). */
#ifndef AMPC_TEXT_H
#define AMPC_TEXT_H

#include "ir/ir.h"

#include <string.h>

#define IR_TEXT_HEAD "ampc-ir"
#define IR_TEXT_VERSION 2 /* 1: without roles (parse_v1.c) */
#define IR_TEXT_SEALED "sealed" /* in the first line: the text ends with the line of its checksum */
enum { IR_INLINE_ELEMENTS = 16 }; /* constants with more elements are printed as bytes */

/* Spelled out, by enum value. */
extern const char *const ir_phase_names[IR_PHASE_COUNT];
extern const char *const ir_storage_kind_names[]; /* param, state, const */
extern const char *const ir_held_names[];         /* by ir_held, closed by NULL */

/* What a finished error about a node says behind "node 'NAME' (OP): error: ". */
static inline const char *ir_message_text(const char *message)
{
    static const char before[] = "): error: ";
    const char *found = strstr(message, before);
    return found ? found + sizeof before - 1 : message;
}

/* ---- seal.c ---------------------------------------------------------------------------------------------- */

enum { IR_SEAL_DIGITS = 16 };

/* XXH3-64 of what stands before the last line, in hexadecimal. */
void ir_seal(const char *text, size_t length, char out[IR_SEAL_DIGITS + 1]);

/* ---- number.c: elements as text -------------------------------------------------------------------------- */

enum { IR_NUMBER_SIZE = 40 }; /* bytes that a printed number needs at most */

/* The shortest text that reads back as the same value of float type t; inf, -inf, nan spelled. */
void ir_float_print(char out[IR_NUMBER_SIZE], ir_dtype t, double v);
/* One element. False when its bytes would not survive (a NaN with a payload, a bool that is neither 0 nor 1). */
bool ir_element_print(char out[IR_NUMBER_SIZE], ir_dtype t, const void *p);
/* The whole text must be one number; no blanks, whatever the locale. Integers must fit in 64 bits. */
bool ir_float_parse(const char *text, double *out);
bool ir_int_parse(const char *text, int64_t *out);
/* One element; false when the text is none, or an integer that the type cannot hold. */
bool ir_element_parse(const char *text, ir_dtype t, void *p);

/* ---- print.c --------------------------------------------------------------------------------------------- */

/* Which line (1-based) of the dump shows what: nodes, storage, graphs, in order of printing. */
typedef struct ir_line {
    const void *what;
    int number;
    size_t start, length; /* in the dump, without the newline */
} ir_line;

typedef struct ir_dump {
    const char *text;
    VEC(ir_line) lines;
} ir_dump;

ir_dump ir_dump_make(const ir_module *m, arena *a);

/* ---- lex.c: text -> tokens ------------------------------------------------------------------------------- */

typedef enum ir_token_kind {
    IR_TOKEN_END,
    IR_TOKEN_WORD,   /* matmul, f32, true, _ */
    IR_TOKEN_NUMBER, /* -1.5e-3: starts with a digit, '-' or '+'; not checked further */
    IR_TOKEN_STRING, /* decoded */
    IR_TOKEN_RESULT, /* %name, without the '%' and quotes */
    IR_TOKEN_GLOBAL, /* @name */
    IR_TOKEN_MARK,   /* one of { } ( ) [ ] = : , ! */
    IR_TOKEN_BAD     /* text says what is wrong */
} ir_token_kind;

typedef struct ir_token {
    ir_token_kind kind;
    const char *text;         /* in the lexer's arena; of a mark, the character */
    size_t start, end;        /* bytes of the source */
    size_t line_start;        /* where the line of `start` begins */
    int line;                 /* 1-based */
} ir_token;

typedef struct ir_lexer {
    arena *arena;
    const char *text;
    size_t length, at, line_start;
    int line;
    ir_token token;   /* the current one */
    const char *note; /* the comment between the token before the current one and the end of its line, or NULL */
} ir_lexer;

/* Stands on the first token. The text needs no NUL at its end and outlives the lexer. */
ir_lexer ir_lexer_start(const char *text, size_t length, arena *a);
void ir_lexer_next(ir_lexer *l);
/* With '[' as the current token: the text up to ',' or ']' outside quotes and parentheses, without blanks, as the
 * current token (a WORD, possibly empty; or BAD). ir_lexer_next then gives the ',' or ']'. */
void ir_lexer_next_dim(ir_lexer *l);

#endif
