#include "cli/report/html.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "cli/io/out.h"
#include "cli/report/heat.h"
#include "cli/report/machine.h"
#include "file/save.h"
#include "qwick.h"

/* Series have colours that keep apart for colour-blind people (Okabe and Ito's
 * order of hues, darker here so that thin lines have a contrast of 3), and
 * different dashes and marks besides. */
static const char style[] =
    ":root{color-scheme:light dark;--paper:#ffffff;--ink:#1b1f24;"
    "--soft:#57606a;--line:#d0d7de;--card:#f6f8fa;--s0:#0062a3;--s1:#b34700;"
    "--s2:#00795a;--s3:#9c3f7c;--s4:#6b5900;--s5:#444c56}\n"
    "@media(prefers-color-scheme:dark){:root{--paper:#0d1117;--ink:#e6edf3;"
    "--soft:#9aa4af;--line:#39424d;--card:#161b22;--s0:#6cb6ff;--s1:#ff9d5c;"
    "--s2:#4fd0a5;--s3:#ec9fd0;--s4:#dcc54d;--s5:#adbac7}}\n"
    "@media print{:root{--paper:#ffffff;--ink:#000000;--soft:#444444;"
    "--line:#bbbbbb;--card:#ffffff;--s0:#0062a3;--s1:#b34700;--s2:#00795a;"
    "--s3:#9c3f7c;--s4:#6b5900;--s5:#444c56}"
    "figure,tr{break-inside:avoid}h2{break-after:avoid}"
    "*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}\n"
    "body{margin:0 auto;padding:1.5rem;max-width:74rem;background:var(--paper);"
    "color:var(--ink);font:16px/1.5 system-ui,\"Liberation Sans\","
    "\"DejaVu Sans\",sans-serif}\n"
    "h1{font-size:1.6rem;margin:0 0 .5rem}"
    "h2{font-size:1.25rem;margin:2rem 0 .5rem}"
    "p.soft,figcaption,caption{color:var(--soft);font-size:.9rem}"
    "caption{text-align:left;padding-bottom:.3rem}\n"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums;"
    "margin:.5rem 0 1rem;max-width:100%}"
    "th,td{padding:.25rem .8rem .25rem 0;text-align:right;vertical-align:top;"
    "border-bottom:1px solid var(--line)}"
    "th{font-weight:600;color:var(--soft)}"
    "th:first-child,td:first-child,.facts td,.left{text-align:left}"
    ".facts td{overflow-wrap:anywhere}.wide{overflow-x:auto}\n"
    ".charts{display:grid;gap:1rem;"
    "grid-template-columns:repeat(auto-fill,minmax(min(28rem,100%),1fr))}"
    "figure{margin:0;padding:.8rem;background:var(--card);"
    "border:1px solid var(--line);border-radius:.5rem}"
    "svg{display:block;width:100%;height:auto}"
    "svg text{fill:var(--ink);font:13px system-ui,\"Liberation Sans\","
    "\"DejaVu Sans\",sans-serif}"
    "svg text.tick{fill:var(--soft);font-size:12px}"
    "svg text.title{font-weight:600;font-size:14px}"
    ".grid{stroke:var(--line);stroke-width:1}"
    ".axis{stroke:var(--soft);stroke-width:1}"
    ".curve{fill:none;stroke-width:2;stroke-linejoin:round}"
    ".thin{stroke-width:1;opacity:.45}"
    ".text{white-space:pre-wrap;overflow-wrap:anywhere;padding:.8rem;"
    "background:var(--card);border:1px solid var(--line);border-radius:.5rem;"
    "font:15px/1.7 ui-monospace,\"Liberation Mono\",\"DejaVu Sans Mono\","
    "monospace}.text span{border-radius:.15rem}"
    ".chip{padding:.05rem .5rem;border-radius:.2rem;border:1px solid "
    "var(--line)}.tables{display:flex;flex-wrap:wrap;gap:0 3rem}"
    ".keys{margin:.3rem 0;font-size:.85rem;display:flex;flex-wrap:wrap;"
    "gap:.2rem 1.2rem}"
    ".key svg{display:inline-block;width:26px;height:14px;"
    "vertical-align:-2px;margin-right:.35rem}"
    ".dash{stroke-dasharray:6 4}.bar{stroke:none}\n";

