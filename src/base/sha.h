/* SHA-1 and SHA-256 (FIPS 180-4), to compare files with checksums that others
 * have recorded. */
#ifndef BASE_SHA_H
#define BASE_SHA_H

#include <stddef.h>
#include <stdint.h>

enum sha_kind { SHA_1, SHA_256 };

/* The state of one hash. Use it on one thread at a time. */
struct sha {
    enum sha_kind kind;
    uint32_t h[8];          /* SHA-1 uses the first five */
    uint64_t n_bytes;       /* bytes added so far */
    unsigned char tail[64]; /* the last n_bytes % 64 bytes */
};

void sha_begin(struct sha *s, enum sha_kind kind);
/* Add the bytes p[0..n). */
void sha_add(struct sha *s, const void *p, size_t n);
/* End the hash and write it to out as lower-case hexadecimal digits, 40 or 64
 * of them, and a NUL. */
void sha_end(struct sha *s, char out[65]);

#endif
