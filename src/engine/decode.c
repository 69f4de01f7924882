#include "engine/decode.h"

bool decode_is_stop(const struct decode_rules *r, int32_t id)
{
    for (size_t i = 0; i < r->n_stop_ids; i++)
        if (r->stop_ids[i] == id)
            return true;
    return false;
}

bool decode_ends(const struct decode_rules *r, int32_t id, size_t n, size_t pos,
                 enum qwick_finish *why)
{
    if (decode_is_stop(r, id))
        *why = QWICK_FINISH_STOP;
    else if (r->budget && n >= r->budget)
        *why = QWICK_FINISH_LENGTH;
    else if (pos >= r->limit)
        *why = QWICK_FINISH_CONTEXT;
    else
        return false;
    return true;
}

int decode_run(const struct decode_loop *l, const float *logits, size_t pos,
               enum qwick_finish *why, struct qwick_err *e)
{
    for (size_t n = 1;; n++) {
        int32_t id;
        if (l->select(l->ctx, logits, &id, e))
            return -1;
        bool end = decode_ends(&l->rules, id, n, pos, why);
        if (l->on_token(l->ctx, id, pos, &end, why, e))
            return -1;
        if (end)
            return 0;
        if (pos >= l->rules.limit)
            return err_set(e, QWICK_ERR_CONTEXT,
                           "context: is full with %zu tokens", pos);
        if (l->forward(l->state, id, pos, &logits, e))
            return -1;
        pos++;
    }
}
