#include "cli/report/heat.h"

#include <math.h>

const struct heat_class heat_classes[HEAT_CLASSES] = {
    {0.9, "90%", {255, 255, 255}, 231, false},
    {0.5, "50%", {255, 242, 179}, 229, false},
    {0.2, "20%", {255, 208, 107}, 221, false},
    {0.05, "5%", {245, 154, 94}, 209, false},
    {0.01, "1%", {212, 86, 111}, 168, false},
    {0, "0%", {110, 44, 128}, 54, true},
};

size_t heat_class_of(double bits)
{
    double p = exp2(-bits);
    size_t i = 0;
    while (i + 1 < HEAT_CLASSES && p < heat_classes[i].p)
        i++;
    return i;
}

void heat_begin(struct buf *b, size_t class, bool truecolor)
{
    const struct heat_class *c = &heat_classes[class];
    int ink = c->white ? 255 : 0;
    if (class == 0)
        return;
    if (truecolor)
        buf_printf(b, "\033[38;2;%d;%d;%d;48;2;%d;%d;%dm", ink, ink, ink,
                   c->rgb[0], c->rgb[1], c->rgb[2]);
    else
        buf_printf(b, "\033[38;5;%d;48;5;%dm", c->white ? 231 : 16, c->index);
}

void heat_end(struct buf *b, size_t class)
{
    buf_puts(b, class ? "\033[0m" : "");
}

void heat_legend(struct buf *b, bool truecolor)
{
    buf_puts(b, "probability of a token:");
    for (size_t i = 0; i < HEAT_CLASSES; i++) {
        bool last = i + 1 == HEAT_CLASSES;
        buf_putc(b, ' ');
        heat_begin(b, i, truecolor);
        buf_printf(b, last ? " <%s " : " >=%s ",
                   heat_classes[last ? i - 1 : i].label);
        heat_end(b, i);
    }
    buf_putc(b, '\n');
}
