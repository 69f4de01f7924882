#include "cli/decide/choose_out.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/io/escape.h"

static int likelier(const void *a, const void *b)
{
    const struct choice *x = a, *y = b;
    if (x->logprob != y->logprob)
        return x->logprob > y->logprob ? -1 : 1;
    return x->i < y->i ? -1 : x->i > y->i;
}

void choices_make(struct choice *c, const char *const *answers,
                  const double *logprobs, size_t n, bool in_order)
{
    double max = logprobs[0], sum = 0;
    for (size_t i = 1; i < n; i++)
        max = fmax(max, logprobs[i]);
    for (size_t i = 0; i < n; i++)
        sum += exp(logprobs[i] - max);
    for (size_t i = 0; i < n; i++)
        c[i] = (struct choice){answers[i], logprobs[i],
                               exp(logprobs[i] - max) / sum, i};
    if (!in_order)
        qsort(c, n, sizeof(*c), likelier);
}

const struct choice *choices_best(const struct choice *c, size_t n)
{
    const struct choice *best = c;
    for (size_t i = 1; i < n; i++)
        if (likelier(&c[i], best) < 0)
            best = &c[i];
    return best;
}

void choice_put_line(struct buf *b, const char *answer, double probability)
{
    if (answer)
        escape_letters(b, answer, strlen(answer), "\t\n\r", "tnr", false);
    buf_printf(b, "\t%.6f", probability);
}

void choices_put_lines(struct buf *b, const struct choice *c, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        choice_put_line(b, c[i].answer, c[i].probability);
        buf_printf(b, "\t%.6f\n", c[i].logprob);
    }
}

void choices_put_json(struct json_writer *w, const struct choice *c, size_t n,
                      const char *answer, double probability)
{
    jw_cstr(w, "answer", answer);
    jw_double(w, "probability", probability);
    jw_array(w, "answers");
    for (size_t i = 0; i < n; i++) {
        jw_object(w, NULL);
        jw_cstr(w, "answer", c[i].answer);
        jw_double(w, "probability", c[i].probability);
        jw_double(w, "logprob", c[i].logprob);
        jw_end_object(w);
    }
    jw_end_array(w);
}