/* The colours of series and of probabilities. */
static void put_colours(struct html *h)
{
    for (int i = 0; i < 6; i++)
        html_markup(h,
                    ".s%d{stroke:var(--s%d)}.f%d{fill:var(--s%d);"
                    "stroke:none}",
                    i, i, i, i);
    for (size_t i = 1; i < HEAT_CLASSES; i++) {
        const struct heat_class *c = &heat_classes[i];
        html_markup(h, ".c%zu{background:#%02x%02x%02x;color:#%s}", i,
                    c->rgb[0], c->rgb[1], c->rgb[2],
                    c->white ? "ffffff" : "000000");
    }
}

void html_begin(struct html *h, const char *title)
{
    *h = (struct html){0};
    html_markup(h, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n"
                   "<meta charset=\"utf-8\">\n"
                   "<meta name=\"viewport\" "
                   "content=\"width=device-width,initial-scale=1\">\n"
                   "<meta http-equiv=\"Content-Security-Policy\" "
                   "content=\"default-src 'none'; style-src "
                   "'unsafe-inline'; img-src data:\">\n"
                   "<link rel=\"icon\" href=\"data:,\">\n<title>");
    html_cstr(h, title);
    html_markup(h, "</title>\n<style>\n");
    html_puts(h, style);
    put_colours(h);
    html_markup(h, "\n</style>\n</head>\n<body>\n<main>\n<h1>");
    html_cstr(h, title);
    html_markup(h, "</h1>\n");
}

void html_begin_model(struct html *h, const char *title,
                      const struct qwick_engine *eng)
{
    const struct qwick_info *i = qwick_engine_info(eng);
    struct machine m;
    machine_read(&m);
    html_begin(h, title);
    html_puts(h, "<table class=\"facts\">\n<caption>Model</caption>\n");
    html_fact(h, "Model", "%s", i->model);
    html_fact(h, "Weights", "%s", i->weights_dtype);
    html_fact(h, "qwick", "%s, %.60s kernels", qwick_version(), i->isa);
    html_fact(h, "Date", "%s", m.date);
}

void html_end(struct html *h)
{
    html_markup(h, "</main>\n</body>\n</html>\n");
}

static int put_char(struct buf *b, const char *s, size_t k)
{
    switch (*s) {
    case '&':
        return buf_puts(b, "&amp;");
    case '<':
        return buf_puts(b, "&lt;");
    case '>':
        return buf_puts(b, "&gt;");
    case '"':
        return buf_puts(b, "&quot;");
    case '\'':
        return buf_puts(b, "&#39;");
    case '\n': /* in attributes, too, where a parser may drop it */
        return buf_puts(b, "&#10;");
    default:
        return buf_append(b, s, k);
    }
}

void html_text(struct html *h, const char *s, size_t n)
{
    while (n && !h->out.failed) {
        uint32_t cp = 0;
        size_t k = utf8_decode(s, n, &cp, NULL);
        bool control = (cp < 0x20 && cp != '\n' && cp != '\t') || cp == 0x7f ||
                       (cp >= 0x80 && cp < 0xa0);
        if (k && !control) {
            put_char(&h->out, s, k);
        } else {
            k = k ? k : 1;
            for (size_t i = 0; i < k; i++)
                html_markup(h, "\\x%02x", (unsigned char)s[i]);
        }
        s += k;
        n -= k;
    }
}

void html_cstr(struct html *h, const char *s)
{
    html_text(h, s, strlen(s));
}

void html_fact(struct html *h, const char *name, const char *fmt, ...)
{
    char value[4096];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(value, sizeof(value), fmt, ap);
    va_end(ap);
    html_markup(h, "<tr><th class=\"left\" scope=\"row\">%s</th><td>", name);
    html_cstr(h, value);
    html_markup(h, "</td></tr>\n");
}

int html_write(struct html *h, const char *path)
{
    struct qwick_err e;
    int status =
        h->out.failed
            ? msg_oom()
            : msg_result(
                  save_put(path, SAVE_SHARED, h->out.data, h->out.len, &e), &e);
    buf_free(&h->out);
    return status;
}
