/* A program's own token loop: the answer is always a number.
 *
 *     cc digits.c $(pkg-config --cflags --libs qwick) -o digits
 *     ./digits "How many bits are in a byte?"           # the built-in model
 *     ./digits "How many bits are in a byte?" MODEL     # a directory or hub id
 *
 * A bias function forbids every token that is not made of digits. After the
 * first digit, a token that ends the answer is allowed as well. */
#include <qwick.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TOKENS = 8 };

struct mask {
    unsigned char *digits; /* [vocab_size] the token is made of digits */
    const struct qwick_info *info;
    int n_drawn;
};

/* A qwick_bias_fn. */
static int only_digits(void *ctx, float *logits, size_t vocab_size)
{
    const struct mask *m = ctx;
    for (size_t i = 0; i < vocab_size; i++) {
        int allowed = m->digits[i];
        for (size_t k = 0; m->n_drawn > 0 && k < m->info->n_stop_ids; k++)
            allowed |= m->info->stop_ids[k] == (int32_t)i;
        if (!allowed)
            logits[i] = -INFINITY;
    }
    return 0;
}

static int find_digits(struct mask *m, const struct qwick_engine *eng,
                       struct qwick_err *e)
{
    m->info = qwick_engine_info(eng);
    m->digits = calloc(m->info->vocab_size, 1);
    if (!m->digits) {
        e->code = QWICK_ERR_MEMORY;
        snprintf(e->msg, sizeof e->msg, "out of memory");
        return -1;
    }
    for (size_t i = 0; i < m->info->vocab_size; i++) {
        const int32_t id = (int32_t)i;
        char *text;
        size_t n;
        if (qwick_detokenize(eng, &id, 1, false, &text, &n, e))
            return -1;
        m->digits[i] = n > 0 && strspn(text, "0123456789") == n;
        free(text);
    }
    return 0;
}

static int is_stop(const struct qwick_info *info, int32_t id)
{
    for (size_t i = 0; i < info->n_stop_ids; i++)
        if (info->stop_ids[i] == id)
            return 1;
    return 0;
}

/* The prompt's ids, as a conversation of one message. */
static int encode(const struct qwick_engine *eng, const char *prompt,
                  int32_t **ids, size_t *n, struct qwick_err *e)
{
    struct qwick_chat_options o = qwick_chat_defaults();
    struct qwick_chat *chat;
    bool in_think;
    o.think = QWICK_THINK_OFF;
    if (qwick_chat_create(&chat, e))
        return -1;
    int rc = qwick_chat_add(chat, "user", prompt, strlen(prompt), e) ||
             qwick_chat_encode(chat, eng, &o, NULL, 0, ids, n, &in_think, e);
    qwick_chat_free(chat);
    return rc ? -1 : 0;
}

/* Draw tokens until one ends the answer, and print each as it comes. */
static int answer(struct qwick_session *ses, struct qwick_sampler *sam,
                  struct qwick_detokenizer *det, struct mask *m,
                  struct qwick_err *e)
{
    const char *text;
    size_t n;
    int32_t id;
    for (;;) {
        if (qwick_sampler_draw(sam, qwick_session_logits(ses), &id, e) ||
            qwick_sampler_accept(sam, id, e))
            return -1;
        if (is_stop(m->info, id))
            break;
        if (qwick_detokenizer_add(det, id, &text, &n, e))
            return -1;
        fwrite(text, 1, n, stdout);
        if (++m->n_drawn == MAX_TOKENS)
            break;
        if (qwick_session_decode(ses, id, e))
            return -1;
    }
    if (qwick_detokenizer_flush(det, &text, &n, e))
        return -1;
    fwrite(text, 1, n, stdout);
    putchar('\n');
    return 0;
}

int main(int argc, char **argv)
{
    const char *prompt = argc > 1 ? argv[1] : "How many bits are in a byte?";
    struct qwick_engine_options o = qwick_engine_defaults();
    struct qwick_sampling sampling = qwick_sampling_neutral();
    struct qwick_engine *eng = NULL;
    struct qwick_session *ses = NULL;
    struct qwick_sampler *sam = NULL;
    struct qwick_detokenizer *det = NULL;
    struct mask m = {0};
    struct qwick_err e;
    int32_t *ids = NULL;
    size_t n;
    o.model = argc > 2 ? argv[2] : NULL;
    sampling.temperature = 0; /* take the likeliest allowed token */
    int bad = qwick_engine_open(&eng, &o, &e) || find_digits(&m, eng, &e) ||
              qwick_session_create(&ses, eng, 0, &e) ||
              qwick_sampler_create(&sam, eng, &sampling, &e) ||
              qwick_detokenizer_create(&det, eng, true, &e) ||
              encode(eng, prompt, &ids, &n, &e) ||
              qwick_session_sync(ses, ids, n, &e);
    if (!bad) {
        qwick_sampler_bias(sam, only_digits, &m);
        bad = answer(ses, sam, det, &m, &e);
    }
    if (bad)
        fprintf(stderr, "digits: %s\n", e.msg);
    free(ids);
    free(m.digits);
    qwick_detokenizer_free(det);
    qwick_sampler_free(sam);
    qwick_session_free(ses);
    qwick_engine_close(eng);
    return bad ? 1 : 0;
}
